"""Same weights, same outputs, in both directions, against models of transformers."""

import sys
from dataclasses import replace

import pytest
import torch
from expected_errors import raises
from foreign_models import (
    change_config,
    make_gpt,
    make_marian,
    make_vit,
    shaken,
    until,
    write_ours,
    write_theirs,
)
from safetensors import SafetensorError
from torch import nn

from polyhead.checkpoint import tensors
from polyhead.checkpoint.model_dir import load_model, weights_of
from polyhead.convert import gpt2, hf_bert, hf_electra, hf_vit, marian
from polyhead.convert.conversion import import_model
from polyhead.convert.exporter import export_folders
from polyhead.convert.model_export import export_model
from polyhead.convert.special_ids import SpecialIds, foreign_ids, our_ids, to_our_ids
from polyhead.convert.weight_names import require_fit
from polyhead.decoding.batch import search
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError, ConfigError, PolyheadError
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.electra import Electra, ElectraConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.models.vit import ViTConfig

hf = pytest.importorskip("transformers")
close = {"rtol": 0, "atol": 2e-5}
ODD = {
    "vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 14,
}  # fmt: skip
WIDE = {
    "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 8,
    "intermediate_size": 7, "max_position_embeddings": 17, "type_vocab_size": 3,
}  # fmt: skip


def bert(kind, **shape):
    return getattr(hf, kind)(hf.BertConfig(**(ODD | shape)))


def electra(kind, **shape):
    return getattr(hf, kind)(hf.ElectraConfig(**(ODD | {"embedding_size": 5} | shape)))


ORIGINALS = {
    "gpt": (make_gpt, "gpt"),
    "gpt with an output layer of its own": (lambda: make_gpt(tie_word_embeddings=False), "gpt"),
    "gpt of one head": (lambda: make_gpt(n_head=1, n_inner=7, activation_function="relu"), "gpt"),
    "gpt without a head": (lambda: make_gpt().transformer, "gpt"),
    "bert": (lambda: bert("BertForMaskedLM"), "bert"),
    "bert that is wide": (lambda: bert("BertForMaskedLM", **WIDE), "bert"),
    "bert, untied": (lambda: bert("BertForMaskedLM", tie_word_embeddings=False), "bert"),
    "bert, pre-trained": (lambda: bert("BertForPreTraining"), "bert"),
    "bert, alone": (lambda: bert("BertModel", **WIDE), "classifier"),
    "bert, fine-tuned": (lambda: bert("BertForSequenceClassification", num_labels=3), "classifier"),
    "electra's generator": (lambda: electra("ElectraForMaskedLM"), "bert"),
    "electra's discriminator alone": (lambda: electra("ElectraForPreTraining"), "classifier"),
    "electra, alone": (lambda: electra("ElectraModel"), "classifier"),
    "electra, fine-tuned": (
        lambda: electra("ElectraForSequenceClassification", num_labels=4, **WIDE),
        "classifier",
    ),
    "bert, tags": (lambda: bert("BertForTokenClassification", num_labels=5), "tagger"),
    "bert, answers": (lambda: bert("BertForQuestionAnswering", **WIDE), "span_extractor"),
    "electra, tags": (lambda: electra("ElectraForTokenClassification"), "tagger"),
    "electra, answers": (lambda: electra("ElectraForQuestionAnswering"), "span_extractor"),
    "vit": (make_vit, "vit"),
    "vit of one head": (lambda: make_vit(num_attention_heads=1, image_size=6, num_labels=2), "vit"),
    "vit without biases": (lambda: make_vit(qkv_bias=False), "vit"),
    "vit, alone": (lambda: make_vit().vit, "vit"),
    "vit, alone, without biases": (lambda: make_vit(qkv_bias=False).vit, "vit"),
    "vit with tanh": (lambda: make_vit(image_size=[6, 9], hidden_act="gelu_new"), "vit"),
}


