"""Scores of classifiers and detectors, by hand and against scikit-learn; bootstrap intervals."""

import math
import random

import numpy as np
import pytest
from expected_errors import raises

from polyhead.errors import DataError
from polyhead.metrics.classification import auc, detection_scores, interval, report

EXPECTED = [0, 0, 0, 0, 1, 1, 2, 2, 2, 2]
PREDICTED = [0, 0, 1, 2, 1, 1, 2, 2, 2, 0]


def test_a_small_example_by_hand():
    found = report(EXPECTED, PREDICTED, ["a", "b", "c"])
    assert found.accuracy == pytest.approx(7 / 10)
    assert found.confusion == ((2, 1, 1), (0, 2, 0), (1, 0, 3))
    a, b, c = found.classes
    assert (a.precision, a.recall, a.f1, a.count) == pytest.approx((2 / 3, 2 / 4, 4 / 7, 4))
    assert (b.precision, b.recall, b.f1, b.count) == pytest.approx((2 / 3, 1, 4 / 5, 2))
    assert (c.precision, c.recall, c.f1, c.count) == pytest.approx((3 / 4, 3 / 4, 3 / 4, 4))
    assert found.macro_f1 == pytest.approx((4 / 7 + 4 / 5 + 3 / 4) / 3)


def test_random_predictions_have_the_scores_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = random.Random(0)
    expected = [draw.randrange(6) for _ in range(200)]
    predicted = [draw.randrange(5) for _ in range(200)]  # one class is never predicted
    found = report(expected, predicted, [str(i) for i in range(6)])
    table = metrics.confusion_matrix(expected, predicted, labels=range(6))
    assert found.confusion == tuple(tuple(row) for row in table.tolist())
    reference = metrics.precision_recall_fscore_support(expected, predicted, zero_division=0)
    scores = [[c.precision for c in found.classes], [c.recall for c in found.classes],
              [c.f1 for c in found.classes], [c.count for c in found.classes]]  # fmt: skip
    for column, other in zip(scores, reference, strict=True):
        assert column == pytest.approx(other.tolist())
    assert found.macro_f1 == pytest.approx(metrics.f1_score(expected, predicted, average="macro"))


def test_different_lengths_and_no_examples_are_refused():
    with raises(DataError, "different_lengths", "2", "3"):
        report([0, 1, 1], [0, 1], ["a", "b"])
    with raises(DataError, "no_examples"):
        report([], [], ["a", "b"])


def test_the_text_has_every_class_and_the_confusion():
    text = str(report(EXPECTED, PREDICTED, ["a", "b", "c"]))
    assert text.splitlines()[0] == "accuracy 0.7000  macro F1 0.7071"
    assert [line.split() for line in text.splitlines()[2:4]] == [
        ["class", "precision", "recall", "F1", "count"], ["a", "0.6667", "0.5000", "0.5714", "4"],
    ]  # fmt: skip
    assert [line.split() for line in text.splitlines()[-4:]] == [
        ["a", "b", "c"], ["a", "2", "1", "1"], ["b", "0", "2", "0"], ["c", "1", "0", "3"],
    ]  # fmt: skip
    numbered = str(report(EXPECTED, PREDICTED, ["a class of a long name", "b", "c"]))
    assert [line.split()[-4:] for line in numbered.splitlines()[-3:]] == [
        ["#1", "2", "1", "1"], ["#2", "0", "2", "0"], ["#3", "1", "0", "3"],
    ]  # fmt: skip


def test_precision_and_recall_by_hand():
    scores = np.array([2.0, -1.0, 0.5, 3.0, -2.0], dtype=np.float32)
    truth = np.array([True, True, False, True, True])
    found = detection_scores(scores, truth)
    assert found["precision"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(2 / 4)
    # pairs (positive, negative): 2 > 0.5, -1 < 0.5, 3 > 0.5, -2 < 0.5
    assert found["auc"] == pytest.approx(2 / 4)


def test_auc_is_the_share_of_pairs_in_the_right_order():
    draw = np.random.default_rng(0)
    scores = draw.integers(0, 6, 60).astype(np.float32)  # with many ties
    truth = draw.random(60) < 0.3
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth] for b in scores[~truth]]
    assert auc(scores, truth) == pytest.approx(np.mean(pairs))


def test_undefined_scores_are_nan():
    found = detection_scores(np.array([-1.0, -2.0], dtype=np.float32), np.array([False, False]))
    assert all(map(math.isnan, found.values()))


def test_detection_scores_are_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = np.random.default_rng(1)
    truth, scores = draw.random(300) < 0.2, draw.normal(size=300)
    scores = scores + truth
    found = detection_scores(scores, truth)
    assert found["auc"] == pytest.approx(metrics.roc_auc_score(truth, scores))
    assert found["precision"] == pytest.approx(metrics.precision_score(truth, scores > 0))
    assert found["recall"] == pytest.approx(metrics.recall_score(truth, scores > 0))


def test_an_interval_has_the_theoretical_width():
    """Accuracy p of n examples has the standard error √(p(1-p)/n)."""
    labels = [0, 1] * 500
    predicted = [0 if n % 5 == 0 else label for n, label in enumerate(labels)]
    p = sum(a == b for a, b in zip(labels, predicted, strict=True)) / 1000
    found = interval(labels, predicted, 2, "accuracy")
    assert found.low < p < found.high
    expected = 2 * 1.96 * math.sqrt(p * (1 - p) / 1000)
    assert found.high - found.low == pytest.approx(expected, rel=0.08)  # 90 %: 16 % less
    assert interval(labels, predicted, 2, "accuracy") == found
