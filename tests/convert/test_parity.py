"""Whole folders there and back: `import` and `export` against randomly initialised originals."""

import json
import sys
from dataclasses import replace

import pytest
import torch
from expected_errors import raises

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.convert.config_writer import export_folders
from polyhead.convert.conversion import export_model, import_model
from polyhead.convert.special_ids import SpecialIds, foreign_ids, our_ids, to_our_ids
from polyhead.decoding.batch import search
from polyhead.decoding.config import DecodeConfig
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERTConfig, bert_stack
from polyhead.models.electra import ElectraConfig
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.text_classifier import ClassifierConfig
from polyhead.models.transformer import TransformerConfig
from polyhead.models.vit import ViTConfig

hf = pytest.importorskip("transformers")
ODD = {
    "vocab_size": 23, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 20, "max_position_embeddings": 14,
}  # fmt: skip
WIDE = {
    "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 8,
    "intermediate_size": 7, "max_position_embeddings": 17, "type_vocab_size": 3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def shaken(model, scale=0.2):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(scale * torch.randn_like(parameter))
    return model.eval()


def kept(model, folder):
    model.save_pretrained(folder)
    return folder


def gpt(**shape):
    sizes = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 13}
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=29, **(sizes | shape)))


def vit(**shape):
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "image_size": [6, 9], "patch_size": 3}
    sizes |= {"num_labels": 5}
    config = hf.ViTConfig(
        num_hidden_layers=2, intermediate_size=10, num_channels=2, **(sizes | shape)
    )
    return hf.ViTForImageClassification(config)


ORIGINALS = {
    "gpt": (gpt, "gpt"),
    "gpt with an output layer of its own": (lambda: gpt(tie_word_embeddings=False), "gpt"),
    "gpt of one head": (lambda: gpt(n_head=1, n_inner=7, activation_function="relu"), "gpt"),
    "gpt without a head": (lambda: gpt().transformer, "gpt"),
    "bert": (lambda: hf.BertForMaskedLM(hf.BertConfig(**ODD)), "bert"),
    "bert that is wide": (lambda: hf.BertForMaskedLM(hf.BertConfig(**WIDE)), "bert"),
    "bert, untied": (
        lambda: hf.BertForMaskedLM(hf.BertConfig(tie_word_embeddings=False, **ODD)),
        "bert",
    ),
    "bert, pre-trained": (lambda: hf.BertForPreTraining(hf.BertConfig(**ODD)), "bert"),
    "bert, alone": (lambda: hf.BertModel(hf.BertConfig(**WIDE)), "classifier"),
    "bert, fine-tuned": (
        lambda: hf.BertForSequenceClassification(hf.BertConfig(num_labels=3, **ODD)),
        "classifier",
    ),
    "electra's generator": (
        lambda: hf.ElectraForMaskedLM(hf.ElectraConfig(embedding_size=5, **ODD)),
        "bert",
    ),
    "electra's discriminator alone": (
        lambda: hf.ElectraForPreTraining(hf.ElectraConfig(embedding_size=5, **ODD)),
        "classifier",
    ),
    "electra, fine-tuned": (
        lambda: hf.ElectraForSequenceClassification(hf.ElectraConfig(num_labels=4, **WIDE)),
        "classifier",
    ),
    "vit": (vit, "vit"),
    "vit of one head": (lambda: vit(num_attention_heads=1, image_size=6, num_labels=2), "vit"),
}


@pytest.mark.parametrize("what", ORIGINALS)
def test_a_folder_comes_in_and_goes_out_again_unchanged(what, tmp_path):
    make, family = ORIGINALS[what]
    theirs = kept(shaken(make()), tmp_path / "theirs")
    report = import_model(str(theirs), tmp_path / "ours")
    assert report.family == family
    assert report.parity is not None
    assert report.parity.difference < 1e-4
    again = export_model(tmp_path / "ours", tmp_path / "again")
    assert again.parity is not None
    assert again.parity.difference < 1e-4
    about = json.loads((tmp_path / "ours" / "config.json").read_text())["about"]
    assert about["imported"]["architecture"] == report.architecture