def both_outputs(family, ours, theirs):
    """Return our output and theirs for the same images, or for texts with padding and segments."""
    if family == "vit":
        images = torch.randn(2, 2, *(3 * n for n in ours.grid))
        if "Model" in type(theirs).__name__:
            return ours.hidden(images), theirs(images).last_hidden_state
        return ours(images), theirs(images).logits
    ids = torch.randint(1, theirs.config.vocab_size, (3, 8))
    if family == "gpt":
        output = theirs(ids)
        if "logits" in output:
            return ours(ids), output.logits
        return ours.hidden(ids), output.last_hidden_state
    ids[1, 5:], ids[2, 2:] = 0, 0
    real, segments = ids != 0, torch.randint(0, theirs.config.type_vocab_size, ids.shape)
    output = theirs(ids, real.long(), segments)
    if family == "bert":
        fills = output[0][real]
        torch.testing.assert_close(ours.fill(ids, real, segments), fills, **close)
        return ours(ids, segments)[real], fills
    if family == "tagger":
        return ours(ids, segments)[real], output.logits[real]
    if family == "span_extractor":
        both = torch.stack([output.start_logits, output.end_logits], -1)
        return ours(ids, segments)[real], both[real]
    if "ForSequence" in type(theirs).__name__:
        return ours(ids), theirs(ids, real.long()).logits
    states = ours.encoder(ids, segments)
    if "pooler_output" in output:
        torch.testing.assert_close(ours.pool(states[:, 0]), output.pooler_output, **close)
    encoder = theirs.electra if hasattr(theirs, "electra") else theirs
    return states[real], encoder(ids, real.long(), segments).last_hidden_state[real]


@pytest.mark.parametrize("original", ORIGINALS)
def test_a_directory_is_imported_and_exported_with_equal_outputs(original, tmp_path):
    make, family = ORIGINALS[original]
    theirs = make()
    write_theirs(theirs, tmp_path / "theirs")
    report = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert (report.family, report.architecture) == (family, type(theirs).__name__)
    assert report.parity.difference < 1e-4
    saved = load_model(tmp_path / "ours")
    assert saved.about["imported"]["architecture"] == report.architecture
    torch.testing.assert_close(*both_outputs(family, saved.model, theirs), **close)
    exported = export_model(tmp_path / "ours", tmp_path / "again")
    assert exported.parity.difference < 1e-4
    back = getattr(hf, exported.architecture).from_pretrained(tmp_path / "again").eval()
    torch.testing.assert_close(*both_outputs(family, saved.model, back), **close)
    import_model(str(tmp_path / "again"), tmp_path / "twice")
    assert load_model(tmp_path / "twice").config == saved.config


def test_a_files_names_are_written_and_not_the_librarys(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    write_theirs(make_vit(), tmp_path / "theirs")
    import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    export_model(tmp_path / "ours", tmp_path / "again")
    before, after = (
        safetensors.load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "again")
    )
    assert before.keys() == after.keys()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    inside = make_vit().state_dict()
    assert inside.keys() != before.keys()
    assert hf_vit.to_ours(inside, hf_vit.HF).keys() == hf_vit.to_ours(before, hf_vit.HF).keys()


@pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
def test_only_image_models_that_choose_one_class_are_read(kind, tmp_path):
    model = ORIGINALS["vit"][0]()
    model.config.problem_type = kind
    write_theirs(model, tmp_path / "theirs")
    with raises(CheckpointError, "unsupported_config_value", "problem_type", kind):
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
    change_config(tmp_path / "theirs", problem_type="single_label_classification")
    assert import_model(str(tmp_path / "theirs"), tmp_path / "ours").parity.equal


def halves(folder, *, shared, **shape):
    small = {"hidden_size": 6, "num_attention_heads": 1, "intermediate_size": 10}
    generator = shaken(electra("ElectraForMaskedLM", embedding_size=4, **small))
    discriminator = shaken(electra("ElectraForPreTraining", embedding_size=4, **shape))
    if shared:
        same = generator.electra.embeddings.state_dict()
        discriminator.electra.embeddings.load_state_dict(same)
    generator.save_pretrained(folder / "gen")
    discriminator.save_pretrained(folder / "disc")
    return discriminator, generator


