"""Vision Transformers for timm and from it, beside timm's own where that is installed."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from safetensors.torch import load_file

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel, weights_of
from polyhead.cli.main import main
from polyhead.convert.conversion import export_model, import_model
from polyhead.convert.timm_vit import PLAIN, config_from_timm, config_to_timm
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.vit import ViTConfig

SMALL = replace(ViTConfig().stack, n_layers=2, d_model=12, n_heads=3, d_ff=20)
CONFIGS = {
    "class": ViTConfig(3, 8, 12, 2, 4, stack=SMALL),
    "mean": ViTConfig(3, 8, 8, 1, 4, pooling="mean", stack=SMALL),
    "tanh": ViTConfig(3, 8, 8, 3, 4, stack=replace(SMALL, activation="gelu_tanh")),
    "a ratio that is not whole": ViTConfig(2, 8, 8, 3, 4, stack=replace(SMALL, d_ff=7)),
}
NAMES = ["boot", "hat", "shoe"]


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def ours(folder, config, family="vit", **about):
    """One of our models with nothing at zero, as training would write it."""
    model = FAMILIES[family].model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    with store.atomic_dir(folder) as draft:
        model_folder.write_model(draft, SavedModel(family, config, model.eval(), None, about), "")
    return model


@pytest.mark.parametrize("what", CONFIGS)
def test_a_vit_goes_to_timm_and_comes_back_the_same(what, tmp_path):
    config = CONFIGS[what]
    model = ours(tmp_path / "ours", config, classes=NAMES[: config.classes])
    report = export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    assert (report.family, report.architecture) == ("vit", "timm")
    import_model(str(tmp_path / "timm"), tmp_path / "again")
    again = model_folder.load_model(tmp_path / "again")
    assert again.config == config
    assert again.about["classes"] == NAMES[: config.classes]
    before, after = weights_of(model), weights_of(again.model)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("what", CONFIGS)
def test_timm_reads_what_we_write_and_says_the_same(what, tmp_path):
    timm = pytest.importorskip("timm")
    config = CONFIGS[what]
    model = ours(tmp_path / "ours", config)
    report = export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    assert report.parity.difference <= 1e-4
    images = torch.randn(2, config.channels, config.height, config.width)
    values = json.loads((tmp_path / "timm" / "config.json").read_text())
    theirs = timm.create_model(values["architecture"], **values["model_args"]).eval()
    theirs.load_state_dict(load_file(tmp_path / "timm" / "model.safetensors"))
    torch.testing.assert_close(theirs(images), model(images), rtol=0, atol=1e-4)
    folder = timm.create_model(f"local-dir:{tmp_path / 'timm'}", pretrained=True).eval()
    torch.testing.assert_close(folder(images), model(images), rtol=0, atol=1e-4)
    known = timm.data.resolve_model_data_config(folder)
    assert known["input_size"] == [config.channels, config.height, config.width]
    assert list(known["mean"]) == list(known["std"]) == [0.5] * config.channels
    assert import_model(str(tmp_path / "timm"), tmp_path / "again").parity.difference <= 1e-4


def test_timms_width_of_the_inner_layer_is_ours_for_every_ratio():
    for d_model in range(1, 200):
        for d_ff in range(1, 300):
            stack = replace(SMALL, d_model=d_model, n_heads=1, d_ff=d_ff)
            ratio = config_to_timm(ViTConfig(stack=stack))["model_args"]["mlp_ratio"]
            assert int(d_model * ratio) == d_ff


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (ViTConfig(stem=(8,)), r"stem = \[8\]: their ViT has no convolutions before"),
        (ViTConfig(positions="rotary"), "positions = 'rotary': "),
        (ViTConfig(positions="sinusoidal"), "positions = 'sinusoidal': "),
        (ViTConfig(stack=replace(SMALL, norm="post")), "norm = 'post': "),
        (ViTConfig(stack=replace(SMALL, norm_eps=1e-5)), "norm_eps = 1e-05: that of timm's ViT"),
    ],
)
def test_what_timm_cannot_hold_is_not_written(config, line):
    with pytest.raises(CheckpointError, match=line):
        config_to_timm(config)


def test_only_a_vit_goes_to_timm_and_only_two_libraries_are_known(tmp_path):
    stack = replace(GPTConfig().stack, n_layers=1, d_model=8, n_heads=2)
    ours(tmp_path / "ours", GPTConfig(19, 11, stack=stack), "gpt")
    with pytest.raises(CheckpointError, match="the family gpt has no counterpart in timm; there"):
        export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    with raises(ConfigError, "invalid_option", "--to onnx"):
        export_model(tmp_path / "ours", tmp_path / "timm", to="onnx")
    assert not (tmp_path / "timm").exists()


def test_without_timm_nothing_is_compared_and_the_line_names_timm(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "timm", None)
    ours(tmp_path / "ours", CONFIGS["class"])
    words = ["export", tmp_path / "ours", "--to", "timm", "--output", tmp_path / "timm"]
    assert main([str(word) for word in words]) == 0
    assert "timm is not installed" in capfd.readouterr().err
    assert main(["import", str(tmp_path / "timm"), "--output", str(tmp_path / "again")]) == 0
    assert "timm is not installed" in capfd.readouterr().err


def test_an_import_that_computes_something_else_than_timm_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("timm")
    ours(tmp_path / "ours", CONFIGS["class"])
    export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    monkeypatch.setattr("polyhead.convert.timm_vit.NORM_EPS", 1e-2)
    with raises(CheckpointError, "parity_failed", "vit"):
        import_model(str(tmp_path / "timm"), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_name_that_means_another_model_is_refused(tmp_path):
    pytest.importorskip("timm")
    ours(tmp_path / "ours", CONFIGS["class"])
    export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    path = tmp_path / "timm" / "config.json"
    values = json.loads(path.read_text()) | {"architecture": "vit_base_patch14_dinov2"}
    path.write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="vit_base_patch14_dinov2 cannot hold these weights"):
        import_model(str(tmp_path / "timm"), tmp_path / "again")


@pytest.mark.parametrize("size", PLAIN)
def test_the_heads_of_plain_vits_are_those_of_timm(size):
    timm = pytest.importorskip("timm")
    names = timm.list_models(f"vit_{size}_patch??_224") + timm.list_models(f"deit_{size}_patch*")
    assert names
    for name in names:
        theirs = timm.create_model(name, depth=1, num_classes=5, device="meta")
        shapes = {key: tuple(tensor.shape) for key, tensor in theirs.state_dict().items()}
        found = config_from_timm({"architecture": name, "global_pool": "token"}, shapes)
        assert found.stack.n_heads == theirs.blocks[0].attn.num_heads
        assert found.stack.d_model == theirs.embed_dim


def test_heads_of_what_takes_the_mean_must_be_given():
    """timm's vit_base_patch16_gap_224 has 16 heads, its namesake with a class token 12."""
    shapes = {"patch_embed.proj.weight": (768, 3, 16, 16), "pos_embed": (1, 196, 768),
              "head.weight": (3, 768), "blocks.0.mlp.fc1.weight": (3072, 768)}  # fmt: skip
    values = {"architecture": "vit_base_patch16_gap_224", "global_pool": "avg"}
    with pytest.raises(CheckpointError, match="nothing says how many heads the 768 features of"):
        config_from_timm(values, shapes)
    found = config_from_timm(values | {"model_args": {"num_heads": 16}}, shapes)
    assert (found.pooling, found.stack.n_heads, found.grid) == ("mean", 16, (14, 14))


def test_their_image_processor_scales_pixels_as_we_do(tmp_path):
    hf = pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    for channels in (1, 3):
        ours(tmp_path / f"{channels}", ViTConfig(3, 8, 12, channels, 4, stack=SMALL))
        export_model(tmp_path / f"{channels}", tmp_path / f"hf-{channels}")
        processor = hf.AutoImageProcessor.from_pretrained(tmp_path / f"hf-{channels}")
        assert type(processor).__name__ == "ViTImageProcessor"
        pixels = torch.randint(0, 256, (channels, 8, 12), dtype=torch.uint8)
        found = processor(pixels, return_tensors="pt", input_data_format="channels_first")
        expected = pixels[None].float() / 127.5 - 1
        torch.testing.assert_close(found["pixel_values"], expected, rtol=0, atol=1e-5)
        large = torch.randint(0, 256, (channels, 30, 40), dtype=torch.uint8)
        found = processor(large, return_tensors="pt", input_data_format="channels_first")
        assert found["pixel_values"].shape == (1, channels, 8, 12)
