"""Pegasus, GPT-NeoX, ESM and I-JEPA: same weights, same outputs, in both directions."""

import json
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from foreign_models import (
    ROTARY,
    SIZES,
    TRANSLATOR,
    make_esm,
    make_neox,
    make_pegasus,
    shaken,
    until,
    write_ours,
    write_theirs,
)
from safetensors.torch import load_file

from polyhead.checkpoint.model_dir import load_model
from polyhead.convert import esm, gpt_neox, marian
from polyhead.convert.conversion import import_model
from polyhead.convert.model_export import export_model
from polyhead.decoding.batch import search
from polyhead.decoding.generate import generate
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.gpt import GPTConfig
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.models.vit import ViTConfig

hf = pytest.importorskip("transformers")
PRE = StackConfig(2, 24, 3, 20, norm="pre", activation="gelu")
POST_BERT = BERTConfig(19, 11, stack=bert_stack(1, 8, 2))
ROTARY_BERT = BERTConfig(23, 14, segments=1, positions="rotary", stack=PRE)


def images(kind):
    sizes = {"image_size": [6, 9], "patch_size": 3, "num_channels": 2, "num_labels": 5}
    model = getattr(hf, f"{kind}ForImageClassification")
    return lambda: model(model.config_class(**SIZES | sizes))


ORIGINALS = {
    "pegasus": make_pegasus,
    "pegasus that does not scale": lambda: make_pegasus(scale_embedding=False),
    "pegasus with a narrow decoder": lambda: make_pegasus(decoder_ffn_dim=6),
    "gpt-neox": make_neox,
    "gpt-neox, tied": lambda: make_neox(tie_word_embeddings=True, hidden_act="gelu_new"),
    "gpt-neox without biases": lambda: make_neox(attention_bias=False),
    "esm": make_esm,
    "esm, untied": lambda: make_esm(tie_word_embeddings=False),
    "esm, fine-tuned": lambda: make_esm("EsmForSequenceClassification", num_labels=4),
    "i-jepa": images("IJepa"),
}
FOLDED = ("scale", "narrow", "without")  # variants that come back as another, equal model


def both_outputs(ours, theirs):
    """Return our output and theirs for the same input, with padding, of which none is compared."""
    if isinstance(theirs, hf.IJepaForImageClassification):
        images = torch.randn(2, 2, 6, 9)
        return ours(images), theirs(images).logits
    ids = torch.randint(3, 23, (3, 9))
    ids[1, 5:], ids[2, 2:] = 0, 0
    real = ids != 0
    if isinstance(theirs, hf.PegasusForConditionalGeneration):
        target = torch.randint(2, 22, (3, 6))
        given = theirs(ids, real.long(), decoder_input_ids=target).logits
        # our ids of theirs: 0 pad and start, 1 eos
        mine = ours(torch.where(ids < 2, ids, ids + 1), target + 1)
        return mine[..., 3:], given[..., 2:]
    found, expected = ours(ids), theirs(ids, real.long()).logits
    return (found, expected) if expected.dim() == 2 else (found[real], expected[real])


@pytest.mark.parametrize("original", ORIGINALS)
def test_a_foreign_model_is_read_and_written_back(original, tmp_path):
    theirs = ORIGINALS[original]()
    write_theirs(theirs, tmp_path / "theirs")
    report = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert report.architecture == type(theirs).__name__
    assert report.parity.difference < 1e-4
    saved = load_model(tmp_path / "ours")
    torch.testing.assert_close(*both_outputs(saved.model, theirs), rtol=0, atol=1e-4)
    exported = export_model(tmp_path / "ours", tmp_path / "again")
    assert exported.architecture == report.architecture
    assert exported.parity.difference < 1e-4
    back, loading = type(theirs).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    torch.testing.assert_close(*both_outputs(saved.model, back.eval()), rtol=0, atol=1e-4)
    if not any(word in original for word in FOLDED):
        before, after = theirs.state_dict(), back.state_dict()
        unused = ("contact_head", "inv_freq", "embed_positions")
        assert all(after[n].equal(t) for n, t in before.items() if not any(u in n for u in unused))
    import_model(str(tmp_path / "again"), tmp_path / "twice")
    again = load_model(tmp_path / "twice")
    assert again.config == saved.config
    for name, tensor in saved.model.state_dict().items():
        assert again.model.state_dict()[name].equal(tensor)


