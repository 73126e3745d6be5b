"""Same weights, same outputs, in both directions, against models that others wrote."""

import json
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from torch import nn
from torch.nn import functional as F

from polyhead.checkpoint.model_dir import set_weights, weights_of
from polyhead.convert import gpt2 as gpt
from polyhead.convert import hf_bert as bert
from polyhead.convert import hf_electra as electra
from polyhead.convert import hf_vit as vit
from polyhead.convert import marian
from polyhead.convert import weight_names as names
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERT, BERTConfig, BERTEncoder, Pooler, bert_stack
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.text_classifier import Classifier, ClassifierConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig

hf = pytest.importorskip("transformers")
close = {"rtol": 0, "atol": 2e-5}
ODD = {
    "vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 9,
}  # fmt: skip
WIDE = {
    "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 8,
    "intermediate_size": 7, "max_position_embeddings": 11, "type_vocab_size": 3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def shaken(model):
    """Biases of zero and norms that do nothing would hide a mix-up."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.eval()


def filled(model, found):
    names.require_fit(found, model)
    set_weights(model, found)
    return model.eval()


def described(theirs):
    """Their configuration as it would stand in a file."""
    return json.loads(theirs.config.to_json_string(use_diff=False))


def rebuilt(model_class, config_class, values, state):
    """One of their models from what we write."""
    config = config_class(**{k: v for k, v in values.items() if k != "architectures"})
    theirs = model_class(config).eval()
    found = theirs.load_state_dict(state, strict=False)
    alias = ("lm_head.weight", "decoder.weight", "decoder.bias", "embed_tokens.weight")
    alias += ("embed_positions.weight",)
    assert not found.unexpected_keys
    assert [name for name in found.missing_keys if not name.endswith(alias)] == []
    theirs.tie_weights()
    return theirs


@pytest.mark.parametrize(
    "shape",
    [
        {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 9},
        {"n_embd": 16, "n_layer": 1, "n_head": 8, "n_inner": 10, "activation_function": "relu"},
        {"n_embd": 6, "n_layer": 3, "n_head": 2, "tie_word_embeddings": False},
    ],
)
def test_gpt2(shape):
    theirs = shaken(hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=29, **shape)))
    config = gpt.config_from_hf(described(theirs))
    ours = filled(GPT(config), gpt.from_hf(theirs.state_dict(), config))
    ids = torch.randint(0, 29, (2, 7))
    torch.testing.assert_close(ours(ids), theirs(ids).logits, **close)
    values = gpt.config_to_hf(config)
    back = rebuilt(hf.GPT2LMHeadModel, hf.GPT2Config, values, gpt.to_hf(weights_of(ours)))
    torch.testing.assert_close(back(ids).logits, theirs(ids).logits, **close)
    assert gpt.config_from_hf(values) == config


def padded(vocab):
    ids = torch.randint(1, vocab, (3, 8))
    ids[1, 5:], ids[2, 2:] = 0, 0
    return ids, ids != 0


@pytest.mark.parametrize("shape", [ODD, WIDE, ODD | {"tie_word_embeddings": False}])
def test_bert_with_blanks(shape):
    theirs = shaken(hf.BertForMaskedLM(hf.BertConfig(**shape)))
    config = bert.config_from_hf(described(theirs))
    ours = filled(BERT(config), bert.from_hf(theirs.state_dict(), config))
    ids, real = padded(config.vocab)
    segments = torch.randint(0, config.segments, ids.shape)
    expected = theirs(ids, real.long(), segments).logits
    torch.testing.assert_close(ours(ids, segments)[real], expected[real], **close)
    torch.testing.assert_close(ours.fill(ids, real, segments), expected[real], **close)
    values = bert.config_to_hf(config)
    back = rebuilt(hf.BertForMaskedLM, hf.BertConfig, values, bert.to_hf(weights_of(ours)))
    torch.testing.assert_close(back(ids, real.long(), segments).logits, expected, **close)
    assert bert.config_from_hf(values) == config


@pytest.mark.parametrize("shape", [ODD, WIDE])
def test_bert_encoder_and_pooler(shape):
    theirs = shaken(hf.BertModel(hf.BertConfig(**shape)))
    config = bert.config_from_hf(described(theirs))
    encoder = filled(BERTEncoder(config), bert.encoder_from_hf(theirs.state_dict()))
    pooler = filled(Pooler(config.stack.d_model), bert.pooler_from_hf(theirs.state_dict()))
    ids, real = padded(config.vocab)
    expected = theirs(ids, real.long())
    torch.testing.assert_close(encoder(ids)[real], expected.last_hidden_state[real], **close)
    torch.testing.assert_close(pooler(encoder(ids)), expected.pooler_output, **close)


@pytest.mark.parametrize("head", ["bert", "electra"])
def test_classifiers(head):
    room = {"bert": bert, "electra": electra}[head]
    kinds = {
        "bert": (hf.BertForSequenceClassification, hf.BertConfig),
        "electra": (hf.ElectraForSequenceClassification, hf.ElectraConfig),
    }
    model_class, config_class = kinds[head]
    theirs = shaken(model_class(config_class(num_labels=5, **ODD)))
    values = described(theirs)
    encoder = bert.config_from_hf(values) if head == "bert" else electra.half_from_hf(values)
    ours = Classifier(ClassifierConfig(5, head, encoder=encoder))
    filled(ours, room.classifier_from_hf(theirs.state_dict()))
    ids, real = padded(ODD["vocab_size"])
    expected = theirs(ids, real.long()).logits
    torch.testing.assert_close(ours(ids), expected, **close)
    theirs.load_state_dict(room.classifier_to_hf(weights_of(ours)))


@pytest.mark.parametrize("width", [4, 12])
def test_electras_two_halves(width):
    small = ODD | {"hidden_size": 6, "num_attention_heads": 1, "intermediate_size": 10}
    one = hf.ElectraConfig(embedding_size=width, **small)
    other = hf.ElectraConfig(embedding_size=width, **ODD)
    generator = shaken(hf.ElectraForMaskedLM(one))
    discriminator = shaken(hf.ElectraForPreTraining(other))
    config = electra.config_from_hf(described(generator), described(discriminator), shared=False)
    both = generator.state_dict(), discriminator.state_dict()
    ours = filled(Electra(config), electra.from_hf(*both, config))
    ids, real = padded(ODD["vocab_size"])
    fills, spots = generator(ids, real.long()).logits, discriminator(ids, real.long()).logits
    torch.testing.assert_close(ours.generator(ids)[real], fills[real], **close)
    torch.testing.assert_close(ours.suspect(ids)[real], spots[real], **close)
    first, second = electra.to_hf(weights_of(ours), config)
    half, whole = electra.config_to_hf(config)
    back = rebuilt(hf.ElectraForMaskedLM, hf.ElectraConfig, half, first)
    torch.testing.assert_close(back(ids, real.long()).logits, fills, **close)
    back = rebuilt(hf.ElectraForPreTraining, hf.ElectraConfig, whole, second)
    torch.testing.assert_close(back(ids, real.long()).logits, spots, **close)


@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_what_electras_players_share_is_shared_after_a_journey(sharing):
    size = 1.0 if sharing == "all" else 0.5
    config = ElectraConfig(23, 9, d_embed=4, sharing=sharing, generator_size=size)
    config = replace(config, stack=bert_stack(1, 8, 1))
    ours = shaken(Electra(config))
    halves = electra.to_hf(weights_of(ours), config)
    assert electra.embeddings_are_shared(*halves) == (sharing != "none")
    again = electra.from_hf(*halves, config)
    assert again.keys() == weights_of(ours).keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in weights_of(ours).items())


@pytest.mark.parametrize(
    ("image", "patch", "shape"),
    [
        (8, 4, {"hidden_size": 12, "num_attention_heads": 3}),
        ([6, 9], 3, {"hidden_size": 8, "num_attention_heads": 2, "hidden_act": "gelu_new"}),
    ],
)
def test_vit(image, patch, shape, tmp_path):
    settings = hf.ViTConfig(
        image_size=image, patch_size=patch, num_hidden_layers=2, intermediate_size=10,
        num_labels=5, num_channels=2, **shape,
    )  # fmt: skip
    theirs = shaken(hf.ViTForImageClassification(settings))
    config = vit.config_from_hf(described(theirs))
    ours = filled(ViT(config), vit.from_hf(theirs.state_dict()))
    images = torch.randn(2, 2, config.height, config.width)
    expected = theirs(images).logits
    torch.testing.assert_close(ours(images), expected, **close)

    safetensors = pytest.importorskip("safetensors.torch")
    theirs.save_pretrained(tmp_path)  # files have other names than the library has inside
    on_disk = safetensors.load_file(tmp_path / "model.safetensors")
    assert on_disk.keys() == vit.to_hf(weights_of(ours)).keys()
    torch.testing.assert_close(vit.to_hf(weights_of(ours)), on_disk, rtol=0, atol=0)
    assert vit.config_from_hf(vit.config_to_hf(config)) == config


def test_timms_fused_projection_is_ours_side_by_side():
    """timm is not installed here: its attention is written out, as its documentation has it."""
    ours = shaken(ViT(ViTConfig(3, 8, 8, 1, 4, stack=vit_stack())))
    theirs = vit.to_timm(weights_of(ours))
    x = torch.randn(1, 5, 8)
    qkv = F.linear(x, theirs["blocks.0.attn.qkv.weight"], theirs["blocks.0.attn.qkv.bias"])
    q, k, v = qkv.reshape(1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 5, 8)
    projected = theirs["blocks.0.attn.proj.weight"], theirs["blocks.0.attn.proj.bias"]
    attention = ours.stack.blocks[0].self_attention
    expected = F.linear(mixed, *projected)
    torch.testing.assert_close(attention(x, attention.project(x)), expected, **close)
    assert theirs["cls_token"].shape == (1, 1, 8)
    assert theirs["pos_embed"].shape == (1, 5, 8)
    again = vit.from_timm(theirs)
    assert again.keys() == weights_of(ours).keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in weights_of(ours).items())


def vit_stack():
    return replace(ViTConfig().stack, n_layers=1, d_model=8, n_heads=2, d_ff=6)


@pytest.mark.parametrize(
    "shape",
    [
        {"d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "activation_function": "relu"},
        {"d_model": 16, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31},
        {
            "d_model": 6, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 17,
            "tie_word_embeddings": False,
        },
    ],
)  # fmt: skip
def test_marian(shape):
    sizes = {
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10,
        "max_position_embeddings": 20, "pad_token_id": 16, "decoder_start_token_id": 16,
        "scale_embedding": True, "vocab_size": 23, "eos_token_id": 0, "forced_eos_token_id": 0,
    }  # fmt: skip
    theirs = hf.MarianMTModel(hf.MarianConfig(**(sizes | shape)))
    waves = [m.weight.clone() for n, m in theirs.named_modules() if n.endswith("embed_positions")]
    shaken(theirs)
    for name, module in theirs.named_modules():
        if name.endswith("embed_positions"):
            module.weight.data = waves[0]
    config = marian.config_from_hf(described(theirs))
    ours = filled(Transformer(config), marian.from_hf(theirs.state_dict(), config))
    source = torch.randint(0, 16, (2, 9))
    source[1, 6:] = 16
    target = torch.randint(0, 16, (2, 7))
    mask = (source != 16).long()
    expected = theirs(source, mask, decoder_input_ids=target).logits
    torch.testing.assert_close(ours(source, target), expected, **close)
    values = marian.config_to_hf(config) | {
        "decoder_start_token_id": 16, "eos_token_id": 0, "forced_eos_token_id": 0,
    }  # fmt: skip
    state = marian.to_hf(weights_of(ours), config)
    back = rebuilt(hf.MarianMTModel, hf.MarianConfig, values, state)
    again = back(source, mask, decoder_input_ids=target).logits
    torch.testing.assert_close(again, expected, **close)
    assert marian.config_from_hf(values) == config


def test_what_cannot_be_held_exactly_is_refused():
    with pytest.raises(CheckpointError, match="activation_function = 'mish' is unknown"):
        marian.config_from_hf({"activation_function": "mish", "scale_embedding": True})
    with pytest.raises(CheckpointError, match="scale_embedding = False is not supported"):
        marian.config_from_hf({})
    with pytest.raises(CheckpointError, match="position_embedding_type = 'relative_key' is not"):
        bert.config_from_hf({"position_embedding_type": "relative_key"})
    with pytest.raises(CheckpointError, match="qkv_bias = False is not supported, only True"):
        vit.config_from_hf({"qkv_bias": False})
    with pytest.raises(CheckpointError, match="hidden_size = '8': expected a whole number"):
        bert.config_from_hf({"hidden_size": "8"})
    with pytest.raises(CheckpointError, match=r"rotary.weight: this kind of model has no such"):
        gpt.from_hf({"transformer.rotary.weight": torch.ones(1)}, GPTConfig())


def test_what_they_cannot_hold_is_not_written():
    with raises(CheckpointError, "not_exportable", "positions = 'sinusoidal'"):
        gpt.config_to_hf(GPTConfig(positions="sinusoidal"))
    pre = replace(ElectraConfig().stack, norm="pre")
    with raises(CheckpointError, "not_exportable", "norm = 'pre'"):
        electra.config_to_hf(ElectraConfig(stack=pre))
    with raises(CheckpointError, "not_exportable", "score = 'dot'"):
        bert.config_to_hf(BERTConfig(stack=replace(BERTConfig().stack, score="dot")))
    with pytest.raises(CheckpointError, match="embedding is as wide as its stack, this one's 8"):
        bert.config_to_hf(BERTConfig(d_embed=8))
    with pytest.raises(CheckpointError, match='pooling = "mean": their ViT reads its result from'):
        vit.config_to_hf(ViTConfig(pooling="mean"))
    with pytest.raises(CheckpointError, match=r"stem = \[8\]: their ViT has no convolutions bef"):
        vit.config_to_hf(ViTConfig(stem=(8,)))
    with pytest.raises(CheckpointError, match="norm_eps = 1e-06: Marian's is always 1e-05"):
        marian.config_to_hf(TransformerConfig(stack=StackConfig(norm_eps=1e-6)))


def test_a_file_that_lacks_something_is_named():
    model = nn.Linear(2, 3)
    with pytest.raises(CheckpointError, match="bias is missing"):
        names.require_fit({"weight": torch.ones(3, 2)}, model)
    with pytest.raises(CheckpointError, match=r"weight has the shape \(2, 2\), but the config"):
        names.require_fit({"weight": torch.ones(2, 2), "bias": torch.ones(3)}, model)
    full = {"weight": torch.ones(3, 2), "bias": torch.ones(3), "more": torch.ones(1)}
    with pytest.raises(CheckpointError, match="more has no place"):
        names.require_fit(full, model)


def test_old_files_with_greek_names_and_without_a_prefix_are_read():
    theirs = hf.BertModel(hf.BertConfig(**ODD)).state_dict()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): t
        for name, t in theirs.items()
    }
    prefixed = {f"bert.{name}": tensor for name, tensor in old.items()}
    assert bert.encoder_from_hf(old).keys() == bert.encoder_from_hf(theirs).keys()
    assert bert.encoder_from_hf(prefixed).keys() == bert.encoder_from_hf(theirs).keys()


@pytest.mark.parametrize("family", [bert, vit], ids=["bert", "vit"])
def test_positions_that_theirs_do_not_have_are_refused(family):
    config = {bert: BERTConfig, vit: ViTConfig}[family](positions="rotary")
    with pytest.raises(CheckpointError, match=r"positions = 'rotary': .*only 'learned'"):
        family.config_to_hf(config)
