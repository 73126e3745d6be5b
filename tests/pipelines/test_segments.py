"""Portions: what is cut can be joined again, and what may share a batch does."""

from dataclasses import replace

import pytest

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.decoding.config import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.pipelines import segments as portions
from polyhead.pipelines.describe import describe, language_name, languages
from polyhead.pipelines.step_through import beam_tree, steps
from polyhead.pipelines.translator import load

TEXT = "내일 회의가 있어요."


@pytest.fixture(scope="module")
def translator(tiny_run):
    return load(tiny_run, device="cpu")


def decoded(translator, text, **changes):
    lines = portions.cut(translator, text, replace(translator.defaults, **changes))
    flat = [portion for line in lines for portion in line]
    outputs = [portions.decode(translator, [portion])[0] for portion in flat]
    return lines, portions.join(translator, lines, outputs)


def test_a_line_is_one_portion_and_gives_what_the_translator_gives(translator):
    lines, found = decoded(translator, TEXT, n_best=3, max_length=9)
    options = replace(translator.defaults, n_best=3, max_length=9)
    (expected,) = translator.n_best([TEXT], options=options)
    assert [[len(line) for line in lines], found] == [[1], expected]


def test_sources_of_one_bucket_have_one_limit_whatever_their_length():
    options = DecodeConfig(max_length=1000, max_ratio=2.0)
    limits = {n: portions.bucketed(options, n).limit(n) for n in (1, 32, 33, 64, 65, 300)}
    assert limits == {1: 74, 32: 74, 33: 138, 64: 138, 65: 266, 300: 1000}
    for n in range(1, 200):
        assert portions.bucketed(options, n).limit(5) >= options.limit(n)
    assert portions.bucketed(options, 9) == portions.bucketed(options, 32)
    assert portions.bucketed(options, 32) != portions.bucketed(options, 33)


def test_lines_are_kept_and_empty_ones_need_no_model(translator):
    lines, found = decoded(translator, f"{TEXT}\n\n{TEXT}", beam=1, max_length=4)
    assert [len(line) for line in lines] == [1, 0, 1]
    one = translator.translate([TEXT], options=replace(translator.defaults, beam=1, max_length=4))
    assert found[0].text == f"{one[0]}\n\n{one[0]}"


def test_portions_of_different_buckets_do_not_mix(translator):
    short = portions.cut(translator, "a", translator.defaults)[0]
    long = portions.cut(translator, TEXT * 5, translator.defaults)[0]
    with pytest.raises(ValueError, match="too many values"):
        portions.decode(translator, [*short, *long])


def test_what_nobody_wants_is_not_finished(translator):
    (line,) = portions.cut(translator, TEXT, translator.defaults)
    with pytest.raises(portions.Cancelled):
        portions.decode(translator, line, lambda: False)


def test_steps_and_trees_refuse_what_cannot_be_said(translator):
    size = len(translator.tokenizers.target)
    for forced, message in (
        ([size], f"id {size}: expected 2 to {size - 1}"),
        ([1], "id 1: expected 2"),
        ([2, 5], "nothing can be forced after it"),
        ([5] * 2000, "2000 tokens are forced"),
    ):
        with pytest.raises(ConfigError, match=message):
            steps(translator, TEXT, forced=forced)
        with pytest.raises(ConfigError, match=message):
            beam_tree(translator, TEXT, forced=forced)
    with pytest.raises(ConfigError, match="empty"):
        steps(translator, "  ")
    with pytest.raises(ConfigError, match="longer than the model's"):
        beam_tree(translator, "가 나 다 " * 300)


def test_languages_come_from_the_maker_or_from_the_files_names(translator):
    about = describe(translator)
    assert (about.use, about.source_language, about.target_language) == ("translate", "ko", "en")
    saved = translator.models[0]

    def of(**data):
        told = {"run": {"data": data}}
        return languages(SavedModel(saved.family, saved.config, saved.model, None, told))

    assert of(source_language="de", source=["x.ko"], target=["a.en"]) == ("de", "en")
    assert of(source=["x.txt"], target=["a.en", "b.fr"]) == (None, None)
    assert of() == (None, None)
    assert [language_name(code) for code in ("ko", "en", "zz", "source")] == [
        "Korean", "English", "zz", "source",
    ]  # fmt: skip
