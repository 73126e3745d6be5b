"""Sentences are split as in a table of cases, and none is lost in a translation."""

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhead.pipelines.sentences import split_sentences

SECTIONS = Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").split("# --- ")[1:]
CASES = [
    (case, "de" if name == "German" else "ko" if "Korean" in name else None)
    for name, *cases in map(str.splitlines, SECTIONS)
    for case in cases
]


@pytest.mark.parametrize(("case", "language"), CASES)
def test_boundaries_are_those_of_the_table(case, language):
    sentences = split_sentences(case.replace("|", ""), language)
    assert [s.strip() for s in sentences] == [s.strip() for s in case.split("|")]


@pytest.mark.parametrize("unit", ["가다. ", "2024. 3. 5. ", "음... ", '"a. ', "1. "])
def test_a_line_of_a_million_characters_takes_seconds(unit):
    started = time.process_time()
    split_sentences(unit * (1_000_000 // len(unit)), "ko")
    assert time.process_time() - started < 20


@given(
    st.text(alphabet='aB가다. !?…"”(\n\t1', max_size=60) | st.text(max_size=40),
    st.sampled_from(["en", "ko", "ja", "de", "xx", None]),
)
def test_sentences_join_to_the_text(text, language):
    sentences = split_sentences(text, language)
    assert "".join(sentences) == text
    assert all(sentence.strip() for sentence in sentences[1:])


def test_a_line_break_is_a_boundary():
    assert split_sentences("하나\n둘\n\n셋") == ["하나\n", "둘\n\n", "셋"]
    assert split_sentences(" 하나. \n\t둘") == [" 하나. \n\t", "둘"]
