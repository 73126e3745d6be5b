"""Folders of others, sound and unsound, and what their tokenizers make of a text."""

import json
import struct
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import weights_of
from polyhead.convert import hf_vit as vit
from polyhead.convert import reader
from polyhead.convert.conversion import export_model, import_model
from polyhead.convert.reader import read_foreign
from polyhead.convert.timm_vit import config_from_timm
from polyhead.errors import CheckpointError, MissingError
from polyhead.models.vit import ViT, ViTConfig

hf = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def gpt(folder, vocab=29, **shape):
    sizes = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 13}
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=vocab, **(sizes | shape)))
    model.save_pretrained(folder)
    return folder


def changed(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_model_in_several_files_is_the_same_model(tmp_path):
    one = gpt(tmp_path / "one")
    hf.GPT2LMHeadModel.from_pretrained(one).save_pretrained(tmp_path / "many", max_shard_size="5KB")
    assert len(list((tmp_path / "many").glob("*.safetensors"))) > 1
    first, second = (read_foreign(tmp_path / name).tensors() for name in ("one", "many"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert import_model(str(tmp_path / "many"), tmp_path / "ours").parity.equal


def test_an_index_that_leads_elsewhere_or_to_pickles_is_refused(tmp_path):
    folder = gpt(tmp_path / "one")
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    for name in ("../outside.safetensors", "weights.bin", 5):
        index.write_text(json.dumps({"weight_map": {"wte": name}}))
        with pytest.raises(CheckpointError, match="names the file"):
            read_foreign(folder)
    index.write_text(json.dumps({"weight_map": {"wte": "absent.safetensors"}}))
    with pytest.raises(CheckpointError, match="the folder was not copied as a whole"):
        read_foreign(folder)


def test_pickles_are_never_read(tmp_path):
    folder = gpt(tmp_path / "one")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"only pytorch_model.bin: pickled weights can run"):
        read_foreign(folder)
    with pytest.raises(CheckpointError, match="pickled weights can run code and are never read"):
        read_foreign(folder / "pytorch_model.bin")
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(CheckpointError, match=r"has no model.safetensors; give a folder with"):
        read_foreign(folder)


def test_what_is_broken_is_named(tmp_path):
    folder = gpt(tmp_path / "one")
    weights_file, config = folder / "model.safetensors", folder / "config.json"
    whole = weights_file.read_bytes()
    for content in (b"", whole[:100], struct.pack("<Q", 2**40) + whole[8:], b"x" * 1000):
        weights_file.write_bytes(content)
        with pytest.raises(CheckpointError, match="safetensors file"):
            read_foreign(folder)
    config.write_text("[1, 2")
    with pytest.raises(CheckpointError, match=r"config.json cannot be read as JSON"):
        read_foreign(folder)
    config.unlink()
    with pytest.raises(CheckpointError, match=r"config.json is missing; give a folder with"):
        read_foreign(folder)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"model_type": "llama"}, "model_type = 'llama' is not supported; there are gpt2, bert"),
        ({"architectures": ["GPT2ForTokenClassification"]}, "is not supported; of gpt2 there are"),
        ({"n_layer": 10**9}, "1000000000 layers, more than the file holds"),
        ({"vocab_size": 10**9}, r"has the shape \(29, 12\), but the configuration requires"),
        ({"n_embd": 10**7}, "has the shape|config.json"),
        ({"n_layer": 3}, "is missing: the file does not hold a whole model"),
        ({"n_layer": 1}, "has no place in a model of this configuration"),
        ({"n_head": 5}, r"config.json: "),
        ({"n_head": "3"}, "n_head = '3': expected a whole number"),
    ],
)
def test_a_configuration_that_lies_is_found_out_before_memory_is_taken(values, complaint, tmp_path):
    folder = gpt(tmp_path / "theirs")
    changed(folder, **values)
    with pytest.raises(CheckpointError, match=complaint):
        import_model(str(folder), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_relative_positions_are_refused(tmp_path):
    folder = tmp_path / "theirs"
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3}
    hf.BertModel(hf.BertConfig(vocab_size=9, **sizes)).save_pretrained(folder)
    changed(folder, position_embedding_type="relative_key")
    with pytest.raises(CheckpointError, match="position_embedding_type = 'relative_key' is not"):
        import_model(str(folder), tmp_path / "ours")


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    folder = gpt(tmp_path / "theirs")
    state = load_file(folder / "model.safetensors")
    state["transformer.wte.weight"][3, 3] = float("nan")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"embed.tokens.weight holds numbers that are not"):
        import_model(str(folder), tmp_path / "ours")


