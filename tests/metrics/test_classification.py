"""Accuracy, F1 and confusion: by hand, and against scikit-learn where it is installed."""

import random

import pytest

from polyhead.errors import DataError
from polyhead.metrics.classification import report

RIGHT = [0, 0, 0, 0, 1, 1, 2, 2, 2, 2]
SAID = [0, 0, 1, 2, 1, 1, 2, 2, 2, 0]


def test_a_small_example_by_hand():
    found = report(RIGHT, SAID, ["a", "b", "c"])
    assert found.accuracy == pytest.approx(7 / 10)
    assert found.confusion == ((2, 1, 1), (0, 2, 0), (1, 0, 3))
    a, b, c = found.classes
    assert (a.precision, a.recall, a.f1, a.count) == pytest.approx((2 / 3, 2 / 4, 4 / 7, 4))
    assert (b.precision, b.recall, b.f1, b.count) == pytest.approx((2 / 3, 1, 4 / 5, 2))
    assert (c.precision, c.recall, c.f1, c.count) == pytest.approx((3 / 4, 3 / 4, 3 / 4, 4))
    assert found.macro_f1 == pytest.approx((4 / 7 + 4 / 5 + 3 / 4) / 3)


def test_random_answers_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    draw = random.Random(0)
    right = [draw.randrange(6) for _ in range(200)]
    said = [draw.randrange(5) for _ in range(200)]  # one class is never said
    found = report(right, said, [str(i) for i in range(6)])
    table = metrics.confusion_matrix(right, said, labels=range(6))
    assert found.confusion == tuple(tuple(row) for row in table.tolist())
    theirs = metrics.precision_recall_fscore_support(right, said, zero_division=0)
    ours = [[c.precision for c in found.classes], [c.recall for c in found.classes],
            [c.f1 for c in found.classes], [c.count for c in found.classes]]  # fmt: skip
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(other.tolist())
    assert found.macro_f1 == pytest.approx(metrics.f1_score(right, said, average="macro"))


def test_nothing_or_too_few_answers_are_refused():
    with pytest.raises(DataError, match="2 answers for 3 examples"):
        report([0, 1, 1], [0, 1], ["a", "b"])
    with pytest.raises(DataError, match="no example"):
        report([], [], ["a", "b"])


def test_the_text_names_every_class_and_the_confusion():
    text = str(report(RIGHT, SAID, ["a", "b", "c"]))
    assert text.splitlines()[0] == "accuracy 0.7000  macro F1 0.7071"
    assert [line.split() for line in text.splitlines()[-3:]] == [
        ["a", "1", "2", "1", "1"], ["b", "2", "0", "2", "0"], ["c", "3", "1", "0", "3"],
    ]  # fmt: skip