@pytest.mark.parametrize("what", ["bert, fine-tuned", "electra, fine-tuned", "vit"])
@pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
def test_what_does_not_choose_one_of_many_classes_is_refused(what, kind, tmp_path):
    model = ORIGINALS[what][0]()
    model.config.problem_type = kind
    theirs = kept(model, tmp_path / "theirs")
    line = f"problem_type = '{kind}' is not supported, only 'single_label_classification'"
    with pytest.raises(CheckpointError, match=line):
        import_model(str(theirs), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_classifier_that_says_it_chooses_one_class_is_read(tmp_path):
    model = ORIGINALS["bert, fine-tuned"][0]()
    model.config.problem_type = "single_label_classification"
    theirs = kept(model, tmp_path / "theirs")
    assert import_model(str(theirs), tmp_path / "ours").parity.equal


def halves(folder, *, shared, **shape):
    small = ODD | {"hidden_size": 6, "num_attention_heads": 1, "intermediate_size": 10}
    generator = shaken(hf.ElectraForMaskedLM(hf.ElectraConfig(embedding_size=4, **small)))
    whole = hf.ElectraConfig(embedding_size=4, **(ODD | shape))
    discriminator = shaken(hf.ElectraForPreTraining(whole))
    if shared:
        same = generator.electra.embeddings.state_dict()
        discriminator.electra.embeddings.load_state_dict(same)
    return kept(discriminator, folder / "disc"), kept(generator, folder / "gen")


@pytest.mark.parametrize("shared", [True, False])
def test_both_halves_of_electra_come_in_and_go_out_again(shared, tmp_path):
    disc, gen = halves(tmp_path, shared=shared)
    report = import_model(str(disc), tmp_path / "ours", generator=str(gen))
    assert (report.family, report.parity.equal) == ("electra", True)
    saved = model_folder.load_model(tmp_path / "ours")
    assert saved.config.sharing == ("embeddings" if shared else "none")
    again = export_model(tmp_path / "ours", tmp_path / "again")
    assert again.parity.equal
    for half, before, kind in (
        ("generator", gen, hf.ElectraForMaskedLM),
        ("discriminator", disc, hf.ElectraForPreTraining),
    ):
        ids = torch.randint(1, 23, (2, 8))
        found = kind.from_pretrained(tmp_path / "again" / half).eval()(ids).logits
        expected = kind.from_pretrained(before).eval()(ids).logits
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_generator_that_is_no_narrower_copy_is_refused(tmp_path):
    disc, gen = halves(tmp_path, shared=False, num_hidden_layers=1)
    with pytest.raises(CheckpointError, match="is not the discriminator made narrower"):
        import_model(str(disc), tmp_path / "ours", generator=str(gen))
    with pytest.raises(CheckpointError, match=r"expected ElectraForPreTraining and, with --gen"):
        import_model(str(gen), tmp_path / "ours", generator=str(disc))


MARIANS = [
    {"d_model": 12, "activation_function": "swish"},
    {"d_model": 8, "decoder_layers": 1, "activation_function": "relu", "encoder_layers": 3},
    {"d_model": 16, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31},
    {
        "d_model": 6, "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 27,
        "tie_word_embeddings": False, "activation_function": "swish",
    },
]  # fmt: skip


def marian(folder, shape, pad=22, start=22):
    sizes = {
        "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 10, "decoder_ffn_dim": 10,
        "max_position_embeddings": 30, "pad_token_id": pad, "decoder_start_token_id": start,
        "scale_embedding": True, "vocab_size": 23, "eos_token_id": 0, "forced_eos_token_id": None,
        "bos_token_id": None,
    }  # fmt: skip
    theirs = shaken(hf.MarianMTModel(hf.MarianConfig(**(sizes | shape))), 0.5)
    theirs.final_logits_bias = torch.randn_like(theirs.final_logits_bias)
    return theirs, kept(theirs, folder)


def outputs_of_theirs(theirs, source, beam, limit):
    config = theirs.config
    options = hf.GenerationConfig(
        max_new_tokens=limit, num_beams=beam, do_sample=False, early_stopping=False,
        length_penalty=0.0 if beam > 1 else 1.0, suppress_tokens=[config.pad_token_id],
        pad_token_id=config.pad_token_id, eos_token_id=0,
        decoder_start_token_id=config.decoder_start_token_id,
    )  # fmt: skip
    real = (source != config.pad_token_id).long()
    found = theirs.generate(source, attention_mask=real, generation_config=options)[:, 1:]
    return [until(row, 0, config.pad_token_id) for row in found.tolist()]


def until(ids, *ends):
    return ids[: min([ids.index(end) for end in ends if end in ids], default=len(ids))]


@pytest.mark.parametrize("shape", MARIANS)
def test_marian_translates_as_before_with_and_without_a_beam(shape, tmp_path):
    theirs, folder = marian(tmp_path / "theirs", shape)
    report = import_model(str(folder), tmp_path / "ours")
    assert report.parity.difference < 1e-4
    saved = model_folder.load_model(tmp_path / "ours")
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


@pytest.mark.parametrize("shape", MARIANS)
def test_marian_goes_out_again_with_its_own_numbers(shape, tmp_path):
    theirs, folder = marian(tmp_path / "theirs", shape)
    import_model(str(folder), tmp_path / "ours")
    report = export_model(tmp_path / "ours", tmp_path / "again")
    assert report.parity.equal
    back = hf.MarianMTModel.from_pretrained(tmp_path / "again").eval()
    source, target = torch.randint(0, 22, (2, 9)), torch.randint(0, 22, (2, 5))
    found, expected = (m(source, decoder_input_ids=target).logits for m in (back, theirs))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    assert back.config.decoder_start_token_id == 22


def test_a_marian_that_does_not_begin_with_padding_needs_no_copy(tmp_path):
    _, folder = marian(tmp_path / "theirs", MARIANS[0], pad=22, start=7)
    assert import_model(str(folder), tmp_path / "ours").parity.equal
    assert model_folder.load_model(tmp_path / "ours").config.target_vocab == 23


def ours(folder, family, config):
    """One of our models, never trained, as training would write it."""
    saved = SavedModel(family, config, shaken(FAMILIES[family].model(config)), None)
    with store.atomic_dir(folder) as draft:
        model_folder.write_model(draft, saved, "")
    return saved.model


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_a_translator_of_ours_is_read_by_their_library_and_says_the_same(tie, tmp_path):
    stack = StackConfig(2, 12, 3, 20, norm="post")
    config = TransformerConfig(19, 19, tie=tie, stack=stack, decoder_layers=1)
    model = ours(tmp_path / "ours", "transformer", config)
    assert export_model(tmp_path / "ours", tmp_path / "theirs").parity.equal
    theirs = hf.MarianMTModel.from_pretrained(tmp_path / "theirs").eval()
    source = torch.randint(3, 19, (3, 8))
    source[2, 4:] = 0
    options = DecodeConfig(beam=3, length_penalty=0.0, max_length=9, max_ratio=9.0)
    found = search(model, source, options).tokens[:, 0].tolist()
    real = (source != 0).long()
    said = theirs.generate(
        source, attention_mask=real, max_new_tokens=9, num_beams=3, length_penalty=0.0,
        early_stopping=False, do_sample=False,
    )[:, 1:].tolist()  # fmt: skip
    assert [until(row, 2, 0) for row in found] == [until(row, 2, 0) for row in said]


@pytest.mark.parametrize("family", ["gpt", "bert", "electra", "classifier", "vit"])
def test_a_model_of_ours_is_read_by_their_library(family, tmp_path):
    configs = {
        "gpt": GPTConfig(19, 11, stack=replace(GPTConfig().stack, n_layers=1, d_model=8,
                                               n_heads=2)),
        "bert": BERTConfig(19, 11, stack=bert_stack(1, 8, 2)),
        "electra": ElectraConfig(19, 11, d_embed=4, stack=bert_stack(2, 8, 2)),
        "classifier": ClassifierConfig(3, encoder=BERTConfig(19, 11, stack=bert_stack(1, 8, 2))),
        "vit": ViTConfig(3, 8, 8, 1, 4, stack=replace(ViTConfig().stack, n_layers=1, d_model=8,
                                                      n_heads=2)),
    }  # fmt: skip
    ours(tmp_path / "ours", family, configs[family])
    assert export_model(tmp_path / "ours", tmp_path / "theirs").parity.equal


def test_what_theirs_could_not_compute_is_not_written():
    pre = TransformerConfig(9, 9, stack=StackConfig(1, 8, 2, 8, norm="pre"))
    with raises(CheckpointError, "not_exportable", "norm = 'pre'"):
        export_folders("transformer", pre, {}, None)
    with pytest.raises(CheckpointError, match="the family ladder has no counterpart in transform"):
        export_folders("ladder", None, {}, None)
    with pytest.raises(CheckpointError, match='pooling = "mean": their classifiers read'):
        export_folders("classifier", ClassifierConfig(2, pooling="mean"), {}, None)


def test_a_conversion_with_other_outputs_is_refused(tmp_path, monkeypatch):
    theirs = kept(shaken(gpt()), tmp_path / "theirs")
    monkeypatch.setattr("polyhead.convert.gpt2.TRANSPOSED", (".c_attn.weight", ".c_fc.weight",
                        ".mlp.c_proj.weight"))  # fmt: skip
    with raises(CheckpointError, "parity_failed", "GPT2LMHeadModel"):
        import_model(str(theirs), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_nothing_is_compared_without_the_library_and_that_is_said(tmp_path, monkeypatch):
    theirs = kept(shaken(gpt()), tmp_path / "theirs")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert import_model(str(theirs), tmp_path / "ours").parity is None


def test_existing_files_are_never_replaced(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "thesis.txt").write_text("years of work")
    with raises(ConfigError, "output_exists", "--output"):
        import_model(str(tmp_path), tmp_path / "ours")


def test_numbers_of_words_move_and_come_back():
    specials = SpecialIds(pad=5, bos=2, eos=0, unk=6, mask=3)
    assert foreign_ids(8, specials).tolist() == [5, 2, 0, 6, 1, 4, 7, 3]
    assert our_ids(8, specials)[foreign_ids(8, specials)].tolist() == list(range(8))
    with pytest.raises(CheckpointError, match="are not different ids below 8"):
        foreign_ids(8, SpecialIds(pad=5, bos=0, eos=0))
    with pytest.raises(CheckpointError, match="are not different ids below 8"):
        foreign_ids(8, SpecialIds(pad=8, bos=1, eos=0))
