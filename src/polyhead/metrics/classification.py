"""Accuracy, precision, recall, F1 and confusion of classifiers; ROC AUC of detectors.

    precision_c = hits_c / predicted_c
    recall_c    = hits_c / expected_c
    F1_c        = 2 hits_c / (predicted_c + expected_c)

predicted_c counts the predictions of class c, expected_c its examples, hits_c what is both. A ratio
0 / 0 is 0. Macro F1 is the mean over the classes: a rare class weighs as much as a common one.

    AUC = P(score of a positive > score of a negative) + ½ P(they are equal)
        = (R - n₊(n₊ + 1) / 2) / (n₊ n₋)          R: the sum of the positives' ranks

For rare positives, accuracy alone says little: always answering "negative" is mostly right.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from polyhead.errors import DataError


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
        return as_text(self)


def report(
    expected: Sequence[int], predicted: Sequence[int], names: Sequence[str]
) -> ClassificationReport:
    """Compare the predicted classes with the expected ones, both by number."""
    if len(expected) != len(predicted):
        raise DataError(
            f"{len(predicted)} predictions for {len(expected)} examples; expected one for each",
            "different_lengths",
        )
    if not len(expected):
        raise DataError("no examples to evaluate on", "no_examples")
    table = confusion(expected, predicted, len(names))
    hits, n_expected, n_predicted = table.diagonal(), table.sum(1), table.sum(0)
    precision, recall = _share(hits, n_predicted), _share(hits, n_expected)
    f1 = _share(2 * hits, n_expected + n_predicted)
    classes = tuple(
        ClassScore(name, float(precision[i]), float(recall[i]), float(f1[i]), int(n_expected[i]))
        for i, name in enumerate(names)
    )
    seen = (n_expected + n_predicted) > 0  # a class without examples and predictions has no score
    return ClassificationReport(
        float(hits.sum() / table.sum()),
        float(f1[seen].mean()),
        classes,
        tuple(tuple(int(n) for n in row) for row in table),
    )


def confusion(expected: Sequence[int], predicted: Sequence[int], n_classes: int) -> np.ndarray:
    """Return a table of counts: how often class i (row) was predicted as j (column)."""
    table = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(table, (np.asarray(expected), np.asarray(predicted)), 1)
    return table


def as_text(report: ClassificationReport, max_classes: int = 20) -> str:
    """Format the scores, a table of all classes, and the confusion of up to `max_classes`."""
    width = max(len("class"), *(len(c.name) for c in report.classes))
    lines = [
        f"accuracy {report.accuracy:.4f}  macro F1 {report.macro_f1:.4f}",
        "",
        f"{'class':<{width}}  precision  recall      F1    count",
        *(
            f"{c.name:<{width}}  {c.precision:9.4f}  {c.recall:6.4f}  {c.f1:6.4f}  {c.count:7,}"
            for c in report.classes
        ),
    ]
    if len(report.classes) <= max_classes:
        cell = max(5, *(len(str(n)) for row in report.confusion for n in row)) + 1
        numbers = "".join(f"{i + 1:>{cell}}" for i in range(len(report.classes)))
        lines += ["", "confusion: rows are the right classes, columns the predicted ones"]
        lines.append(f"{'':<{width + 4}}{numbers}")
        for i, (c, row) in enumerate(zip(report.classes, report.confusion, strict=True), start=1):
            cells = "".join(f"{n:>{cell}}" for n in row)
            lines.append(f"{c.name:<{width}}{i:>4}{cells}")
    return "\n".join(lines)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Return part / whole, and 0 where whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)


class DetectionScores(NamedTuple):
    """Precision, recall and ROC AUC; NaN where undefined, as precision without predictions."""

    precision: float
    recall: float
    auc: float


def detection_scores(
    scores: Float[np.ndarray, "item"], truth: Bool[np.ndarray, "item"], threshold: float = 0.0
) -> DetectionScores:
    """Return precision and recall of the scores above the threshold, and the AUC of their order."""
    predicted_positive = scores > threshold
    hits = int((predicted_positive & truth).sum())
    n_predicted, n_true = int(predicted_positive.sum()), int(truth.sum())
    nan = float("nan")
    return DetectionScores(
        hits / n_predicted if n_predicted else nan, hits / n_true if n_true else nan,
        auc(scores, truth),
    )  # fmt: skip


def auc(scores: Float[np.ndarray, "item"], truth: Bool[np.ndarray, "item"]) -> float:
    """Return the area under the ROC curve, by ranks; equal scores share theirs."""
    n_positive = int(truth.sum())
    n_negative = len(truth) - n_positive
    if not n_positive or not n_negative:
        return float("nan")
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]  # from 1
    above = float(ranks[truth].sum()) - n_positive * (n_positive + 1) / 2
    return above / (n_positive * n_negative)
