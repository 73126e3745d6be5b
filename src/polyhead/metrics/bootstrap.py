"""Bootstrap confidence intervals of a classifier's scores (Efron 1979).

The examples are drawn with replacement a thousand times, and the score is computed each time. It
depends only on the confusion table, so a sample of n examples is one draw from a multinomial
distribution over the cells of the table.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from polyhead.metrics.classification import confusion

SAMPLES = 1000


class Interval(NamedTuple):
    """The middle 95 % of the samples."""

    low: float
    high: float


def interval(
    expected: Sequence[int],
    predicted: Sequence[int],
    n_classes: int,
    measure: Literal["accuracy", "macro_f1"],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Interval:
    """Return the 95 % interval of a measure; the same predictions and seed give the same one."""
    table = confusion(expected, predicted, n_classes)
    shares = table.flatten() / table.sum()
    drawn = np.random.default_rng(seed).multinomial(int(table.sum()), shares, size=samples)
    tables = drawn.reshape(samples, n_classes, n_classes)
    values = accuracies(tables) if measure == "accuracy" else macro_f1s(tables)
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))


def accuracies(tables: Int[np.ndarray, "sample expected predicted"]) -> Float[np.ndarray, "sample"]:
    """Return the share of the diagonal."""
    return tables.trace(axis1=1, axis2=2) / tables.sum((1, 2))


def macro_f1s(tables: Int[np.ndarray, "sample expected predicted"]) -> Float[np.ndarray, "sample"]:
    """Return the mean of 2 · hits / (expected + predicted) over the classes that occur."""
    hits = tables.diagonal(axis1=1, axis2=2)
    both = tables.sum(1) + tables.sum(2)
    f1 = np.divide(2 * hits, both, out=np.zeros(hits.shape), where=both > 0)
    return f1.sum(1) / (both > 0).sum(1)
