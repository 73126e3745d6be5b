"""How well something rare is detected: precision, recall, and the area under the ROC curve.

    AUC = P(score of a positive > score of a negative) + ½ P(they are equal)
        = (R - n₊(n₊ + 1) / 2) / (n₊ n₋)          R: the sum of the positives' ranks

Accuracy alone proves nothing where nine of ten are negative.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float


class Detection(NamedTuple):
    """NaN where a figure is not defined: no precision if nothing was suspected, and so on."""

    precision: float
    recall: float
    auc: float


def detected(
    scores: Float[np.ndarray, "item"], truth: Bool[np.ndarray, "item"], threshold: float = 0.0
) -> Detection:
    """Precision and recall of what lies above the threshold; the AUC of the order."""
    suspected = scores > threshold
    hits = int((suspected & truth).sum())
    return Detection(
        share(hits, int(suspected.sum())), share(hits, int(truth.sum())), auc(scores, truth)
    )


def share(part: int, whole: int) -> float:
    """A part of a whole, NaN of nothing."""
    return part / whole if whole else float("nan")


def auc(scores: Float[np.ndarray, "item"], truth: Bool[np.ndarray, "item"]) -> float:
    """The area under the ROC curve, by ranks; equal scores share theirs."""
    n_positive = int(truth.sum())
    n_negative = len(truth) - n_positive
    if not n_positive or not n_negative:
        return float("nan")
    _, which, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[which]  # from 1
    above = float(ranks[truth].sum()) - n_positive * (n_positive + 1) / 2
    return above / (n_positive * n_negative)
