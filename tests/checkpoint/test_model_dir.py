"""Model directories: saved models load unchanged, everything else is refused in one line."""

import contextlib
import json
import os
import resource
import struct
from pathlib import Path
from random import Random

import pytest
import torch
from cpu_time import cpu_time
from safetensors.torch import load_file, save_file
from saved_models import build_model, save_model, seal_again

from polyhead.checkpoint.atomic_dir import checkpoint_path, link, verify
from polyhead.checkpoint.model_dir import SavedModel, first_not_finite, load_model
from polyhead.checkpoint.model_files import resolve
from polyhead.errors import CheckpointError
from polyhead.models.transformer import Transformer, TransformerConfig

LINES = ["하나 둘 셋", "one two three", "sechs sieben"]


def build(tie="all", **stack):
    return build_model(LINES, {"step": 3}, tie=tie, **stack)


@pytest.fixture
def place(tmp_path):
    return save_model(build(), tmp_path / "model")


def outputs(model):
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(4, 10, (3, 5), generator=generator)
    return model(source, source.flip(1))


def assert_refused(path, *codes, mention=""):
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    text = str(caught.value)
    assert caught.value.code in codes, caught.value
    assert mention in text
    assert "\n" not in text
    assert len(text) < 600
    assert caught.value.exit_code == 5


# Valid models


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_a_saved_model_loads_unchanged(tmp_path, tie):
    saved = build(tie)
    for _ in range(2):  # saving twice must work
        save_model(saved, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert torch.equal(outputs(again.model), outputs(saved.model))
    assert (again.family, again.config, again.about) == ("transformer", saved.config, {"step": 3})
    assert not again.model.training
    assert again.tokenizers.source.encode(LINES[0]) == saved.tokenizers.source.encode(LINES[0])
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_tied_weights_are_saved_once_and_load_tied(place):
    model = load_model(place).model
    tokens = model.embed_target.tokens.weight
    assert model.to_logits.weight is tokens
    assert model.embed_source.tokens.weight is tokens
    shapes = [tuple(t.shape) for t in load_file(place / "model.safetensors").values()]
    assert shapes.count(tuple(tokens.shape)) == 1


def test_a_model_without_a_tokenizer_loads(tmp_path):
    saved = build()
    bare = SavedModel(saved.family, saved.config, saved.model, None)
    assert load_model(save_model(bare, tmp_path / "model")).tokenizers is None


def test_weights_in_half_precision_load_as_float32(place):
    path = place / "model.safetensors"
    save_file({name: t.bfloat16() for name, t in load_file(path).items()}, path)
    seal_again(place)
    weight = load_model(place).model.to_logits.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, weight.bfloat16().float())


def test_a_run_resolves_to_its_best_last_or_newest_checkpoint(tmp_path):
    run = tmp_path / "run"
    first = save_model(build(), checkpoint_path(run / "checkpoints", 1))
    second = save_model(build(), checkpoint_path(run / "checkpoints", 2))
    assert resolve(run) == second
    link(run / "last", first)
    assert resolve(run) == first
    link(run / "best", second)
    assert resolve(run) == second
    link(run / "best", run / "checkpoints" / "gone")
    assert resolve(run) == first


def test_saving_eight_million_parameters_is_fast(tmp_path):
    """Training waits meanwhile."""
    saved = build(d_model=256, n_heads=4, d_ff=8192)
    assert sum(p.numel() for p in saved.model.parameters()) > 8e6
    spent = []
    for _ in range(3):
        with cpu_time() as used:
            save_model(saved, tmp_path / "model")
        spent.append(used.seconds)
    assert min(spent) < 0.5


# Paths and files that are not models


def test_paths_that_are_not_models_are_refused(tmp_path):
    assert_refused(tmp_path / "none", "no_model", mention="polyhead train")
    assert_refused(tmp_path, "not_a_model", mention="config.json")
    assert_refused(Path("a man walks"), "no_model", mention="standard input")
    assert_refused(Path("a man walks " * 90), "no_model", mention="…")
    best = tmp_path / "runs" / "gru-1" / "best"
    best.mkdir(parents=True)
    (best / "config.json").write_text("{}")
    assert_refused(tmp_path, "not_a_model", mention="runs/gru-1")
    (tmp_path / "model.pt").write_bytes(b"x")
    assert_refused(tmp_path / "model.pt", "not_a_model", mention=".pt")


def change(place, edit):
    path = place / "config.json"
    described = json.loads(path.read_text())
    edit(described)
    path.write_text(json.dumps(described))
    seal_again(place)


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("family", "perceiver", "unknown_family"),
        ("family", ["transformer"], "unknown_family"),
        ("family", None, "unknown_family"),
        ("format", 2, "unknown_format"),
        ("model", [], "bad_config"),
        ("about", [], "bad_config"),
        ("about", {"run": [1]}, "bad_config"),
        ("about", {"run": {"decode": 5}}, "bad_config"),
        ("about", {"step": "x"}, "bad_config"),
        ("about", {"valid": [1]}, "bad_config"),
    ],
)
def test_other_descriptions_are_refused(place, key, value, code):
    change(place, lambda described: described.update({key: value}))
    assert_refused(place, code)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[" * 10**6, b"\xff\xfe", b"5", b'{"format": 1, "family": "transformer"}',
     b"1" * 5000, b" " * 2**21],
)  # fmt: skip
def test_invalid_deep_or_large_json_is_refused(place, content):
    (place / "config.json").write_bytes(content)
    seal_again(place)
    assert_refused(place, "bad_config")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_without_a_checksum_are_not_read(place, name):
    sums = {n: s for n, s in verify(place).items() if n != name}
    (place / "manifest.json").write_text(json.dumps(sums, indent=1) + "\n")
    assert_refused(place, "not_a_model", mention=name)


