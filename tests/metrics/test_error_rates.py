"""WER and PER: against the definition by recursion, a binomial table, and cases by hand."""

from functools import cache

import numpy as np
import pytest
from expected_errors import raises
from hypothesis import given
from hypothesis import strategies as st

from polyhead.errors import DataError
from polyhead.metrics.error_rates import compare_errors, error_rates, mcnemar, n_edits

words = st.lists(st.sampled_from("abc"), max_size=6)


@given(words, words)
def test_edits_are_those_of_the_recursive_definition(a, b):
    @cache
    def distance(i, j):
        if not i or not j:
            return i + j
        return min(
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]),
        )

    assert n_edits(a, b) == distance(len(a), len(b))


def test_rates_of_an_example_by_hand():
    right = ["k a n", "t o", "m u l", "p a p"]
    outputs = ["k a n", "t a o", "m u", "p a p "]  # right, one too many, one too few, right
    wer, per = error_rates(outputs, right)
    assert (wer.name, wer.value) == ("WER", 50.0)
    assert (per.name, per.value) == ("PER", pytest.approx(100 * 2 / 11))
    assert wer.low <= wer.value <= wer.high
    assert per.low <= per.value <= per.high


def test_intervals_are_those_of_one_table_of_samples():
    rng = np.random.default_rng(5)
    wrong = rng.random(500) < 0.3
    outputs = ["x" if is_wrong else "a" for is_wrong in wrong]
    wer = error_rates(outputs, ["a"] * 500)[0]
    rates = 100 * wrong[np.random.default_rng(0).integers(500, size=(1000, 500))].mean(1)
    assert (wer.low, wer.high) == pytest.approx(tuple(np.quantile(rates, [0.025, 0.975])))


def test_a_line_is_needed_for_each_reference():
    with raises(DataError, "different_lengths", "1", "2"):
        error_rates(["a"], ["a", "b"])


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [(0, 0, 1.0), (5, 5, 1.0), (0, 5, 2 / 32), (1, 9, 2 * 11 / 1024), (9, 1, 2 * 11 / 1024)],
)
def test_mcnemar_is_twice_the_tail_of_the_binomial(one, other, p):
    assert mcnemar(one, other) == pytest.approx(p)


def test_only_lines_that_one_system_has_right_count():
    right = [f"w{i}" for i in range(12)]
    baseline = ["x"] * 6 + right[6:]
    system = [*right[:5], "x", *right[6:]]  # five more right, none less
    (found,) = compare_errors(baseline, system, right)
    assert (found.baseline, found.system) == (50.0, pytest.approx(100 / 12))
    assert found.p_value == pytest.approx(2 / 32)
