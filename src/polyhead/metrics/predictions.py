"""Scores of several labels, of numbers, and of sentence embeddings, with bootstrap intervals.

    micro F1     2 hits / (predicted + expected), summed over all labels
    macro F1     the mean of the labels' F1
    exact match  share of the texts whose labels are all right
    Pearson      Σ (x - x̄)(y - ȳ) / √(Σ (x - x̄)² Σ (y - ȳ)²);  Spearman: the same of the ranks

The intervals are percentiles of samples of the examples (Efron 1979).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import ClassScore, Interval, class_table, ranks, share

THRESHOLD = 0.5  # probability above which a label is predicted
Scores = dict[str, float]
Labels = Bool[np.ndarray, "example label"]
Values = Float[np.ndarray, "example"]


@dataclass(frozen=True)
class ScoreReport:
    """Scores with their 95 % bootstrap intervals; `classes` are those of several labels."""

    scores: Scores
    intervals: dict[str, Interval]
    n_examples: int
    classes: tuple[ClassScore, ...] = ()
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        width = max(map(len, self.scores))
        lines = [
            f"{name.replace('_', ' '):<{width}}  {value:.4f}  "
            f"[{self.intervals[name].low:.4f}, {self.intervals[name].high:.4f}]"
            for name, value in self.scores.items()
        ]
        table = ["", *class_table(self.classes)] if self.classes else []
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} examples"
        return "\n".join([*lines, *table, "", f"in brackets: {samples}"])


def score_report(
    measure: Callable[..., Scores],
    *columns: np.ndarray,
    classes: tuple[ClassScore, ...] = (),
    notices: Sequence[str] = (),
) -> ScoreReport:
    """Return the scores of columns with a row for each example, and their intervals."""
    n_examples, rng = len(columns[0]), np.random.default_rng(0)
    samples = []
    for _ in range(SAMPLES):
        drawn = rng.integers(n_examples, size=n_examples)
        samples.append(measure(*(column[drawn] for column in columns)))
    scores, intervals = measure(*columns), {}
    for name in scores:
        low, high = np.nanquantile([sample[name] for sample in samples], [0.025, 0.975])
        intervals[name] = Interval(float(low), float(high))
    return ScoreReport(scores, intervals, n_examples, classes, tuple(notices))


def label_scores(expected: Labels, predicted: Labels) -> Scores:
    """Return micro and macro F1 and the share of exact matches of several labels."""
    hits, both = (expected & predicted).sum(0), expected.sum(0) + predicted.sum(0)
    return {
        "micro_f1": float(2 * hits.sum() / max(1, both.sum())),
        "macro_f1": float(share(2 * hits, both).mean()),
        "exact_match": float((expected == predicted).all(1).mean()),
    }


def number_scores(expected: Values, predicted: Values) -> Scores:
    """Return both correlations, the mean absolute and the root mean squared error."""
    errors = predicted - expected
    return {
        **correlations(expected, predicted),
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt(np.square(errors).mean())),
    }


def correlations(first: Values, second: Values) -> Scores:
    """Return the correlations of Pearson and Spearman; NaN if all values of a side are equal."""
    return {
        "pearson": _correlation(first, second),
        "spearman": _correlation(ranks(first), ranks(second)),
    }


def _correlation(first: Values, second: Values) -> float:
    x, y = (values - values.mean(dtype=np.float64) for values in (first, second))
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / size if size > 0 else np.nan


def partner_ranks(
    first: Float[np.ndarray, "pair width"], second: Float[np.ndarray, "pair width"]
) -> Values:
    """Return the rank of the partner of each first text among all second ones, by nearness, from 1.

    Texts as near as the partner, such as its repetitions, are not before it.
    """
    counted = []
    for start in range(0, len(first), 1000):
        similarity = first[start : start + 1000] @ second.T
        places = np.arange(start, start + len(similarity))
        own = similarity[np.arange(len(similarity)), places][:, None]
        counted.append(1 + (similarity > own + 1e-6).sum(1))
    return np.concatenate(counted).astype(np.float64)


def retrieval_scores(*positions: Values) -> Scores:
    """Return accuracy (the partner is the nearest), and mean reciprocal rank, of ranks."""
    both = np.stack(positions)
    return {"accuracy": float((both == 1).mean()), "mrr": float((1 / both).mean())}
