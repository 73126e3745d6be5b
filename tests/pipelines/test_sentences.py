"""Sentences are split as in a table of cases, and none is lost in a translation."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhead.pipelines.sentences import split_sentences

CASES = [
    line
    for line in Path(__file__).with_name("sentences.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("# ")
]


def test_the_table_has_300_cases():
    assert len(set(CASES)) >= 300


@pytest.mark.parametrize("case", CASES)
def test_boundaries_are_those_of_the_table(case):
    expected = [sentence.strip() for sentence in case.split("|")]
    assert [sentence.strip() for sentence in split_sentences(case.replace("|", ""))] == expected


@given(st.text(alphabet='aB가다. !?…"”(\n\t1', max_size=60))
def test_sentences_join_to_the_text(text):
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentence.strip() for sentence in sentences[1:])


def test_a_line_break_is_a_boundary():
    assert split_sentences("하나\n둘\n\n셋") == ["하나\n", "둘\n\n", "셋"]
