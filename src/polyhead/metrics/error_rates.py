"""Right or wrong, line by line: for outputs of which only one is right, such as pronunciations.

    WER   the share of lines that are not exactly the reference          ("word error rate")
    PER   edits / units of the references; an edit inserts, deletes or replaces one unit

A line is one word, and its units (phonemes) stand between spaces: that is how grapheme-to-phoneme
systems are scored. (Speech recognisers call the second number WER, because their units are words.)
Intervals are 95 % of 1,000 bootstrap samples. Two systems are compared by McNemar's exact test:
of the lines that only one of them has right, each is as likely to have either, if both are equal.
"""

from collections.abc import Sequence
from math import comb

import numpy as np

from polyhead.metrics.bleu import SAMPLES, Comparison, Score, check_lengths

SIGNATURE = "case:mixed|units:between spaces"


def n_edits(output: Sequence[str], reference: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements that turn one into the other."""
    row = list(range(len(reference) + 1))
    for i, said in enumerate(output, start=1):
        before, row[0] = row[0], i
        for j, right in enumerate(reference, start=1):
            replaced = before + (said != right)
            before = row[j]
            row[j] = min(replaced, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def error_rates(
    outputs: Sequence[str], references: Sequence[str], *, bootstrap: int = SAMPLES
) -> list[Score]:
    """WER and PER in per cent, less is better."""
    check_lengths(outputs, references)
    said, right = [line.split() for line in outputs], [line.split() for line in references]
    wrong = np.array([a != b for a, b in zip(said, right, strict=True)], dtype=float)
    edits = np.array([n_edits(a, b) for a, b in zip(said, right, strict=True)], dtype=float)
    units = np.array([len(line) for line in right], dtype=float)
    lines = np.ones_like(wrong)
    return [
        _rate("WER", wrong, lines, bootstrap),
        _rate("PER", edits, np.maximum(units, 1.0), bootstrap),
    ]


def compare_errors(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str]
) -> list[Comparison]:
    """McNemar's exact test of the WER of `system` against that of `baseline`, two-sided."""
    check_lengths(baseline, references)
    check_lengths(system, references)
    right = [line.split() for line in references]
    theirs = [line.split() == r for line, r in zip(baseline, right, strict=True)]
    ours = [line.split() == r for line, r in zip(system, right, strict=True)]
    only_ours = sum(a and not b for a, b in zip(ours, theirs, strict=True))
    only_theirs = sum(b and not a for a, b in zip(ours, theirs, strict=True))
    n = len(references)
    return [
        Comparison(
            "WER",
            100 * (1 - sum(theirs) / n),
            100 * (1 - sum(ours) / n),
            mcnemar(only_ours, only_theirs),
            f"{SIGNATURE}|test:McNemar exact",
        )
    ]


def mcnemar(only_one: int, only_other: int) -> float:
    """How likely so uneven a split of the lines that one of two has right is, by chance."""
    n, fewer = only_one + only_other, min(only_one, only_other)
    tail = sum(comb(n, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**n)


def _rate(name: str, counts: np.ndarray, of: np.ndarray, bootstrap: int) -> Score:
    """100 Σ counts / Σ of, and its interval: lines are drawn again with replacement."""
    value = 100 * float(counts.sum() / of.sum())
    if bootstrap < 2 or len(counts) < 2:
        return Score(name, value, None, None, SIGNATURE)
    drawn = np.random.default_rng(0).integers(len(counts), size=(bootstrap, len(counts)))
    rates = 100 * counts[drawn].sum(1) / of[drawn].sum(1)
    low, high = np.quantile(rates, [0.025, 0.975])
    return Score(name, value, float(low), float(high), SIGNATURE)
