"""Misaligned lines are found with their place; aligned corpora have no findings."""

import random

import numpy as np
import pytest

from polyhead.data.doctor import alignment
from polyhead.data.doctor.alignment import (
    BLOCK,
    NO_OFFSET,
    SWITCH_COST,
    AlignedSpan,
    PairFeatures,
    best_path,
    judge,
    judge_all,
)

SYLLABLES = ("ba", "de", "ki", "lo", "mu", "ne", "po", "ri", "sa", "tu", "wo", "ze")


def corpus(n, seed=0):
    """Sentences of invented words, and translations that share only length, ending and numbers."""
    rng = random.Random(seed)
    sources, targets = [], []
    for _ in range(n):
        words = ["".join(rng.choices(SYLLABLES, k=3)) for _ in range(rng.randint(2, 14))]
        if rng.random() < 0.2:
            words.append(str(rng.randint(10, 9_999)))
        end = rng.choice("..?")
        sources.append(" ".join(words) + end)
        others = [w if w.isdigit() else w.translate(CIPHER) for w in words if rng.random() < 0.9]
        rng.shuffle(others)
        targets.append(" ".join(others) + end)
    return sources, targets


def test_numbers_are_none_on_one_side_different_or_shared():
    features = PairFeatures(["a", "b 5", "c", "d 7", "e 9"], ["A", "B", "C 6", "D 8", "E 9"])
    first, (_, _, numbers, _) = features.at(0)
    assert (first, numbers.tolist()) == (0, [0, 1, 1, 2, 3])
    first, (_, _, numbers, _) = features.at(1)  # a B, b 5 C 6, c D 8, d 7 E 9
    assert (first, numbers.tolist()) == (0, [0, 2, 1, 2])


CIPHER = str.maketrans("bdklmnprstwz", "гджзклмнптфх")  # another script: no word in common


@pytest.mark.parametrize("seed", range(5))
def test_an_aligned_corpus_has_one_span(seed):
    verdict = judge(*corpus(1_500, seed))
    assert verdict.spans == [AlignedSpan(0, 1_500, 0)]
    assert (verdict.misaligned_spans, verdict.related) == ([], True)


@pytest.mark.parametrize("n_extra", [1, 2, 3])
@pytest.mark.parametrize("place", [150, 700, 1_300])
def test_inserted_lines_are_located(place, n_extra):
    sources, targets = corpus(1_500)
    extra = corpus(n_extra, seed=9)[1]
    for one, other, sign in ((sources, targets, 1), (targets, sources, -1)):
        shifted = [*other[:place], *extra, *other[place:]][:1_500]
        sides = (one, shifted) if sign > 0 else (shifted, one)
        (before, after) = judge(*sides).spans
        assert (before.offset, after.offset) == (0, sign * n_extra)
        assert abs(after.start - place) <= 10
        assert (before.start, before.stop, after.stop) == (0, after.start, 1_500)


def test_a_deletion_and_a_later_insertion_are_located():
    sources, targets = corpus(1_500)
    targets = [*targets[:400], *targets[401:1_000], "xx", *targets[1_000:]]
    spans = judge(sources, targets).spans
    assert [span.offset for span in spans] == [0, -1, 0]
    assert abs(spans[1].start - 400) <= 10
    assert abs(spans[1].stop - 1_000) <= 10


def test_a_shift_of_all_lines_is_found():
    sources, targets = corpus(800)
    assert judge(sources, ["header", *targets[:-1]]).spans == [AlignedSpan(0, 800, 1)]


def test_a_shuffled_span_matches_no_offset():
    sources, targets = corpus(1_500)
    middle = targets[500:900]
    random.Random(1).shuffle(middle)
    spans = judge(sources, [*targets[:500], *middle, *targets[900:]]).spans
    assert [span.offset for span in spans] == [0, None, 0]
    assert abs(spans[1].start - 500) <= 20
    assert abs(spans[1].stop - 900) <= 20


def test_a_shuffled_corpus_is_not_related():
    sources, targets = corpus(1_500)
    random.Random(1).shuffle(targets)
    assert not judge(sources, targets).related


def test_uninformative_corpora_count_as_aligned():
    rng = random.Random(0)
    sources = ["".join(rng.choices("bdkl", k=20)) for _ in range(500)]
    targets = ["".join(rng.choices("гджз", k=20)) for _ in range(500)]
    assert judge(sources, targets) == ([AlignedSpan(0, 500, 0)], True)
    few = corpus(99)
    random.Random(1).shuffle(few[1])
    assert judge(*few) == ([AlignedSpan(0, 99, 0)], True)


def test_a_corpus_sorted_by_length_is_aligned():
    pairs = sorted(zip(*corpus(2_000), strict=True), key=lambda pair: len(pair[0]))
    assert judge([s for s, _ in pairs], [t for _, t in pairs]).misaligned_spans == []


def test_sides_may_differ_in_length():
    sources, targets = corpus(1_000)
    del sources[300:302]
    before, after = judge(sources, targets).spans
    assert (before.offset, after.offset, after.stop) == (0, 2, 998)
    assert abs(after.start - 300) <= 10


def test_the_best_path_matches_enumeration(monkeypatch):
    monkeypatch.setattr(alignment, "BLOCK", 1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = rng.normal(scale=SWITCH_COST, size=(3, 6))
        monkeypatch.setattr(alignment, "NO_OFFSET", 1)

        def value(path, scores=scores):
            steps = sum(a != b for a, b in zip((1, *path), path, strict=False))
            return sum(scores[s, t] for t, s in enumerate(path)) - SWITCH_COST * steps

        best = max(np.ndindex(*[3] * 6), key=value)
        assert value(tuple(best_path(scores).tolist())) == pytest.approx(value(best))


def test_the_path_starts_aligned():
    scores = np.zeros((8, 3 * BLOCK))
    assert best_path(scores).tolist() == [NO_OFFSET] * 3


@pytest.mark.parametrize("window", [400, 700, 100_000])
def test_spans_are_joined_across_windows(window, monkeypatch):
    monkeypatch.setattr(alignment, "WINDOW", window)
    sources, targets = corpus(2_000)
    assert judge_all(sources, targets).spans == [AlignedSpan(0, 2_000, 0)]
    shifted = [*targets[:300], "x", *targets[300:-1]]
    before, after = judge_all(sources, shifted).spans
    assert (before.offset, after.offset, after.stop) == (0, 1, 2_000)
    assert abs(after.start - 300) <= 10
    random.Random(1).shuffle(targets)
    assert not judge_all(sources, targets).related