def test_unknown_files_beside_the_tokenizer_and_links_are_refused(place):
    (place / "tokenizer" / "joint.model").write_bytes(b"x")
    assert_refused(place, "unknown_file", mention="tokenizer/joint.model")
    (place / "tokenizer").rename(place.parent / "elsewhere")
    (place / "tokenizer").symlink_to(place.parent / "elsewhere")
    assert_refused(place, "damaged", mention="tokenizer/tokenizer.json")


def test_a_tokenizer_of_another_size_is_refused(tmp_path):
    saved = build()
    config = TransformerConfig(99, 99, stack=saved.config.stack)
    other = SavedModel("transformer", config, Transformer(config), saved.tokenizers)
    assert_refused(save_model(other, tmp_path / "other"), "vocabulary_size", mention="99")


# Wrong weights


def set_value(value, index):
    def edit(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[index] = value
        return tensor

    return edit


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (lambda _: None, "wrong_tensors"),
        (lambda t: t.T.contiguous(), "wrong_tensors"),
        (lambda t: t[None], "wrong_tensors"),
        (lambda t: t.int(), "wrong_tensors"),
        (set_value(float("nan"), 0), "not_finite"),
        (set_value(float("-inf"), -1), "not_finite"),
        (lambda t: torch.full_like(t, 1e300, dtype=torch.float64), "not_finite"),
    ],
)
def test_wrong_weights_are_refused(place, edit, code):
    path = place / "model.safetensors"
    good = load_file(path)
    name = next(n for n, t in good.items() if t.dim() == 2 and t.size(0) != t.size(1))
    others = {n: t for n, t in good.items() if n != name}
    edited = edit(good[name])
    save_file(others if edited is None else others | {name: edited}, path)
    seal_again(place)
    assert_refused(place, code, mention=name)


def test_additional_weights_are_refused(place):
    path = place / "model.safetensors"
    save_file(load_file(path) | {"x\ny" * 99: torch.zeros(2)}, path)
    seal_again(place)
    assert_refused(place, "wrong_tensors")


class Canary:
    """An object whose unpickling creates a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer/tokenizer.json"])
def test_a_renamed_pickle_is_never_executed(place, tmp_path, name):
    canary = tmp_path / "ran"
    torch.save({"weights": Canary(canary)}, place / name)
    seal_again(place)
    assert_refused(place, "bad_tensor_file", "bad_config", "broken_tokenizer")
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
def test_tensor_files_with_false_sizes_are_refused(place, content):
    (place / "model.safetensors").write_bytes(content)
    seal_again(place)
    assert_refused(place, "bad_tensor_file", "wrong_tensors", mention="model.safetensors")


def test_a_huge_header_is_not_read(place):
    with (place / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 10 * 2**20) + b"{" + b" " * (10 * 2**20 - 2) + b"}")
    seal_again(place)
    assert_refused(place, "bad_tensor_file", mention="10485760")


def test_random_damage_with_a_valid_manifest_is_refused_or_harmless(place):
    """The result is an error, or a model whose weights are finite."""
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
            assert first_not_finite(load_model(place).model) is None


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
        {"pad": 10**6},
        {"stack": {"d_model": 2**61 - 1, "n_heads": 2**61 - 2}},
        {"stack": {"d_model": 2**32 - 1, "n_heads": 2**32 - 2}},
        {"stack": {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_ff": 16, "experts": {"n": 1000}}},
    ],
)
def test_wrong_sizes_are_refused_before_memory_is_allocated(place, edit):
    change(place, lambda described: described["model"].update(edit))
    limit = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 512 * 2**20, limit[1]))
    with cpu_time() as used:
        try:
            assert_refused(place, "bad_config", "wrong_tensors")
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limit)
    assert used.seconds < 5


def test_a_huge_buffer_without_weights_is_refused(place):
    """Empty weights fit into any file, but the size of sinusoidal positions is d_model."""
    stack = {"n_layers": 0, "d_model": 2 * 10**9, "n_heads": 1, "d_ff": 1}
    change(
        place,
        lambda d: d["model"].update({"source_vocab": 0, "target_vocab": 0, "stack": stack}),
    )
    shape = {"dtype": "F32", "shape": [0, 2 * 10**9], "data_offsets": [0, 0]}
    (place / "model.safetensors").write_bytes(header(**{"embed_source.tokens.weight": shape}))
    seal_again(place)
    assert_refused(place, "bad_config", mention="sizes")
