"""Translator: one translation for every line, ensembles, prefixes, sampling."""

import pytest
import torch
from expected_errors import raises
from saved_models import build_model

import polyhead
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError, ConfigError
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.pipelines.translator import Translator

LINES = [
    "민준 씨는 내일 부산에 가요.",
    "",
    "   ",
    "회의는 3시에 시작해요.",
    "a" * 3000,
    "🙂",
    "<s> </s>",
]


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.from_dir(tiny_run, device="cpu")


def test_every_line_has_one_translation_and_empty_lines_stay_empty(translator):
    found = translator.translate(LINES, options=DecodeConfig(beam=2, max_length=20))
    assert len(found) == len(LINES)
    assert found[1] == found[2] == ""
    assert all("\n" not in line for line in found)


def test_a_line_is_translated_alike_alone_and_in_a_batch(translator):
    options = DecodeConfig(beam=3, max_length=12)
    lines = [LINES[0], LINES[3], LINES[0] + " " + LINES[3]]
    together = translator.n_best(lines, options=options)
    for line, best in zip(lines, together, strict=True):
        (alone,) = translator.n_best([line], options=options)
        assert [t.ids for t in alone] == [t.ids for t in best]


def test_options_are_keywords_or_a_configuration(translator):
    options = DecodeConfig(beam=2, max_length=9, length_penalty=1.0)
    expected = translator.translate(LINES[:4], options=options)
    assert translator.translate(LINES[:4], options=options, beam=2) == expected
    keywords = {"beam": 2, "max_length": 9, "length_penalty": 1.0}
    rest = {"options": DecodeConfig()}
    assert translator.translate(LINES[:4], **keywords, **rest) == expected
    assert len(translator.n_best(LINES[0], n_best=7, max_length=9)) == 7  # the beam grows
    drawn = [translator.translate(LINES[0], sample=True, top_k=9, seed=n) for n in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("keywords", "code", "mention"),
    [
        ({"options": {"beam": 5}}, "bad_options", "beam=5"),
        ({"beem": 5}, "unknown_key", "did you mean beam"),
        ({"num_beams": 5}, "unknown_key", "did you mean beam"),
        ({"beam": "5"}, "invalid_value", "beam"),
        ({"beam": 2, "n_best": 3}, "invalid_value", "n_best"),
        ({"temperature": 0.5}, "no_effect", "sample=True"),
    ],
)
def test_an_unusable_option_is_named(translator, keywords, code, mention):
    for method in (translator.translate, translator.n_best):
        with raises(ConfigError, code, mention):
            method(LINES[0], **keywords)


def test_load_takes_the_class_that_is_expected(tiny_run):
    loaded = polyhead.load(tiny_run, kind=polyhead.Translator, device="cpu")
    assert type(loaded) is polyhead.Translator
    with raises(CheckpointError, "wrong_task"):
        polyhead.load(tiny_run, kind=polyhead.TextGenerator)
    with raises(ConfigError, "one_model"):
        polyhead.load(tiny_run, tiny_run, kind=polyhead.TextGenerator)


@pytest.mark.parametrize("beam", [1, 3])
def test_a_translator_with_lsh_attention_translates_a_line_alike_alone_and_in_a_batch(beam):
    stack = {"attention": ("lsh", "local"), "lsh": LSHConfig(chunk=4), "window": 3, "norm": "pre"}
    saved = build_model(LINES, {}, tie="none", n_layers=2, **stack)
    for parameter in saved.model.parameters():
        parameter.data *= 3  # so that every pair found by hashing matters
    translator = Translator.from_saved(saved, "lsh", torch.device("cpu"))
    words = ["부산에", "회의는", "민준", "내일", "가요", "3시에"]
    lines = [" ".join(words[i:] + words[:i] * (i % 3)) for i in range(6)] + words
    options = DecodeConfig(beam=beam, max_length=30, split_sentences=False)
    together = translator.translate(lines, options=options)
    assert [translator.translate([line], options=options)[0] for line in lines] == together


def test_a_long_line_is_split_without_loss(translator):
    long = " ".join([LINES[0]] * 60)
    parts = [part.text for part in translator.split_lines([long])[0]]
    assert len(parts) > 1
    assert " ".join(parts) == long
    assert all(len(translator.tokenizers.source.encode(p)) <= translator.max_length for p in parts)
    (parts,) = translator.split_lines(["가" * 3000])  # no space to cut at
    assert "".join(part.text for part in parts) == "가" * 3000


def test_n_best_are_different_and_in_order(translator):
    options = DecodeConfig(beam=4, n_best=4, max_length=10)
    (best,) = translator.n_best([LINES[0]], options=options)
    assert len({t.ids for t in best}) == 4
    assert [t.score for t in best] == sorted((t.score for t in best), reverse=True)


def test_log_p_equals_that_of_one_forward_pass(translator):
    (best,) = translator.n_best([LINES[0]], options=DecodeConfig(beam=3, n_best=3, max_length=9))
    model, tokenizers = translator.model, translator.tokenizers
    source = torch.tensor([tokenizers.source.encode(LINES[0])])
    for translation in best:
        ids = [*translation.ids, *([2] if len(translation.ids) < 9 else [])]
        log_p = model(source, torch.tensor([[1, *ids[:-1]]])).log_softmax(-1)[0]
        expected = log_p[range(len(ids)), ids].sum().item()
        assert translation.log_p == pytest.approx(expected, abs=1e-4)


def test_a_prefix_begins_the_translation(translator):
    options = DecodeConfig(beam=2, max_length=12)
    (best,) = translator.n_best([LINES[0]], options=options, prefixes=["Minjun goes"])
    assert best[0].text.startswith("Minjun goes")


def test_the_seed_determines_the_samples(translator):
    options = DecodeConfig(sample=True, max_length=12)
    first = translator.translate(LINES[:1] * 3, options=options, seed=5)
    assert translator.translate(LINES[:1] * 3, options=options, seed=5) == first
    assert translator.translate(LINES[:1] * 3, options=options, seed=6) != first


def test_an_ensemble_of_a_model_with_itself_equals_the_model(translator, tiny_run):
    options = DecodeConfig(beam=3, max_length=10)
    twice = Translator.from_dir(tiny_run, tiny_run, device="cpu").n_best(
        [LINES[0]], options=options
    )
    assert twice[0][0].ids == translator.n_best([LINES[0]], options=options)[0][0].ids


def test_an_ensemble_needs_one_vocabulary(tiny_run, tmp_path):
    from tiny import train_tiny

    other = train_tiny(tmp_path, overrides=("text.vocab=800",))
    with raises(CheckpointError, "different_vocabularies"):
        Translator.from_dir(tiny_run, other)


def test_load_and_translate(tiny_run):
    assert len(polyhead.load(tiny_run).translate([LINES[0]])) == 1


def test_a_beam_is_widened_to_n_best():
    assert DecodeConfig(beam=2).with_options({"n_best": 5, "beam": None}).beam == 5
    with raises(ConfigError, "out_of_range", "n_best = 5"):
        DecodeConfig().with_options({"n_best": 5, "beam": 2})


def test_a_line_is_tokenized_once(translator, monkeypatch):
    texts = []
    kind = type(translator.tokenizer)
    normalise = kind.normalise  # the first step of every encoding
    monkeypatch.setattr(kind, "normalise", lambda self, s: texts.append(s) or normalise(self, s))
    translator.translate([LINES[0]], options=DecodeConfig(beam=1, max_length=4))
    assert texts.count(LINES[0]) == 1
