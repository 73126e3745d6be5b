"""Accuracy, precision, recall, F1 and confusion of classifiers; ROC AUC of detectors; bootstrap.

    precision_c = hits_c / predicted_c
    recall_c    = hits_c / expected_c
    F1_c        = 2 hits_c / (predicted_c + expected_c)

A ratio 0 / 0 is 0. Macro F1 is the mean over the classes: a rare class weighs as much as others.

    AUC = P(score of a positive > score of a negative) + ½ P(they are equal)
        = (R - n₊(n₊ + 1) / 2) / (n₊ n₋)          R: the sum of the positives' ranks

Bootstrap intervals (Efron 1979): a score depends only on the confusion table, so a sample of n
examples is one draw from a multinomial distribution over the cells of the table.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from polyhead.metrics.bleu import SAMPLES, check_lengths

MAX_CONFUSION, MAX_HEAD = 20, 12  # classes of a confusion table that is printed, their letters


@dataclass(frozen=True)
class ClassScore:
    """Scores of one class; `count` is the number of its examples."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int


@dataclass(frozen=True)
class ClassificationReport:
    """Scores of a classifier; `confusion[i][j]` counts examples of class i predicted as j."""

    accuracy: float
    macro_f1: float
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        width = max(len("class"), *(len(c.name) for c in self.classes))
        scores = f"accuracy {self.accuracy:.4f}  macro F1 {self.macro_f1:.4f}"
        lines = [scores, "", *class_table(self.classes)]
        if len(self.classes) <= MAX_CONFUSION:
            names = heads = [c.name for c in self.classes]
            if width > MAX_HEAD:  # numbers instead of headings
                heads = [f"#{number}" for number in range(1, len(names) + 1)]
                names = [f"{n:<{width}} {head:>3}" for n, head in zip(names, heads, strict=True)]
            width = max(map(len, names))
            cell = max(5, *map(len, heads), *(len(str(n)) for row in self.confusion for n in row))
            lines += ["", "confusion: rows are the right classes, columns the predicted ones"]
            for name, row in zip(["", *names], [heads, *self.confusion], strict=True):
                cells = "".join(f" {n:>{cell}}" for n in row)
                lines.append(f"{name:<{width}}{cells}")
        return "\n".join(lines)


def class_table(classes: Sequence[ClassScore]) -> list[str]:
    """Return the scores of each class in columns, with a header."""
    width = max(len("class"), *(len(c.name) for c in classes))
    return [
        f"{'class':<{width}}  precision  recall      F1    count",
        *(
            f"{c.name:<{width}}  {c.precision:9.4f}  {c.recall:6.4f}  {c.f1:6.4f}  {c.count:7,}"
            for c in classes
        ),
    ]


def report(
    expected: Sequence[int], predicted: Sequence[int], names: Sequence[str]
) -> ClassificationReport:
    """Compare the predicted classes with the expected ones, both by number."""
    check_lengths(predicted, expected)
    table = confusion(expected, predicted, len(names))
    classes = class_scores(table.diagonal(), table.sum(1), table.sum(0), names)
    (accuracy,), (macro_f1,) = accuracies(table[None]), macro_f1s(table[None])
    rows = tuple(tuple(int(n) for n in row) for row in table)
    return ClassificationReport(float(accuracy), float(macro_f1), classes, rows)


def class_scores(
    hits: np.ndarray, expected: np.ndarray, predicted: np.ndarray, names: Sequence[str]
) -> tuple[ClassScore, ...]:
    """Return the scores of each class by three counts of each."""
    precision, recall = share(hits, predicted), share(hits, expected)
    f1 = share(2 * hits, expected + predicted)
    return tuple(
        ClassScore(name, float(precision[i]), float(recall[i]), float(f1[i]), int(expected[i]))
        for i, name in enumerate(names)
    )


def confusion(expected: Sequence[int], predicted: Sequence[int], n_classes: int) -> np.ndarray:
    """Return a table of counts: how often class i (row) was predicted as j (column)."""
    table = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(table, (np.asarray(expected), np.asarray(predicted)), 1)
    return table


def share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return the quotients; 0 / 0 is 0."""
    return np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0)


class Interval(NamedTuple):
    """The middle 95 % of the bootstrap samples."""

    low: float
    high: float


def interval(
    expected: Sequence[int],
    predicted: Sequence[int],
    n_classes: int,
    measure: Literal["accuracy", "macro_f1"],
) -> Interval:
    """Return the 95 % interval of a measure; the same predictions always give the same one."""
    table = confusion(expected, predicted, n_classes)
    shares = table.flatten() / table.sum()
    rng, score = np.random.default_rng(0), accuracies if measure == "accuracy" else macro_f1s
    draws = (rng.multinomial(int(table.sum()), shares) for _ in range(SAMPLES))
    values = [score(drawn.reshape(1, n_classes, n_classes)) for drawn in draws]
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))


def accuracies(tables: Int[np.ndarray, "sample expected predicted"]) -> Float[np.ndarray, "sample"]:
    """Return the share of the diagonal of each confusion table."""
    return tables.trace(axis1=1, axis2=2) / tables.sum((1, 2))


def macro_f1s(tables: Int[np.ndarray, "sample expected predicted"]) -> Float[np.ndarray, "sample"]:
    """Return the mean F1 over the classes that occur, in examples or predictions."""
    hits = tables.diagonal(axis1=1, axis2=2)
    both = tables.sum(1) + tables.sum(2)
    return share(2 * hits, both).sum(1) / (both > 0).sum(1)


def detection_scores(
    scores: Float[np.ndarray, "item"], truth: Bool[np.ndarray, "item"]
) -> dict[str, float]:
    """Return precision and recall of the scores above 0, and their AUC; NaN where undefined."""
    positive = scores > 0
    hits, n_positive, n_true = (int(which.sum()) for which in (positive & truth, positive, truth))
    return {
        "precision": hits / n_positive if n_positive else math.nan,
        "recall": hits / n_true if n_true else math.nan,
        "auc": auc(scores, truth),
    }


def auc(scores: Float[np.ndarray, "item"], truth: Bool[np.ndarray, "item"]) -> float:
    """Return the area under the ROC curve, by ranks; equal scores share theirs."""
    n_positive = int(truth.sum())
    n_negative = len(truth) - n_positive
    if not n_positive or not n_negative:
        return math.nan
    above = float(ranks(scores)[truth].sum()) - n_positive * (n_positive + 1) / 2
    return above / (n_positive * n_negative)


def ranks(values: Float[np.ndarray, "item"]) -> Float[np.ndarray, "item"]:
    """Return the ranks of values from 1; equal values share theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[which])