OURS = {
    "gpt2": ("gpt", GPTConfig(19, 11, stack=PRE)),
    "bert": ("bert", POST_BERT),
    "bert, fine-tuned": ("classifier", ClassifierConfig(3, encoder=POST_BERT)),
    "vit": ("vit", ViTConfig(3, 8, 8, 1, 4, stack=replace(PRE, norm_eps=1e-6))),
    "pegasus": ("transformer", TransformerConfig(19, 19, stack=PRE, decoder_layers=1)),
    "gpt-neox": ("gpt", GPTConfig(19, 16, positions="rotary", stack=PRE)),
    "gpt-neox, untied": ("gpt", GPTConfig(19, 16, positions="rotary", tie=False, stack=PRE)),
    "i-jepa": ("vit", ViTConfig(3, 8, 12, 1, 4, "mean", PRE)),
    "deit": ("vit", ViTConfig(3, 8, 12, 1, 4, "class", PRE, class_tokens=2)),
}


@pytest.mark.parametrize("name", OURS)
def test_a_model_of_ours_comes_back_bit_by_bit(name, tmp_path):
    family, config = OURS[name]
    before = write_ours(tmp_path / "ours", family, config).state_dict()
    assert export_model(tmp_path / "ours", tmp_path / "theirs").parity.difference < 1e-4
    import_model(str(tmp_path / "theirs"), tmp_path / "back")
    after = load_model(tmp_path / "back").model.state_dict()
    more = after.keys() - before.keys()  # a bias of the output, which Pegasus has
    assert more <= {"to_logits.bias"}
    assert not any(after[name].any() for name in more)
    assert all(after[name].equal(tensor) for name, tensor in before.items())


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("classifies", [True, False])
def test_the_row_of_the_only_segment_is_added_to_the_embeddings(tie, classifies, tmp_path):
    encoder = replace(ROTARY_BERT, tie=tie)
    config = ClassifierConfig(3, dropout=0.3, encoder=encoder) if classifies else encoder
    model = write_ours(tmp_path / "ours", "classifier" if classifies else "bert", config)
    report = export_model(tmp_path / "ours", tmp_path / "theirs")
    assert any("dropout of the head" in note for note in report.notes) == classifies
    theirs = getattr(hf, report.architecture).from_pretrained(tmp_path / "theirs").eval()
    torch.testing.assert_close(*both_outputs(model, theirs), rtol=0, atol=1e-5)
    before = load_file(tmp_path / "ours" / "model.safetensors")
    after = load_file(tmp_path / "theirs" / "model.safetensors")
    tokens, segment = before[esm.TOKENS], before[esm.SEGMENTS][0]
    assert segment.any()
    assert after["esm.embeddings.word_embeddings.weight"].equal(tokens + segment)
    if not classifies:
        assert after[esm.DECODER].equal(tokens if tie else before["to_logits.weight"])


def test_sinusoids_of_images_are_written_as_a_table(tmp_path):
    for pooling in ("mean", "class"):
        config = ViTConfig(3, 8, 12, 1, 4, pooling, PRE, positions="sinusoidal")
        write_ours(tmp_path / pooling, "vit", config)
        assert export_model(tmp_path / pooling, tmp_path / f"{pooling}-hf").parity.equal
        import_model(str(tmp_path / f"{pooling}-hf"), tmp_path / f"{pooling}-back")
        assert load_model(tmp_path / f"{pooling}-back").config == replace(
            config, positions="learned"
        )


@pytest.mark.parametrize("teacher", ["", "WithTeacher"])
def test_a_deit_is_read_with_both_its_tokens(teacher, tmp_path):
    kind = getattr(hf, f"DeiTForImageClassification{teacher}")
    sizes = {"image_size": 6, "patch_size": 3, "num_channels": 2, "num_labels": 5}
    theirs = kind(hf.DeiTConfig(**SIZES | sizes, qkv_bias=bool(teacher)))
    write_theirs(theirs, tmp_path / "theirs")
    assert import_model(str(tmp_path / "theirs"), tmp_path / "ours").parity.difference < 1e-4
    ours, pixels = load_model(tmp_path / "ours").model, torch.randn(2, 2, 6, 6)
    assert ours.class_token.shape == (2, 24)
    expected = theirs(pixels).logits
    torch.testing.assert_close(ours(pixels), expected, rtol=0, atol=1e-5)
    report = export_model(tmp_path / "ours", tmp_path / "again")
    assert report.architecture == "DeiTForImageClassificationWithTeacher"
    back = hf.AutoModelForImageClassification.from_pretrained(tmp_path / "again").eval()
    found = hf.DeiTForImageClassificationWithTeacher.from_pretrained(tmp_path / "again").eval()
    torch.testing.assert_close(found(pixels).logits, expected, rtol=0, atol=1e-5)
    assert back.config.model_type == "deit"


