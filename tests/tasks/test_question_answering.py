"""Search for the best span against all pairs, and the scores of SQuAD and KorQuAD."""

import math
import re
import string
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.tasks.question_answering import (
    SpanSearch,
    WindowScores,
    best_spans,
    rank_answers,
    score_answer,
)


@settings(max_examples=50)
@given(n=st.integers(1, 9), most=st.integers(1, 9), seed=st.integers(0, 999))
def test_the_best_spans_are_those_of_all_pairs(n, most, seed):
    torch.manual_seed(seed)
    starts, ends, allowed = torch.randn(n), torch.randn(n), torch.rand(n) < 0.7
    pairs = sorted(
        ((float(starts[i] + ends[j]), i, j) for i in range(n) for j in range(i, min(n, i + most))
         if allowed[i] and allowed[j]), reverse=True,
    )  # fmt: skip
    spans, total = best_spans(starts, ends, allowed, SpanSearch(most, top=4))
    assert [span[1:] for span in spans] == [pair[1:] for pair in pairs[:4]]
    if pairs:
        assert total == pytest.approx(math.log(sum(math.exp(p[0]) for p in pairs)), abs=1e-4)


def test_the_best_span_of_all_windows_wins_and_probabilities_are_shares():
    first = WindowScores([(2.0, 0, 3), (1.0, 4, 5)], math.log(math.exp(2) + math.exp(1)), 0.5, 0.0)
    second = WindowScores([(3.0, 4, 5)], 3.0, 2.5, 0.0)
    ranked = rank_answers("abc de", [first, second], SpanSearch(top=3))
    assert [(answer.text, answer.start, answer.end) for answer in ranked] == [
        ("de"[:1], 4, 5), ("abc", 0, 3)
    ]  # fmt: skip
    total = math.exp(2) + math.exp(1) + math.exp(3)
    assert ranked[0].probability == pytest.approx(math.exp(3) / total)
    # every window must deny an answer: the lowest of both scores counts
    with_none = rank_answers("abc de", [first, second], SpanSearch(top=3, no_answer=0.0))
    assert [answer.text for answer in with_none] == ["d", "abc", ""]
    assert with_none[2].probability == pytest.approx(math.exp(0.5) / (total + math.exp(0.5)))
    preferred = rank_answers("abc de", [first, second], SpanSearch(top=1, no_answer=2.6))
    assert preferred[0].text == ""


def squad(text):
    """Normalise as the official script of SQuAD 1.1."""
    lowered = "".join(ch for ch in text.lower() if ch not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", lowered).split())


def korquad(text):
    """Normalise as the official script of KorQuAD 1.0."""
    for mark in "'\"《》<>〈〉()‘’":
        text = text.replace(mark, " ")
    return " ".join("".join(ch for ch in text.lower() if ch not in set(string.punctuation)).split())


def harmonic(predicted, right):
    same = sum((Counter(predicted) & Counter(right)).values())
    if not predicted or not right:
        return float(predicted == right)
    precision, recall = same / len(predicted), same / len(right)
    return 2 * precision * recall / (precision + recall) if same else 0.0


texts = st.text(alphabet="aAt he,.'《》 서울", max_size=10)


@given(predicted=texts, rights=st.lists(texts, max_size=3))
def test_scores_are_those_of_the_official_scripts(predicted, rights):
    exact, f1, character_f1 = score_answer(predicted, rights)
    answers = rights or [""]
    assert exact == max(squad(predicted) == squad(right) for right in answers)
    words = [harmonic(squad(predicted).split(), squad(right).split()) for right in answers]
    assert f1 == pytest.approx(max(words))
    letters = [
        harmonic([*"".join(korquad(predicted).split())], [*"".join(korquad(right).split())])
        for right in answers
    ]
    assert character_f1 == pytest.approx(max(letters))


def test_the_scores_tell_korean_endings_apart():
    assert score_answer("한양에서", ["한양"]) == (0.0, 0.0, pytest.approx(4 / 6))
    assert score_answer("The Cat!", ["cat"]) == (1.0, 1.0, pytest.approx(6 / 9))
