"""A model must come back whole, or say in one line why it cannot."""

import contextlib
import json
import os
import resource
import struct
import time
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file, save_file

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.errors import CheckpointError, PolyheadError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.tokenizers.storage import TextConfig, train_tokenizers

LINES = ["하나 둘 셋", "one two three", "sechs sieben"]


def build(tie="all", **stack):
    tokenizers = train_tokenizers(LINES, LINES, TextConfig("characters", vocab=50))
    sizes = {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 16} | stack
    vocab = len(tokenizers.source)
    config = TransformerConfig(vocab, vocab, tie=tie, stack=StackConfig(**sizes))
    torch.manual_seed(0)
    return SavedModel("transformer", config, Transformer(config).eval(), tokenizers, {"step": 3})


def save(saved, place):
    with store.atomic_dir(place) as draft:
        model_folder.write_model(draft, saved, "# a card\n")
    return place


@pytest.fixture
def place(tmp_path):
    return save(build(), tmp_path / "model")


def outputs(model):
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(4, 10, (3, 5), generator=generator)
    return model(source, source.flip(1))


def seal_again(place):
    """What an attacker would do: the checksums are right."""
    (place / "manifest.json").unlink()
    store.seal(place)


def refused(place, match):
    with pytest.raises(CheckpointError, match=match) as caught:
        model_folder.load_model(place)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    assert caught.value.exit_code == 5
    return text


# What comes back


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_a_model_comes_back_as_it_was(tmp_path, tie):
    saved = build(tie)
    for _ in range(2):  # saving twice in one place must work
        save(saved, tmp_path / "model")
    again = model_folder.load_model(tmp_path / "model")
    assert torch.equal(outputs(again.model), outputs(saved.model))
    assert (again.family, again.config, again.about) == ("transformer", saved.config, {"step": 3})
    assert not again.model.training
    assert again.tokenizers.source.encode(LINES[0]) == saved.tokenizers.source.encode(LINES[0])
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_tied_weights_come_back_tied_and_are_saved_once(place):
    model = model_folder.load_model(place).model
    tokens = model.embed_target.tokens.weight
    assert model.to_logits.weight is tokens
    assert model.embed_source.tokens.weight is tokens
    shapes = [tuple(t.shape) for t in load_file(place / "model.safetensors").values()]
    assert shapes.count(tuple(tokens.shape)) == 1


def test_a_folder_without_a_tokenizer_is_a_model_too(tmp_path):
    saved = build()
    bare = SavedModel(saved.family, saved.config, saved.model, None)
    assert model_folder.load_model(save(bare, tmp_path / "model")).tokenizers is None


def test_weights_of_half_precision_are_welcome(place):
    path = place / "model.safetensors"
    save_file({name: t.bfloat16() for name, t in load_file(path).items()}, path)
    seal_again(place)
    weight = model_folder.load_model(place).model.to_logits.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, weight.bfloat16().float())


def test_a_run_means_its_best_checkpoint_or_its_last_or_its_newest(tmp_path):
    run = tmp_path / "run"
    one = save(build(), store.checkpoint_path(run / "checkpoints", 1))
    two = save(build(), store.checkpoint_path(run / "checkpoints", 2))
    assert model_folder.resolve(run) == two
    store.link(run / "last", one)
    assert model_folder.resolve(run) == one
    store.link(run / "best", two)
    assert model_folder.resolve(run) == two
    store.link(run / "best", run / "checkpoints" / "gone")
    assert model_folder.resolve(run) == one


def test_saving_eight_million_parameters_takes_no_time(tmp_path):
    """Memory speed, not more: it happens while a run waits."""
    saved = build(d_model=256, n_heads=4, d_ff=8192)
    assert sum(p.numel() for p in saved.model.parameters()) > 8e6
    spent = []
    for _ in range(3):
        started = time.process_time()
        save(saved, tmp_path / "model")
        spent.append(time.process_time() - started)
    assert min(spent) < 0.5


def test_weights_that_do_not_fit_on_the_disk_are_one_line_and_the_old_model_stays(tmp_path):
    """The kernel itself refuses in the middle of the file."""
    saved = build(d_ff=4096)
    place = save(saved, tmp_path / "model")
    read, written = os.pipe()
    if not (pid := os.fork()):
        try:
            most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, most))
            save(saved, place)
        except PolyheadError as error:
            os.write(written, f"{error.exit_code} {error}".encode())
        finally:
            os._exit(0)
    os.close(written)
    os.waitpid(pid, 0)
    with os.fdopen(read) as told:
        line = told.read()
    assert line.startswith(f"1 cannot write {place}: ")
    assert "File too large" in line
    assert line.endswith("; what was saved before is intact")
    assert "\n" not in line
    assert torch.equal(outputs(model_folder.load_model(place).model), outputs(saved.model))
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