@pytest.mark.parametrize(
    ("norm", "tie"), [("pre", "all"), ("post", "all"), ("post", "target"), ("post", "none")]
)
@pytest.mark.parametrize("beam", [1, 4])
def test_generate_translates_as_here_without_options(norm, tie, beam, tmp_path):
    stack = replace(PRE, norm=norm)
    config = TransformerConfig(19, 19, max_length=64, tie=tie, stack=stack, decoder_layers=1)
    options = DecodeConfig(beam=beam, length_penalty=0.0, max_length=11, max_ratio=9.0)
    run = {"decode": {"beam": beam, "length_penalty": 0.0, "max_length": 11, "max_ratio": 9.0}}
    model = write_ours(tmp_path / "ours", "transformer", config, run=run)
    export_model(tmp_path / "ours", tmp_path / "theirs")
    theirs = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs").eval()
    source = torch.randint(3, 19, (6, 8))
    source[2, 4:], source[5, 1:] = 0, 0
    ours = search(model, source, options).tokens[:, 0].tolist()
    written = theirs.generate(source, attention_mask=(source != 0).long())
    assert [until(row, 2, 0) for row in ours] == [until(r[1:], 2, 0) for r in written.tolist()]
    assert written.size(1) <= 12


def test_generate_continues_a_text_as_here(tmp_path):
    config = GPTConfig(19, 24, positions="rotary", stack=PRE)
    model = shaken(write_ours(tmp_path / "ours", "gpt", config, run={"decode": {"sample": True}}))
    settings = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0, "max_length": 24}
    write_ours(tmp_path / "ours2", "gpt", config)
    for name in ("ours", "ours2"):
        export_model(tmp_path / name, tmp_path / f"{name}-hf")
    written = json.loads((tmp_path / "ours-hf" / "generation_config.json").read_text())
    assert settings.items() <= written.items()
    model = load_model(tmp_path / "ours2").model
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "ours2-hf").eval()
    prompt = [5, 9, 13]
    steps = generate(model, prompt, DecodeConfig(max_length=21), torch.Generator(), 24)
    ours = [step.chosen.id for step in steps]
    found = theirs.generate(torch.tensor([prompt]))[0, 3:].tolist()
    assert until(found, 2) == until(ours, 2)
    assert len(found) == min(21, len(until(ours, 2)) + 1)


@pytest.mark.parametrize(
    ("read", "values", "name"),
    [
        (gpt_neox.config_from_hf, {}, "use_parallel_residual"),
        (gpt_neox.config_from_hf, {"use_parallel_residual": False}, "rotary_pct"),
        (gpt_neox.config_from_hf, {"use_parallel_residual": False, "rope_parameters": {
            "partial_rotary_factor": 1.0, "rope_theta": 5000.0}}, "rotary_emb_base"),
        (gpt_neox.config_from_hf, {"use_parallel_residual": False, "rotary_pct": 1.0,
                                   "rope_scaling": {"type": "linear"}}, "rope_type"),
        (esm.config_from_hf, ROTARY | {"emb_layer_norm_before": False}, "emb_layer_norm_before"),
        (esm.config_from_hf, ROTARY | {"token_dropout": True}, "token_dropout"),
        (esm.config_from_hf, {"emb_layer_norm_before": True}, "position_embedding_type"),
        (lambda values: marian.config_from_hf(values, "pegasus"),
         TRANSLATOR | {"decoder_attention_heads": 4}, "decoder_attention_heads"),
        (lambda values: marian.config_from_hf(values, "pegasus"),
         TRANSLATOR | {"tie_word_embeddings": False}, "tie_word_embeddings"),
        (lambda values: marian.config_from_hf(values, "pegasus"),
         TRANSLATOR | {"decoder_ffn_dim": 41}, "decoder_ffn_dim"),
    ],
)  # fmt: skip
def test_variants_that_our_models_cannot_be_are_refused(read, values, name):
    with raises(CheckpointError, "unsupported_config_value", name):
        read(values)


def test_a_fused_matrix_of_another_size_is_refused():
    config = GPTConfig(19, 16, positions="rotary", stack=PRE)
    name = "gpt_neox.layers.0.attention.query_key_value.weight"
    with raises(CheckpointError, "wrong_shape", name):
        gpt_neox.from_hf({name: torch.ones(71, 24)}, config)
