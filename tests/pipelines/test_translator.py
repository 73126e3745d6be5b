"""A translator gives one answer for every line, whatever the lines are."""

import pytest
import torch

import polyhead
from polyhead.decoding.config import DecodeConfig
from polyhead.errors import CheckpointError, ConfigError
from polyhead.pipelines.translator import load, with_options

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
    return load(tiny_run, device="cpu")


def test_every_line_has_one_translation_and_empty_lines_stay_empty(translator):
    found = translator.translate(LINES, options=DecodeConfig(beam=2, max_length=20))
    assert len(found) == len(LINES)
    assert found[1] == found[2] == ""
    assert all("\n" not in line for line in found)


def test_alone_or_in_company_a_line_is_translated_alike(translator):
    options = DecodeConfig(beam=3, max_length=12)
    lines = [LINES[0], LINES[3], LINES[0] + " " + LINES[3]]
    together = translator.n_best(lines, options=options)
    for line, best in zip(lines, together, strict=True):
        (alone,) = translator.n_best([line], options=options)
        assert [t.ids for t in alone] == [t.ids for t in best]


def test_nothing_of_a_long_line_is_lost(translator):
    long = " ".join([LINES[0]] * 60)
    parts = translator.split(long)
    assert len(parts) > 1
    assert " ".join(parts) == long
    assert all(len(translator.tokenizers.source.encode(p)) <= translator.max_length for p in parts)
    assert "".join(translator.split("가" * 3000)) == "가" * 3000  # no space to cut at


def test_n_best_are_different_and_in_order(translator):
    options = DecodeConfig(beam=4, n_best=4, max_length=10)
    (best,) = translator.n_best([LINES[0]], options=options)
    assert len({t.ids for t in best}) == 4
    assert [t.score for t in best] == sorted((t.score for t in best), reverse=True)


def test_log_p_is_what_one_pass_over_the_translation_gives(translator):
    """The search adds up step by step with a cache; here everything is read at once."""
    (best,) = translator.n_best([LINES[0]], options=DecodeConfig(beam=3, n_best=3, max_length=9))
    model, tokenizers = translator.models[0].model, translator.tokenizers
    source = torch.tensor([tokenizers.source.encode(LINES[0])])
    for one in best:
        ids = list(one.ids) + ([2] if len(one.ids) < 9 else [])
        log_p = model(source, torch.tensor([[1, *ids[:-1]]])).log_softmax(-1)[0]
        expected = log_p[range(len(ids)), ids].sum().item()
        assert one.log_p == pytest.approx(expected, abs=1e-4)


def test_a_prefix_begins_the_translation(translator):
    options = DecodeConfig(beam=2, max_length=12)
    (best,) = translator.n_best([LINES[0]], options=options, prefixes=["Minjun goes"])
    assert best[0].text.startswith("Minjun goes")


def test_samples_follow_their_seed(translator):
    options = DecodeConfig(sample=True, max_length=12)
    first = translator.translate(LINES[:1] * 3, options=options, seed=5)
    assert translator.translate(LINES[:1] * 3, options=options, seed=5) == first
    assert translator.translate(LINES[:1] * 3, options=options, seed=6) != first


def test_an_ensemble_of_one_model_twice_is_that_model(translator, tiny_run):
    options = DecodeConfig(beam=3, max_length=10)
    twice = load(tiny_run, tiny_run, device="cpu").n_best([LINES[0]], options=options)
    assert twice[0][0].ids == translator.n_best([LINES[0]], options=options)[0][0].ids


def test_an_ensemble_needs_one_vocabulary(tiny_run, tmp_path):
    from tiny import train_tiny

    stranger = train_tiny(tmp_path, overrides=("text.vocab=800",))
    with pytest.raises(CheckpointError, match="have different vocabularies; an ensemble needs one"):
        load(tiny_run, stranger)


def test_the_short_way_from_python(tiny_run):
    assert len(polyhead.load(tiny_run).translate([LINES[0]])) == 1
    with pytest.raises(ConfigError, match=r"takes a list of lines; write translate\(\[text\]\)"):
        polyhead.load(tiny_run).translate("not a list")
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        polyhead.lod  # noqa: B018


def test_a_beam_grows_to_hold_the_n_best():
    assert with_options(DecodeConfig(beam=2), {"n_best": 5, "beam": None}).beam == 5
    with pytest.raises(ConfigError, match="a beam of 2 finds only 2"):
        with_options(DecodeConfig(), {"n_best": 5, "beam": 2})


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_what_is_no_model_is_refused(name, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match=r"there is no model|is a file; a model is"):
        load(tmp_path / name)
