"""Directories of other libraries, sound and unsound."""

import json
import struct
from contextlib import nullcontext

import pytest
import torch
from expected_errors import raises
from foreign_models import change_config, make_gpt, write_theirs
from safetensors.torch import load_file, save_file

from polyhead.checkpoint.tensors import count_tensors
from polyhead.convert import reader
from polyhead.convert.conversion import import_model
from polyhead.convert.reader import read_foreign
from polyhead.errors import CheckpointError, MissingError
from polyhead.experiments.run_list import count_weights

hf = pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path):
    """The directory of a tiny GPT-2."""
    return write_theirs(make_gpt(), tmp_path / "one")


def test_a_model_in_several_files_is_the_same_model(folder, tmp_path):
    hf.GPT2LMHeadModel.from_pretrained(folder).save_pretrained(
        tmp_path / "many", max_shard_size="5KB"
    )
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    first, second = (read_foreign(tmp_path / name).tensors() for name in ("one", "many"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert import_model(str(tmp_path / "many"), tmp_path / "ours").parity.equal


def test_an_index_that_leads_elsewhere_or_to_pickles_is_refused(folder, tmp_path):
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    outside = str(tmp_path / "outside.safetensors")
    for name in ("../outside.safetensors", outside, "weights.bin", index.name, "", 5, None, [], {}):
        for table in ({"wte": name}, {"wte": "model-1.safetensors", "wpe": name}):
            index.write_text(json.dumps({"weight_map": table}))
            with raises(CheckpointError, "invalid_index", "weight_map"):
                read_foreign(folder)
    for table in ([], {}, "model.safetensors", None, 5):
        index.write_text(json.dumps({"weight_map": table}))
        with raises(CheckpointError, "invalid_index", "weight_map"):
            read_foreign(folder)
    (folder / "cycle.safetensors").symlink_to("cycle.safetensors")
    (folder / "folder.safetensors").mkdir()
    for name in ("absent.safetensors", "cycle.safetensors", "folder.safetensors"):
        index.write_text(json.dumps({"weight_map": {"wte": name}}))
        with raises(CheckpointError, "missing_weights", name):
            read_foreign(folder)


def test_a_tensor_in_two_files_or_under_two_names_is_refused(folder, tmp_path):
    state = load_file(folder / "model.safetensors")
    save_file(state | {"wte.weight": torch.ones(29, 12)}, folder / "model.safetensors")
    with raises(CheckpointError, "duplicate_weight", "wte.weight"):
        import_model(str(folder), tmp_path / "ours")
    (folder / "model.safetensors").unlink()
    for name in "ab":
        save_file(state, folder / f"{name}.safetensors")
    table = {"x": "a.safetensors", "y": "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    with raises(CheckpointError, "duplicate_weight", "a.safetensors", "b.safetensors"):
        read_foreign(folder)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.float8_e4m3fn])
def test_weights_that_are_not_floats_are_refused(dtype, folder, tmp_path):
    state = load_file(folder / "model.safetensors")
    mask = {"transformer.h.0.attn.bias": torch.ones(1, 1, 13, 13, dtype=torch.bool)}
    name = "transformer.h.1.mlp.c_fc.weight"
    for kind in (torch.float16, torch.bfloat16, torch.float64):
        save_file(state | mask | {name: state[name].to(kind)}, folder / "model.safetensors")
        assert import_model(str(folder), tmp_path / str(kind)).parity.equal
    save_file(state | {name: state[name].to(dtype)}, folder / "model.safetensors")
    with raises(CheckpointError, "not_float", "stack.blocks.1.feed_forward.w_1.weight"):
        import_model(str(folder), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_pickles_are_never_read(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    for path in (folder, folder / "pytorch_model.bin"):
        with raises(CheckpointError, "pickled_weights", "pytorch_model.bin"):
            read_foreign(path)
    (folder / "pytorch_model.bin").unlink()
    with raises(CheckpointError, "missing_weights"):
        read_foreign(folder)


def test_broken_files_are_named(folder):
    weights_file, config = folder / "model.safetensors", folder / "config.json"
    whole = weights_file.read_bytes()
    for content in (b"", whole[:100], struct.pack("<Q", 2**40) + whole[8:], b"x" * 1000):
        weights_file.write_bytes(content)
        with raises(CheckpointError, "bad_tensor_file"):
            read_foreign(folder)
    config.write_text("[1, 2")
    with raises(CheckpointError, "unreadable_json", "config.json"):
        read_foreign(folder)
    config.unlink()
    with raises(CheckpointError, "missing_config", "config.json"):
        read_foreign(folder)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"model_type": "llama"}, "unsupported_architecture"),
        ({"architectures": ["GPT2ForTokenClassification"]}, "unsupported_architecture"),
        ({"n_layer": 1000}, "too_many_layers"),
        ({"n_layer": 10**9}, "invalid_sizes"),
        ({"vocab_size": 10**9}, "wrong_shape"),
        ({"n_embd": 3 * 10**7}, "wrong_shape"),
        ({"n_layer": 3}, "missing_weight"),
        ({"n_layer": 1}, "unknown_weight"),
        ({"n_head": 5}, "invalid_sizes"),
        ({"n_head": "3"}, "invalid_config_value"),
    ],
)
def test_a_false_configuration_is_found_before_memory_is_taken(values, code, folder, tmp_path):
    change_config(folder, **values)
    with raises(CheckpointError, code):
        import_model(str(folder), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_an_architecture_without_a_name_is_found_by_its_weights(folder, tmp_path):
    change_config(folder, architectures=None)
    assert import_model(str(folder), tmp_path / "ours").architecture == "GPT2LMHeadModel"
    save_file({"other": torch.ones(1)}, folder / "model.safetensors")
    with raises(CheckpointError, "unnamed_architecture"):
        import_model(str(folder), tmp_path / "more")


def test_weights_that_are_not_finite_are_refused(folder, tmp_path):
    state = load_file(folder / "model.safetensors")
    state["transformer.wte.weight"][3, 3] = float("nan")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with raises(CheckpointError, "not_finite", "embed.tokens.weight"):
        import_model(str(folder), tmp_path / "ours")


def test_a_name_is_looked_for_in_the_cache_and_then_on_the_hub(folder, tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    asked = []

    def download(name, **options):
        asked.append((name, options.get("local_files_only", False)))
        if name == "known/model":
            return str(folder)
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert reader.locate("known/model") == folder
    assert asked == [("known/model", True)]
    with raises(MissingError, "download_failed", "no route to host"):
        reader.locate("bert-base-uncased")
    assert asked[1:] == [("bert-base-uncased", True), ("bert-base-uncased", False)]
    with raises(CheckpointError, "not_found", "./nothing"):
        import_model("./nothing", tmp_path / "ours")
    with raises(CheckpointError, "not_found", "../elsewhere/x"):
        reader.locate("../elsewhere/x")
    assert reader.locate(str(folder)) == folder


def test_all_readers_refuse_headers_above_one_limit(tmp_path):
    path = tmp_path / "model.safetensors"
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    for length, refused in ((2**23, False), (2**23 + 8, True)):
        path.write_bytes(struct.pack("<Q", length) + header.ljust(length) + bytes(4))
        for read, kind in (
            (count_weights, ValueError),
            (count_tensors, CheckpointError),
            (lambda path: len(read_foreign(path, config=False).files), CheckpointError),
        ):
            with pytest.raises(kind) if refused else nullcontext():
                assert read(path) == 1