def test_a_name_is_looked_for_in_the_cache_and_else_the_line_says_what_to_do(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    folder, asked = gpt(tmp_path / "cached"), []

    def download(name, **options):
        asked.append((name, options.get("local_files_only", False)))
        if name == "known/model":
            return str(folder)
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert reader.locate("known/model") == folder
    assert asked == [("known/model", True)]
    with pytest.raises(MissingError, match=r"a download failed \(no route to host\); fetch its"):
        reader.locate("bert-base-uncased")
    assert asked[1:] == [("bert-base-uncased", True), ("bert-base-uncased", False)]
    with pytest.raises(CheckpointError, match=r"^there is no folder ./nothing$"):
        import_model("./nothing", tmp_path / "ours")
    with pytest.raises(CheckpointError, match=r"there is no folder ../elsewhere/x"):
        reader.locate("../elsewhere/x")
    assert reader.locate(str(folder)) == folder


def as_timm(state, images, *, n_heads, patch):
    """timm's forward pass, written out from its documentation: it is not installed here."""
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


def timm(folder, **values):
    shapes = {
        "cls_token": (1, 1, 192), "pos_embed": (1, 7, 192),
        "patch_embed.proj.weight": (192, 2, 4, 4), "patch_embed.proj.bias": (192,),
        "norm.weight": (192,), "norm.bias": (192,),
        "head.weight": (5, 192), "head.bias": (5,),
    }  # fmt: skip
    for i in range(2):
        shapes |= {
            f"blocks.{i}.{name}": shape
            for name, shape in {
                "norm1.weight": (192,), "norm1.bias": (192,), "norm2.weight": (192,),
                "norm2.bias": (192,), "attn.qkv.weight": (576, 192), "attn.qkv.bias": (576,),
                "attn.proj.weight": (192, 192), "attn.proj.bias": (192,),
                "mlp.fc1.weight": (30, 192), "mlp.fc1.bias": (30,), "mlp.fc2.weight": (192, 30),
                "mlp.fc2.bias": (192,),
            }.items()
        }  # fmt: skip
    state = {name: 0.1 * torch.randn(shape) for name, shape in shapes.items()}
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    described = {"architecture": "vit_tiny_patch4_8", "num_classes": 5, "global_pool": "token",
                 "pretrained_cfg": {"input_size": [2, 8, 12]}}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(described | values))
    return state


def test_timms_vit_computes_the_same_here(tmp_path):
    state = timm(tmp_path / "timm")
    report = import_model(str(tmp_path / "timm"), tmp_path / "ours")
    assert (report.family, report.architecture, report.parity) == ("vit", "timm", None)
    assert report.obstacle in (
        "timm is not installed",
        "timm has no model called vit_tiny_patch4_8",
    )
    ours = model_folder.load_model(tmp_path / "ours")
    assert (ours.config.height, ours.config.width, ours.config.stack.n_heads) == (8, 12, 3)
    images = torch.randn(2, 2, 8, 12)
    expected = as_timm(state, images, n_heads=3, patch=4)
    torch.testing.assert_close(ours.model(images), expected, rtol=0, atol=1e-4)
    assert export_model(tmp_path / "ours", tmp_path / "hf").parity.equal


def test_timms_weights_alone_are_enough_if_one_says_what_they_are(tmp_path):
    small = replace(ViTConfig().stack, n_layers=1, d_model=192, n_heads=3, d_ff=6)
    ours = ViT(ViTConfig(3, 8, 8, 1, 4, stack=small)).eval()
    torch.nn.init.normal_(ours.to_logits.weight)
    lone = tmp_path / "weights.safetensors"
    save_file({n: t.contiguous() for n, t in vit.to_timm(weights_of(ours)).items()}, lone)
    report = import_model(str(lone), tmp_path / "ours", family="vit")
    assert report.notes == (
        "nothing says how many heads it has: 3, as timm's plain ViT of this width",
        "scale of its pixels not given: assumed from -1 to 1, as ours",
    )
    images = torch.randn(2, 1, 8, 8)
    found = model_folder.load_model(tmp_path / "ours").model(images)
    torch.testing.assert_close(found, ours(images), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"architecture": "resnet50"}, "architecture = 'resnet50' is not supported, only timm's"),
        ({"global_pool": "avg"}, "global_pool = 'avg' is not supported, only 'token'"),
        ({"architecture": "vit_base_patch16_clip_quickgelu_224"}, "computes something else"),
        ({"model_args": {"qk_norm": True}}, "model_args.qk_norm is not supported"),
        ({"model_args": {"act_layer": "mish"}}, "model_args.act_layer = 'mish' is not known"),
        ({"architecture": "vit_base_patch16_224"}, "how many heads the 192 features of 'vit_base_"),
        ({"architecture": "vit_dwarf_patch4_8"}, "how many heads the 192 features of 'vit_dwarf_"),
    ],
)
def test_timms_other_models_are_refused(values, complaint, tmp_path):
    timm(tmp_path / "timm", **values)
    with pytest.raises(CheckpointError, match=complaint):
        import_model(str(tmp_path / "timm"), tmp_path / "ours")


def test_heads_that_nothing_tells_are_requested_for():
    shapes = {"patch_embed.proj.weight": (12, 1, 4, 4), "pos_embed": (1, 5, 12),
              "head.weight": (3, 12), "blocks.0.mlp.fc1.weight": (7, 12)}  # fmt: skip
    with pytest.raises(CheckpointError, match="how many heads the 12 features of 'vit' have"):
        config_from_timm({}, shapes)
