import math
from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.tokenizers.subword_sampling import BPEDropout, UnigramLattice

SCORES = {"a": -1.0, "b": -2.0, "ab": -1.5, "ba": -4.0, "aba": -3.0, "c": -2.5, "abc": -2.0}
N = 4_000


def all_cuts(word):
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        for rest in all_cuts(word[end:]):
            yield (word[:end], *rest)


def assert_frequencies(counts, probabilities):
    """Every count is within five standard deviations of what its probability says."""
    assert set(counts) <= set(probabilities)
    for event, probability in probabilities.items():
        spread = math.sqrt(N * probability * (1 - probability))
        assert abs(counts[event] - N * probability) <= 5 * spread + 1, event


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("word", ["abab", "abcab"])
def test_segmentations_have_their_probability(word, alpha):
    weights = {
        cut: math.exp(alpha * sum(SCORES[piece] for piece in cut))
        for cut in all_cuts(word)
        if all(piece in SCORES for piece in cut)
    }
    assert len(weights) > 3
    lattice, random = UnigramLattice(SCORES), Random(1)
    counts = Counter(tuple(lattice.cut(word, random, alpha)) for _ in range(N))
    total = sum(weights.values())
    assert_frequencies(counts, {cut: weight / total for cut, weight in weights.items()})


def test_a_character_without_a_piece_stays_alone():
    assert UnigramLattice(SCORES).cut("aQQb", Random(1), 0.5) == ["a", "Q", "Q", "b"]
    assert BPEDropout(SCORES).cut("aQQb", Random(1), 0.5) == ["a", "Q", "Q", "b"]


def test_a_piece_is_better_than_a_character_without_one():
    scores = {"Qa": -9.0, "a": -1.0}
    cuts = {tuple(UnigramLattice(scores).cut("Qa", Random(seed), 1.0)) for seed in range(50)}
    assert cuts == {("Qa",)}


@pytest.mark.parametrize("length", [10, 17, 3000])
def test_long_words_neither_overflow_nor_lose_characters(length):
    for cutter in (UnigramLattice(SCORES), BPEDropout(SCORES)):
        assert "".join(cutter.cut("ab" * length, Random(1), 0.3)) == "ab" * length


def test_merges_are_skipped_with_their_probability():
    """In "ab" there is one merge; in "aba" the better "ab" comes first, then "aba"."""
    p = 0.3
    random = Random(1)
    merges = BPEDropout({"ab": -1.0, "aba": -2.0, "ba": -3.0})
    counts = Counter(tuple(merges.cut("ab", random, p)) for _ in range(N))
    assert_frequencies(counts, {("ab",): 1 - p, ("a", "b"): p})
    counts = Counter(tuple(merges.cut("aba", random, p)) for _ in range(N))
    expected = {
        ("aba",): (1 - p) ** 2 + p * (1 - p) ** 2,  # over "ab", or over "ba" when "ab" is left out
        ("ab", "a"): (1 - p) * p,
        ("a", "ba"): p * (1 - p) * p,
        ("a", "b", "a"): p * p,
    }
    assert math.isclose(sum(expected.values()), 1)
    assert_frequencies(counts, expected)


def test_best_merge_first_and_leftmost_among_equals():
    merges = BPEDropout({"aa": -1.0, "aaa": -2.0, "ab": -0.5})
    assert merges.cut("aaa", Random(1), 0.0) == ["aaa"]
    assert BPEDropout({"aa": -1.0}).cut("aaa", Random(1), 0.0) == ["aa", "a"]
    assert merges.cut("aab", Random(1), 0.0) == ["a", "ab"]


POSSIBLE = ["".join(letters) for n in (2, 3, 4, 5) for letters in product("ab", repeat=n)]


@settings(max_examples=300)
@given(
    word=st.text("ab", max_size=14),
    scores=st.dictionaries(st.sampled_from(POSSIBLE), st.integers(-9, -1), min_size=5),
)
def test_without_dropout_it_matches_naive_merging(word, scores):
    parts = list(word)
    while True:
        pairs = [(scores.get(parts[i] + parts[i + 1]), -i) for i in range(len(parts) - 1)]
        possible = [(score, place) for score, place in pairs if score is not None]
        if not possible:
            break
        i = -max(possible)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    assert (
        BPEDropout({piece: float(s) for piece, s in scores.items()}).cut(word, Random(1), 0.0)
        == parts
    )


def test_dropout_of_one_leaves_characters():
    assert BPEDropout(SCORES).cut("abcaba", Random(1), 1.0) == list("abcaba")