# What is not a model


def test_paths_that_are_no_models_are_told_apart(tmp_path):
    refused(tmp_path / "none", r"there is no model .*/none; train one with `polyhead train`")
    refused(tmp_path, r"is not a model: it has no config\.json")
    refused(Path("a man walks"), "there is no model a man walks; text is read from standard input")
    refused(Path("a man walks " * 90), r"there is no model a man .{180,200}…; text is read from")
    best = tmp_path / "runs" / "gru-1" / "best"
    best.mkdir(parents=True)
    (best / "config.json").write_text("{}")
    refused(tmp_path, "is not a model, but a comparison of several, such as .*runs/gru-1")
    (tmp_path / "model.pt").write_bytes(b"x")
    refused(tmp_path / "model.pt", r"is a file; a model is a folder .* \.pt or \.bin are never")


def change(place, edit):
    path = place / "config.json"
    described = json.loads(path.read_text())
    edit(described)
    path.write_text(json.dumps(described))
    seal_again(place)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("family", "perceiver", r"family 'perceiver'; this version of polyhead knows transformer"),
        ("family", ["transformer"], r"this version of polyhead knows transformer"),
        ("family", None, r"family 'None'; this version"),
        ("format", 2, r"has format '2'; this version reads 1"),
        ("model", [], r"does not describe a model"),
        ("about", [], r"about is not a table"),
        ("about", {"run": [1]}, r"about does not tell how a model was made"),
        ("about", {"run": {"decode": 5}}, r"about does not tell how a model was made"),
        ("about", {"step": "x"}, r"about does not tell how a model was made"),
        ("about", {"valid": [1]}, r"about does not tell how a model was made"),
    ],
)
def test_a_description_of_something_else_is_refused(place, key, value, message):
    change(place, lambda described: described.update({key: value}))
    refused(place, message)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 10**6, b"\xff\xfe", b"5", b'{"format": 1, "family": "transformer"}',
     b"1" * 5000, b" " * 2**21],
)  # fmt: skip
def test_json_that_is_none_or_too_deep_or_too_large_is_refused(place, content):
    (place / "config.json").write_bytes(content)
    seal_again(place)
    refused(place, r"config\.json (cannot be read|does not describe|is too large)")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_that_were_not_checked_are_not_read(place, name):
    sums = {n: s for n, s in store.verify(place).items() if n != name}
    (place / "manifest.json").write_text(json.dumps(sums, indent=1) + "\n")
    refused(place, rf"is not a model: its manifest\.json has no {name}")


def test_a_stranger_among_the_tokenizer_s_files_is_refused(place):
    (place / "tokenizer" / "joint.model").write_bytes(b"x")
    refused(place, r"tokenizer/joint\.model does not belong to this model")


def test_a_tokenizer_that_is_a_link_is_refused(place):
    (place / "tokenizer").rename(place.parent / "elsewhere")
    (place / "tokenizer").symlink_to(place.parent / "elsewhere")
    refused(place, r"tokenizer/tokenizer\.json is a link to another place")


def test_a_tokenizer_of_another_size_is_refused(tmp_path):
    saved = build()
    config = TransformerConfig(99, 99, stack=saved.config.stack)
    other = SavedModel("transformer", config, Transformer(config), saved.tokenizers)
    refused(save(other, tmp_path / "other"), r"ids on the source side, but config\.json says 99")


def test_damage_is_named(place):
    path = place / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(place, r"model\.safetensors is damaged: its checksum is not the saved one")


# Weights that are not those of the model


def tamper(place, edit):
    path = place / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)
    seal_again(place)


def first(tensors):
    """The name of a matrix that is not square."""
    return next(n for n, t in tensors.items() if t.dim() == 2 and t.size(0) != t.size(1))


def lose_one(tensors):
    del tensors[first(tensors)]


def add_one(tensors):
    tensors["x\ny" * 99] = torch.zeros(2)


def turn_one(tensors):
    tensors[first(tensors)] = tensors[first(tensors)].T.contiguous()


def add_a_dimension(tensors):
    tensors[first(tensors)] = tensors[first(tensors)][None]


def poison(value, place):
    def edit(tensors):
        tensors[first(tensors)].view(-1)[place] = value

    return edit


def exceed_float32(tensors):
    name = first(tensors)
    tensors[name] = torch.full_like(tensors[name], 1e300, dtype=torch.float64)