@pytest.mark.parametrize("shared", [True, False])
def test_both_halves_of_electra_are_imported_and_exported(shared, tmp_path):
    originals = halves(tmp_path, shared=shared)
    disc, gen = str(tmp_path / "disc"), str(tmp_path / "gen")
    report = import_model(disc, tmp_path / "ours", generator=gen)
    assert (report.family, report.parity.equal) == ("electra", True)
    saved = load_model(tmp_path / "ours")
    assert saved.config.sharing == ("embeddings" if shared else "none")
    assert export_model(tmp_path / "ours", tmp_path / "again").parity.equal
    ids = torch.randint(1, 23, (2, 8))
    parts = {"discriminator": saved.model.suspect, "generator": saved.model.generator}
    for (part, ours), before in zip(parts.items(), originals, strict=True):
        back = type(before).from_pretrained(tmp_path / "again" / part).eval()
        torch.testing.assert_close(ours(ids), before(ids).logits, **close)
        torch.testing.assert_close(back(ids).logits, before(ids).logits, **close)


def test_a_generator_that_is_no_narrower_copy_is_refused(tmp_path):
    halves(tmp_path, shared=False, num_hidden_layers=1)
    disc, gen = str(tmp_path / "disc"), str(tmp_path / "gen")
    for first, second in ((disc, gen), (gen, disc)):
        with raises(CheckpointError, "mismatched_halves"):
            import_model(first, tmp_path / "ours", generator=second)


@pytest.mark.parametrize("sharing", ["none", "embeddings", "all"])
def test_shared_weights_of_electra_stay_shared(sharing):
    size = 1.0 if sharing == "all" else 0.5
    config = ElectraConfig(23, 9, d_embed=4, sharing=sharing, generator_size=size)
    config = replace(config, stack=bert_stack(1, 8, 1))
    weights = weights_of(shaken(Electra(config)))
    exported = hf_electra.to_hf(weights, config)
    found = hf_electra.with_sharing(replace(config, sharing="none"), exported).sharing
    assert found == ("none" if sharing == "none" else "embeddings")
    again = hf_electra.from_hf(exported, config)
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in weights.items())


MARIANS = [
    {"d_model": 12, "activation_function": "swish"},
    {"d_model": 8, "decoder_layers": 1, "activation_function": "relu", "encoder_layers": 3},
    {"d_model": 16, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31},
    {"d_model": 16, "scale_embedding": False},
    {"d_model": 12, "decoder_ffn_dim": 7},
    {"d_model": 12, "encoder_ffn_dim": 5, "decoder_ffn_dim": 20, "activation_function": "swish"},
    {
        "d_model": 6, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 27,
        "tie_word_embeddings": False, "activation_function": "swish", "scale_embedding": False,
    },
]  # fmt: skip


def outputs_of_theirs(theirs, source, beam, limit):
    config = theirs.config
    options = hf.GenerationConfig(
        max_new_tokens=limit, num_beams=beam, do_sample=False, early_stopping=False,
        length_penalty=0.0 if beam > 1 else 1.0, suppress_tokens=[config.pad_token_id],
        pad_token_id=config.pad_token_id, eos_token_id=config.eos_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
    )  # fmt: skip
    real = (source != config.pad_token_id).long()
    found = theirs.generate(source, attention_mask=real, generation_config=options)[:, 1:]
    return [until(row, config.eos_token_id, config.pad_token_id) for row in found.tolist()]


