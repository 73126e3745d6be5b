"""Vision Transformers for timm and from it, beside timm's own where that is installed."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from foreign_models import change_config, write_ours
from safetensors.torch import load_file
from torch.nn import functional as F

from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import weights_of
from polyhead.cli.main import main
from polyhead.convert.conversion import import_model
from polyhead.convert.model_export import export_model
from polyhead.convert.timm_vit import PLAIN, config_from_timm, config_to_timm
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.gpt import GPTConfig
from polyhead.models.vit import ViTConfig

SMALL = replace(ViTConfig().stack, n_layers=2, d_model=12, n_heads=3, d_ff=20)
CONFIGS = {
    "class": ViTConfig(3, 8, 12, 2, 4, stack=SMALL),
    "mean": ViTConfig(3, 8, 8, 1, 4, pooling="mean", stack=SMALL),
    "tanh": ViTConfig(3, 8, 8, 3, 4, stack=replace(SMALL, activation="gelu_tanh")),
    "a ratio that is not whole": ViTConfig(2, 8, 8, 3, 4, stack=replace(SMALL, d_ff=7)),
}
NAMES = ["boot", "hat", "shoe"]


def as_timm(state, images, *, n_heads, patch):
    """Compute timm's forward pass, written out from its documentation."""
    x = F.conv2d(images, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], patch)
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([state["cls_token"].expand(len(x), -1, -1), x], 1) + state["pos_embed"]
    d = x.size(-1)

    def norm(x, name):
        return F.layer_norm(x, (d,), state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    for i in range(sum(name.endswith("qkv.weight") for name in state)):
        at = f"blocks.{i}"
        qkv = linear(norm(x, f"{at}.norm1"), f"{at}.attn.qkv")
        q, k, v = qkv.unflatten(-1, (3, n_heads, d // n_heads)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + linear(mixed, f"{at}.attn.proj")
        inner = F.gelu(linear(norm(x, f"{at}.norm2"), f"{at}.mlp.fc1"))
        x = x + linear(inner, f"{at}.mlp.fc2")
    return linear(norm(x, "norm")[:, 0], "head")


def write_timm(folder, config, **values):
    """Write a ViT of ours as timm's, with other values in its config.json; return its weights."""
    write_ours(folder.with_name("exported"), "vit", config)
    export_model(folder.with_name("exported"), folder, to="timm")
    change_config(folder, **values)
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_vit_goes_to_timm_and_comes_back_the_same(name, tmp_path):
    config = CONFIGS[name]
    model = write_ours(tmp_path / "ours", "vit", config, classes=NAMES[: config.classes])
    report = export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    assert (report.family, report.architecture) == ("vit", "timm")
    import_model(str(tmp_path / "timm"), tmp_path / "again")
    again = model_folder.load_model(tmp_path / "again")
    assert again.config == config
    assert again.about["classes"] == NAMES[: config.classes]
    before, after = weights_of(model), weights_of(again.model)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


TINY = ViTConfig(5, 8, 12, 2, 4, stack=replace(SMALL, d_model=192, d_ff=30))


def test_timms_vit_computes_the_same_here(tmp_path):
    values = {"architecture": "vit_tiny_patch4_8", "model_args": {}}
    state = write_timm(tmp_path / "timm", TINY, **values)
    report = import_model(str(tmp_path / "timm"), tmp_path / "ours")
    assert report.parity is None
    assert report.obstacle in (
        "timm is not installed",
        "timm has no model called vit_tiny_patch4_8",
    )
    ours = model_folder.load_model(tmp_path / "ours")
    assert ours.config == TINY
    images = torch.randn(2, 2, 8, 12)
    expected = as_timm(state, images, n_heads=3, patch=4)
    torch.testing.assert_close(ours.model(images), expected, rtol=0, atol=1e-4)


def test_weights_of_timm_are_enough_if_the_family_is_given(tmp_path):
    config = replace(TINY, width=8, stack=replace(TINY.stack, n_heads=3))
    write_timm(tmp_path / "timm", config)
    lone = tmp_path / "timm" / "model.safetensors"
    report = import_model(str(lone), tmp_path / "ours", family="vit")
    assert len(report.notes) == 2  # about the number of heads, and the scale of its pixels
    assert model_folder.load_model(tmp_path / "ours").config == config


@pytest.mark.parametrize(
    ("values", "code", "mention"),
    [
        ({"architecture": "resnet50"}, "unsupported_architecture", "resnet50"),
        ({"architecture": "deit3_small_patch16_224"}, "unsupported_architecture", "LayerScale"),
        ({"architecture": "deit_tiny_distilled_patch16_224"}, "unsupported_architecture", "token"),
        ({"architecture": {"a": 1}}, "unsupported_architecture", "architecture"),
        ({"model_args": {"qkv_bias": 0}}, "invalid_config_value", "qkv_bias"),
        ({"global_pool": "avg"}, "unsupported_config_value", "global_pool"),
        ({"architecture": "vit_base_patch16_clip_quickgelu_224"}, "unsupported_architecture", ""),
        ({"model_args": {"qk_norm": True}}, "unsupported_config_value", "qk_norm"),
        ({"model_args": {"act_layer": "mish"}}, "unsupported_config_value", "mish"),
        ({"architecture": "vit_base_patch16_224"}, "unknown_heads", "192"),
        ({"architecture": "vit_dwarf_patch4_8"}, "unknown_heads", "vit_dwarf_"),
    ],
)
def test_other_models_of_timm_are_refused(values, code, mention, tmp_path):
    write_timm(tmp_path / "timm", TINY, **{"model_args": {}, "architecture": "vit_tiny", **values})
    with raises(CheckpointError, code, mention):
        import_model(str(tmp_path / "timm"), tmp_path / "ours")


@pytest.mark.parametrize("name", CONFIGS)
def test_timm_reads_an_exported_model_and_computes_the_same(name, tmp_path):
    timm = pytest.importorskip("timm")
    config = CONFIGS[name]
    model = write_ours(tmp_path / "ours", "vit", config)
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
    assert list(known["input_size"]) == [config.channels, config.height, config.width]
    assert list(known["mean"]) == list(known["std"]) == [0.5] * config.channels
    assert import_model(str(tmp_path / "timm"), tmp_path / "again").parity.difference <= 1e-4


def test_timms_width_of_the_inner_layer_is_ours_for_every_ratio():
    for d_model in range(1, 200):
        for d_ff in range(1, 300):
            stack = replace(SMALL, d_model=d_model, n_heads=1, d_ff=d_ff)
            ratio = config_to_timm(ViTConfig(stack=stack))["model_args"]["mlp_ratio"]
            assert int(d_model * ratio) == d_ff


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (ViTConfig(stem=(8,)), "stem"),
        (ViTConfig(positions="rotary"), "positions = 'rotary'"),
        (ViTConfig(positions="none"), "positions = 'none'"),
        (ViTConfig(stack=replace(SMALL, norm="post")), "norm = 'post'"),
        (ViTConfig(stack=replace(SMALL, norm_eps=1e-5)), "norm_eps"),
    ],
)
def test_models_that_timm_cannot_express_are_not_exported(config, name):
    with raises(CheckpointError, "not_exportable", name):
        config_to_timm(config)


def test_only_a_vit_goes_to_timm_and_only_two_libraries_are_known(tmp_path):
    stack = replace(GPTConfig().stack, n_layers=1, d_model=8, n_heads=2)
    write_ours(tmp_path / "ours", "gpt", GPTConfig(19, 11, stack=stack))
    with raises(CheckpointError, "not_exportable", "gpt", "timm"):
        export_model(tmp_path / "ours", tmp_path / "timm", to="timm")
    with raises(ConfigError, "invalid_option", "--to nothing"):
        export_model(tmp_path / "ours", tmp_path / "timm", to="nothing")
    assert not (tmp_path / "timm").exists()


def test_without_timm_nothing_is_compared_and_the_line_names_timm(tmp_path, monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "timm", None)
    write_ours(tmp_path / "ours", "vit", CONFIGS["class"])
    words = ["export", tmp_path / "ours", "--to", "timm", "--output", tmp_path / "timm"]
    assert main([str(word) for word in words]) == 0
    assert "timm is not installed" in capfd.readouterr().err
    assert main(["import", str(tmp_path / "timm"), "--output", str(tmp_path / "again")]) == 0
    assert "timm is not installed" in capfd.readouterr().err


def test_an_import_that_computes_something_else_than_timm_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("timm")
    write_timm(tmp_path / "timm", CONFIGS["class"])
    monkeypatch.setattr("polyhead.convert.timm_vit.NORM_EPS", 1e-2)
    with raises(CheckpointError, "parity_failed", "vit"):
        import_model(str(tmp_path / "timm"), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_name_that_means_another_model_is_refused(tmp_path):
    pytest.importorskip("timm")
    write_timm(tmp_path / "timm", CONFIGS["class"], architecture="vit_base_patch14_dinov2")
    with raises(CheckpointError, "incompatible_weights", "vit_base_patch14_dinov2"):
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
    with raises(CheckpointError, "unknown_heads", "768"):
        config_from_timm(values, shapes)
    found = config_from_timm(values | {"model_args": {"num_heads": 16}}, shapes)
    assert (found.pooling, found.stack.n_heads, found.grid) == ("mean", 16, (14, 14))


def test_their_image_processor_scales_pixels_as_we_do(tmp_path):
    hf = pytest.importorskip("transformers")
    pytest.importorskip("torchvision")
    for channels in (1, 3):
        write_ours(tmp_path / f"{channels}", "vit", ViTConfig(3, 8, 12, channels, 4, stack=SMALL))
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