def make_whole_numbers(tensors):
    tensors[first(tensors)] = tensors[first(tensors)].int()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lose_one, r"model\.safetensors lacks "),
        (add_one, r"has 'x\\ny.*, unlike this model"),
        (turn_one, r"is \(\d+, \d+\), but config\.json says \(\d+, \d+\)"),
        (add_a_dimension, r"is \(1, \d+, \d+\), but config\.json says \(\d+, \d+\)"),
        (poison(float("nan"), 0), r"holds numbers that are not finite"),
        (poison(float("-inf"), -1), r"holds numbers that are not finite"),
        (exceed_float32, r"holds numbers that are not finite"),
        (make_whole_numbers, r"has numbers of type I32; expected one of F64, F32, F16, BF16"),
    ],
)
def test_other_weights_are_refused(place, edit, message):
    tamper(place, edit)
    refused(place, message)


class Canary:
    """Unpickling this would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer/tokenizer.json"])
def test_a_pickle_by_another_name_is_never_run(place, tmp_path, name):
    canary = tmp_path / "ran"
    torch.save({"weights": Canary(canary)}, place / name)
    seal_again(place)
    refused(place, r"safetensors file|cannot be read as JSON|is broken")
    assert not canary.exists()


def header(**entries):
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100 * 2**20) + b" " * 100,
        struct.pack("<Q", 10**6) + b"[" * 10**6,
        header(a={"dtype": "F32", "shape": [2**62], "data_offsets": [0, 2**64 - 1]}),
        header(a={"dtype": "F32", "shape": [10], "data_offsets": [0, 40]}),
        header(a={"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}) + bytes(4),
        header(a={"dtype": "F32", "shape": [0, 10**15], "data_offsets": [0, 0]}),
    ],
)
def test_files_that_lie_about_their_size_are_refused(place, content):
    (place / "model.safetensors").write_bytes(content)
    seal_again(place)
    refused(place, r"model\.safetensors")


def test_a_header_that_is_longer_than_any_model_s_is_not_read(place):
    with (place / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 10 * 2**20) + b"{" + b" " * (10 * 2**20 - 2) + b"}")
    seal_again(place)
    refused(place, r"model\.safetensors .*: its header claims 10485760 bytes")


def test_random_damage_with_right_checksums_is_refused_or_harmless(place):
    """Whatever stands in the file: a line, or a model whose weights are all numbers."""
    random = Random(0)
    path = place / "model.safetensors"
    good = path.read_bytes()
    for _ in range(150):
        bad = bytearray(good)
        for _ in range(random.choice([1, 3, 30])):
            bad[random.randrange(min(len(bad), random.choice([12, 3000])))] = random.randrange(256)
        path.write_bytes(bad[: random.choice([len(bad), random.randrange(len(bad))])])
        seal_again(place)
        with contextlib.suppress(CheckpointError):
            assert model_folder.first_not_finite(model_folder.load_model(place).model) is None


# Sizes


@pytest.mark.parametrize(
    "edit",
    [
        {"source_vocab": 10**9, "target_vocab": 10**9},
        {"source_vocab": 10**30, "target_vocab": 10**30},
        {"source_vocab": -5, "target_vocab": -5},
        {"source_vocab": 0, "target_vocab": 0},
        {"positions": "learned", "max_length": 10**12},
        {"decoder_layers": 10**9},
        {"stack": {"n_layers": 10**9, "d_model": 8, "n_heads": 2, "d_ff": 16}},
        {"stack": {"n_layers": 1, "d_model": 2 * 10**9, "n_heads": 2, "d_ff": 16}},
        {"stack": {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 10**12}},
        {"stack": {"n_layers": 1, "d_model": 8, "n_heads": 0, "d_ff": 16}},
        {"stack": {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 16, "dropout": 7.0}},
        {"stack": {"n_layers": 0, "d_model": 0, "n_heads": 1, "d_ff": 0}},
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(place, edit):
    change(place, lambda described: described["model"].update(edit))
    limit = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 512 * 2**20, limit[1]))
    started = time.process_time()
    try:
        refused(place, r"config\.json|lacks embed_source\.positions")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    assert time.process_time() - started < 5


def test_a_huge_buffer_with_no_weights_to_match_is_refused(place):
    """Weights of no numbers fit into any file, but the code of positions is made from d_model."""
    stack = {"n_layers": 0, "d_model": 2 * 10**9, "n_heads": 1, "d_ff": 1}
    change(
        place,
        lambda d: d["model"].update({"source_vocab": 0, "target_vocab": 0, "stack": stack}),
    )
    shape = {"dtype": "F32", "shape": [0, 2 * 10**9], "data_offsets": [0, 0]}
    (place / "model.safetensors").write_bytes(header(**{"embed_source.tokens.weight": shape}))
    seal_again(place)
    refused(place, r"config\.json: no model has such sizes")