@pytest.mark.parametrize("shape", MARIANS)
def test_marian_translates_as_before_and_is_exported_with_its_own_ids(shape, tmp_path):
    theirs = make_marian(**shape)
    theirs.save_pretrained(tmp_path / "theirs")
    assert import_model(str(tmp_path / "theirs"), tmp_path / "ours").parity.difference < 1e-4
    saved = load_model(tmp_path / "ours")
    specials = SpecialIds(**saved.about["imported"]["specials"])
    assert specials == SpecialIds(pad=22, bos=22, eos=0)
    source = torch.randint(1, 22, (4, 9))
    source[:, -1] = 0
    source[2, 5:], source[3, 3:] = 22, 22
    numbers = foreign_ids(theirs.config.decoder_vocab_size, specials).tolist()
    for beam in (1, 4):
        options = DecodeConfig(beam=beam, length_penalty=0.0, max_length=12, max_ratio=9.0)
        found = search(saved.model, to_our_ids(source, 23, specials), options).tokens[:, 0].tolist()
        ours = [[numbers[id] for id in until(row, 2, 0)] for row in found]
        assert ours == outputs_of_theirs(theirs, source, beam, 12)
        assert any(ours)

    assert export_model(tmp_path / "ours", tmp_path / "again").parity.equal
    back = hf.MarianMTModel.from_pretrained(tmp_path / "again").eval()
    target = torch.randint(0, 22, (4, 5))
    found, expected = (m(source, decoder_input_ids=target).logits for m in (back, theirs))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert back.config.decoder_start_token_id == 22


def test_a_marian_that_does_not_begin_with_padding_needs_no_copy(tmp_path):
    make_marian(start=7).save_pretrained(tmp_path / "theirs")
    assert import_model(str(tmp_path / "theirs"), tmp_path / "ours").parity.equal
    assert load_model(tmp_path / "ours").config.target_vocab == 23


SMALL_PRE = replace(GPTConfig().stack, n_layers=1, d_model=8, n_heads=2)
MIXTURE = StackConfig(experts=ExpertsConfig(4))


def test_a_full_disk_during_export_leaves_nothing(tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("No space left on device")

    write_ours(tmp_path / "ours", "gpt", GPTConfig(19, 11, stack=SMALL_PRE))
    monkeypatch.setattr(tensors, "save_file", full)
    with raises(PolyheadError, "io", "No space left on device"):
        export_model(tmp_path / "ours", tmp_path / "theirs")
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize(
    ("read", "values", "code"),
    [
        (marian.config_from_hf, {"activation_function": "mish", "scale_embedding": True},
         "unsupported_config_value"),
        (marian.config_from_hf, {"decoder_ffn_dim": 8}, "unsupported_config_value"),
        (marian.config_from_hf, {"decoder_attention_heads": 1}, "unsupported_config_value"),
        (marian.config_from_hf, {"num_attention_heads": 4, "encoder_attention_heads": 8},
         "invalid_config_value"),
        (hf_electra.generator_from_hf, {"hidden_act": "relu"}, "unsupported_config_value"),
        (hf_bert.config_from_hf, {"position_embedding_type": "relative_key"},
         "unsupported_config_value"),
        (hf_bert.config_from_hf, {"hidden_size": "8"}, "invalid_config_value"),
    ],
)  # fmt: skip
def test_configurations_that_are_not_ours_are_refused(read, values, code):
    with raises(CheckpointError, code, *list(values)[:1]):
        read(values)


@pytest.mark.parametrize(
    ("family", "config", "name"),
    [
        ("gpt", GPTConfig(positions="sinusoidal"), "positions = 'sinusoidal'"),
        ("bert", BERTConfig(positions="rotary"), "positions = 'rotary'"),
        ("bert", BERTConfig(stack=replace(BERTConfig().stack, score="dot")), "score = 'dot'"),
        ("electra", ElectraConfig(stack=replace(ElectraConfig().stack, norm="pre")), "norm"),
        ("classifier", ClassifierConfig(2, encoder=BERTConfig(d_embed=8)), "d_embed = 8"),
        ("classifier", ClassifierConfig(2, pooling="mean"), "pooling"),
        ("vit", ViTConfig(stem=(8,)), "stem"),
        ("vit", ViTConfig(positions="rotary"), "positions = 'rotary'"),
        ("transformer", TransformerConfig(stack=StackConfig(norm_eps=1e-6)), "norm_eps"),
        ("transformer", TransformerConfig(stack=StackConfig(norm="pre"), tie="none"), "tie"),
        ("transformer", TransformerConfig(positions="rotary"), "positions = 'rotary'"),
        ("transformer", TransformerConfig(stack=MIXTURE), "experts = 4"),
        ("transformer", TransformerConfig(stack=StackConfig(d_k=16)), "d_k = 16"),
        ("gpt", GPTConfig(stack=replace(SMALL_PRE, d_v=3)), "d_v = 3"),
        ("ladder", None, "ladder"),
    ],
)
def test_models_that_theirs_cannot_express_are_not_exported(family, config, name):
    with raises(CheckpointError, "not_exportable", name):
        export_folders(family, config, {}, None)


def test_weights_that_do_not_fit_are_named():
    model = nn.Linear(2, 3)
    weight, bias = torch.ones(3, 2), torch.ones(3)
    with raises(CheckpointError, "missing_weight", "bias"):
        require_fit({"weight": weight}, model)
    with raises(CheckpointError, "wrong_shape", "weight", "(2, 2)"):
        require_fit({"weight": torch.ones(2, 2), "bias": bias}, model)
    with raises(CheckpointError, "unknown_weight", "more"):
        require_fit({"weight": weight, "bias": bias, "more": bias}, model)
    with raises(CheckpointError, "unknown_weight", "rotary.weight"):
        gpt2.WEIGHTS.to_ours({"transformer.rotary.weight": torch.ones(1)})


@pytest.mark.parametrize("kind", ["BertModel", "ElectraModel"])
def test_a_file_without_weights_of_the_encoder_is_refused(kind, tmp_path):
    model = (bert if kind == "BertModel" else electra)(kind, num_hidden_layers=1)
    model.config.save_pretrained(tmp_path / "theirs")
    change_config(tmp_path / "theirs", architectures=[kind])
    ignored = {"embeddings.position_ids": torch.ones(1, 4)}
    tensors.save_tensors(ignored, tmp_path / "theirs" / "model.safetensors")
    with raises(CheckpointError, "missing_weight"):
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")


def test_old_files_with_greek_names_and_without_a_prefix_are_read():
    theirs = bert("BertModel").state_dict()
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("Norm.bias", "Norm.beta"): t
        for name, t in theirs.items()
    }
    prefixed = {f"bert.{name}": tensor for name, tensor in old.items()}
    expected = hf_bert.CLASSIFIER.to_ours(theirs).keys()
    assert hf_bert.CLASSIFIER.to_ours(old).keys() == expected
    assert hf_bert.CLASSIFIER.to_ours(prefixed).keys() == expected


