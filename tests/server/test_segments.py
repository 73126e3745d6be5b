"""Segments: split and joined without loss; bucket limits; step traces; descriptions."""

from dataclasses import replace

import pytest
from expected_errors import raises

from polyhead.data.config import DataConfig
from polyhead.data.languages import configured_languages, language_name
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import Cancelled, ConfigError
from polyhead.pipelines.describe import describe
from polyhead.pipelines.step_through import beam_tree, steps
from polyhead.pipelines.translator import Translator
from polyhead.server.segments import (
    decode_segments,
    join_segments,
    split_text,
    with_bucket_limit,
)

TEXT = "내일 회의가 있어요."


@pytest.fixture(scope="module")
def translator(tiny_run):
    return Translator.from_dir(tiny_run, device="cpu")


def decoded(translator, text, **changes):
    segments = split_text(translator, text, replace(translator.defaults, **changes))
    outputs = [decode_segments(translator, [segment])[0] for segment in segments]
    return segments, join_segments(translator, text, segments, outputs)


def test_a_line_is_one_segment_with_the_result_of_the_translator(translator):
    segments, joined = decoded(translator, TEXT, n_best=3, max_length=9)
    options = replace(translator.defaults, n_best=3, max_length=9)
    (expected,) = translator.n_best([TEXT], options=options)
    assert (len(segments), joined) == (1, expected)


def test_sources_of_one_bucket_have_one_limit_whatever_their_length():
    options = DecodeConfig(max_length=1000, max_ratio=2.0)
    limits = {n: with_bucket_limit(options, n).limit(n) for n in (1, 32, 33, 64, 65, 300)}
    assert limits == {1: 74, 32: 74, 33: 138, 64: 138, 65: 266, 300: 1000}
    for n in range(1, 200):
        assert with_bucket_limit(options, n).limit(5) >= options.limit(n)
    assert with_bucket_limit(options, 9) == with_bucket_limit(options, 32)
    assert with_bucket_limit(options, 32) != with_bucket_limit(options, 33)


@pytest.mark.parametrize("space", [" ", "  ", "\n", "\n\n", " \n\t"])
def test_sentences_are_translated_one_by_one_and_keep_their_white_space(translator, space):
    second = "세 시에 만나요."
    text = f"\n{TEXT}{space}{second}\n"
    segments, joined = decoded(translator, text, beam=1, max_length=4)
    assert [segment.part.text for segment in segments] == [TEXT, second]
    options = replace(translator.defaults, beam=1, max_length=4)
    first, last = translator.translate([TEXT, second], options=options)
    assert joined[0].text == f"\n{first}{space}{last}\n"
    assert translator.translate([text], options=options) == [f"{first}{space}{last}"]
    whole = replace(options, split_sentences=False)
    n_whole = len(split_text(translator, f"{TEXT}{space}{second}", whole))
    assert n_whole == 1 + ("\n" in space)


def test_segments_of_different_buckets_cannot_share_a_batch(translator):
    short = split_text(translator, "a", translator.defaults)
    long = split_text(translator, TEXT[:-1] * 5, translator.defaults)
    with pytest.raises(ValueError, match="too many values"):
        decode_segments(translator, [*short, *long])


def test_cancelled_segments_are_not_decoded(translator):
    segments = split_text(translator, TEXT, translator.defaults)
    with pytest.raises(Cancelled):
        decode_segments(translator, segments, lambda: True)


def test_only_a_beam_search_of_a_transformer_can_join_a_running_batch(translator):
    assert translator.torch.running_search(DecodeConfig(beam=2)) is not None
    for options in (DecodeConfig(beam=1), DecodeConfig(sample=True), DecodeConfig(coverage=0.2)):
        assert translator.torch.running_search(options) is None
    ensemble = replace(translator, others=(translator.saved,))
    assert ensemble.torch.running_search(DecodeConfig(beam=2)) is None


def test_impossible_forced_tokens_and_texts_are_refused(translator):
    size = len(translator.tokenizers.target)
    for forced, mention in (
        ([size], f"id {size}: expected 2 to {size - 1}"),
        ([1], "id 1: expected 2"),
        ([2, 5], "id 2"),
        ([5] * 2000, "2000"),
    ):
        for trace in (steps, beam_tree):
            with raises(ConfigError, "bad_token", mention):
                trace(translator, TEXT, forced=forced)
    with raises(ConfigError, "empty"):
        steps(translator, "  ")
    with raises(ConfigError, "too_long", str(translator.max_length)):
        beam_tree(translator, "가 나 다 " * 300)


def test_languages_come_from_the_configuration_or_the_file_names(translator):
    about = describe(translator)
    assert (about.use, about.source_language, about.target_language) == ("translate", "ko", "en")
    named = DataConfig(source_language="de", source=("x.ko",), target=("a.en",))
    assert configured_languages(named) == ("de", "en")
    assert configured_languages(DataConfig(source=("x.txt",), target=("a.en", "b.fr"))) == ("", "")
    assert configured_languages(DataConfig()) == ("", "")
    assert [language_name(code) for code in ("ko", "en", "zz", "source")] == [
        "Korean", "English", "zz", "source",
    ]  # fmt: skip
