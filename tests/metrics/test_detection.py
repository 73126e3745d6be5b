"""Figures of detectors and classifiers, against counting by hand and against scikit-learn."""

import math

import numpy as np
import pytest

from polyhead.metrics.bootstrap import accuracies, interval, macro_f1s
from polyhead.metrics.classification import report
from polyhead.metrics.detection import auc, detected


def test_precision_and_recall_by_hand():
    scores = np.array([2.0, -1.0, 0.5, 3.0, -2.0], dtype=np.float32)
    truth = np.array([True, True, False, True, False])
    found = detected(scores, truth)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    # pairs (positive, negative): 2 > 0.5, 2 > -2, -1 < 0.5, -1 > -2, 3 > 0.5, 3 > -2
    assert found.auc == pytest.approx(5 / 6)


def test_auc_is_the_share_of_pairs_in_the_right_order():
    dice = np.random.default_rng(0)
    scores = dice.integers(0, 6, 60).astype(np.float32)  # with many ties
    truth = dice.random(60) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth] for b in scores[~truth]]
    assert auc(scores, truth) == pytest.approx(np.mean(pairs))


def test_what_is_not_defined_is_not_a_number():
    found = detected(np.array([-1.0, -2.0], dtype=np.float32), np.array([False, False]))
    assert math.isnan(found.precision)
    assert math.isnan(found.recall)
    assert math.isnan(found.auc)


def test_scikit_learn_agrees():
    metrics = pytest.importorskip("sklearn.metrics")
    dice = np.random.default_rng(1)
    truth, scores = dice.random(300) < 0.2, dice.normal(size=300)
    scores = scores + truth
    found = detected(scores, truth)
    assert found.auc == pytest.approx(metrics.roc_auc_score(truth, scores))
    assert found.precision == pytest.approx(metrics.precision_score(truth, scores > 0))
    assert found.recall == pytest.approx(metrics.recall_score(truth, scores > 0))


def test_the_tables_of_all_samples_are_scored_as_one_table_is():
    dice = np.random.default_rng(2)
    right, said = dice.integers(0, 4, 80), dice.integers(0, 3, 80)  # one class is never said
    one = report(right.tolist(), said.tolist(), list("abcd"))
    table = np.array(one.confusion)[None]
    assert accuracies(table)[0] == pytest.approx(one.accuracy)
    assert macro_f1s(table)[0] == pytest.approx(one.macro_f1)


def test_an_interval_is_as_wide_as_theory_says():
    """Accuracy p of n examples has the standard error √(p(1-p)/n)."""
    right = [0, 1] * 500
    said = [0 if n % 5 == 0 else label for n, label in enumerate(right)]
    p = sum(a == b for a, b in zip(right, said, strict=True)) / 1000
    found = interval(right, said, 2, "accuracy")
    assert found.low < p < found.high
    expected = 2 * 1.96 * math.sqrt(p * (1 - p) / 1000)
    assert found.high - found.low == pytest.approx(expected, rel=0.15)
    assert interval(right, said, 2, "accuracy") == found
