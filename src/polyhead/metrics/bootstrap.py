"""How sure a classifier's scores are: 95 % of the bootstrap samples (Efron 1979).

The examples are drawn again with replacement, as many as there are, a thousand times; each time the
score is computed anew. Only the confusion table matters for it, so that a sample of n examples is
one draw from a multinomial distribution over the cells of the table.
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
    right: Sequence[int],
    said: Sequence[int],
    n_classes: int,
    measure: Literal["accuracy", "macro_f1"],
    *,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Interval:
    """The interval of a measure; the same answers and the same seed give the same one."""
    table = confusion(right, said, n_classes)
    shares = table.flatten() / table.sum()
    drawn = np.random.default_rng(seed).multinomial(int(table.sum()), shares, size=samples)
    tables = drawn.reshape(samples, n_classes, n_classes)
    values = accuracies(tables) if measure == "accuracy" else macro_f1s(tables)
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))


def accuracies(tables: Int[np.ndarray, "sample right said"]) -> Float[np.ndarray, "sample"]:
    """The share of the diagonal."""
    return tables.trace(axis1=1, axis2=2) / tables.sum((1, 2))


def macro_f1s(tables: Int[np.ndarray, "sample right said"]) -> Float[np.ndarray, "sample"]:
    """The mean of 2 · hits / (are + were said) over the classes that occur."""
    hits = tables.diagonal(axis1=1, axis2=2)
    both = tables.sum(1) + tables.sum(2)
    f1 = np.divide(2 * hits, both, out=np.zeros(hits.shape), where=both > 0)
    return f1.sum(1) / (both > 0).sum(1)