def test_a_conversion_with_other_outputs_is_refused(tmp_path, monkeypatch):
    write_theirs(make_gpt(), tmp_path / "theirs")
    wrong = replace(
        gpt2.WEIGHTS, transposed=(".c_attn.weight", ".c_fc.weight", "mlp.c_proj.weight")
    )
    monkeypatch.setattr("polyhead.convert.gpt2.WEIGHTS", wrong)
    with raises(CheckpointError, "parity_failed", "GPT2LMHeadModel"):
        import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_nothing_is_compared_without_the_library(tmp_path, monkeypatch):
    write_theirs(make_gpt(), tmp_path / "theirs")
    monkeypatch.setitem(sys.modules, "transformers", None)
    report = import_model(str(tmp_path / "theirs"), tmp_path / "ours")
    assert (report.parity, report.obstacle) == (None, "transformers is not installed")


def test_existing_files_are_never_replaced(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "thesis.txt").write_text("years of work")
    with raises(ConfigError, "output_exists", "--output"):
        import_model(str(tmp_path), tmp_path / "ours")


def test_ids_are_renumbered_and_restored():
    specials = SpecialIds(pad=5, bos=2, eos=0, unk=6, mask=3)
    assert foreign_ids(8, specials).tolist() == [5, 2, 0, 6, 1, 4, 7, 3]
    assert our_ids(8, specials)[foreign_ids(8, specials)].tolist() == list(range(8))
    for impossible in (SpecialIds(5, 1, 5), SpecialIds(5, 5, 5), SpecialIds(8, 1, 0)):
        with raises(CheckpointError, "invalid_special_ids"):
            foreign_ids(8, impossible)
