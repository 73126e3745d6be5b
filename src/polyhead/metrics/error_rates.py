"""Error rates, for outputs of which only one is right, such as pronunciations.

    WER   the share of lines that are not exactly the reference          ("word error rate")
    PER   edits / units of the references; an edit inserts, deletes or replaces one unit

A line is one word, its units (phonemes) stand between spaces, as for grapheme-to-phoneme systems.
Intervals are 95 % of 1,000 bootstrap samples; two systems are compared by McNemar's exact test.
"""

from collections.abc import Sequence
from math import comb

import numpy as np

from polyhead.metrics.bleu import SAMPLES, Comparison, Score, check_lengths

SIGNATURE = "case:mixed|units:between spaces"


def n_edits(output: Sequence[str], reference: Sequence[str]) -> int:
    """Return the edit distance: insertions, deletions and replacements."""
    row = list(range(len(reference) + 1))
    for i, written in enumerate(output, start=1):
        before, row[0] = row[0], i
        for j, right in enumerate(reference, start=1):
            replaced = before + (written != right)
            before = row[j]
            row[j] = min(replaced, row[j] + 1, row[j - 1] + 1)
    return row[-1]


def error_rates(
    outputs: Sequence[str], references: Sequence[str], *, bootstrap: int = SAMPLES
) -> list[Score]:
    """Return WER and PER in per cent; lower is better."""
    check_lengths(outputs, references)
    written, right = [line.split() for line in outputs], [line.split() for line in references]
    wrong = np.array([a != b for a, b in zip(written, right, strict=True)], dtype=float)
    edits = np.array([n_edits(a, b) for a, b in zip(written, right, strict=True)], dtype=float)
    units = np.array([len(line) for line in right], dtype=float)
    lines = np.ones_like(wrong)
    return [
        _rate("WER", wrong, lines, bootstrap),
        _rate("PER", edits, np.maximum(units, 1.0), bootstrap),
    ]


def compare_errors(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str]
) -> list[Comparison]:
    """Compare the WER of `system` with that of `baseline` by McNemar's exact test, two-sided."""
    check_lengths(baseline, references)
    check_lengths(system, references)
    right = [line.split() for line in references]
    first, second = (
        np.array([line.split() != r for line, r in zip(lines, right, strict=True)])
        for lines in (baseline, system)
    )
    p_value = mcnemar(int((first & ~second).sum()), int((second & ~first).sum()))
    rates = 100 * float(first.mean()), 100 * float(second.mean())
    return [Comparison("WER", *rates, p_value, f"{SIGNATURE}|test:McNemar exact")]


def mcnemar(only_one: int, only_other: int) -> float:
    """Return the p-value of McNemar's exact test from the lines that only one system has right."""
    n, fewer = only_one + only_other, min(only_one, only_other)
    tail = sum(comb(n, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**n)


def _rate(name: str, counts: np.ndarray, of: np.ndarray, bootstrap: int) -> Score:
    """Return 100 Σ counts / Σ of with its bootstrap interval over lines."""
    value = 100 * float(counts.sum() / of.sum())
    if bootstrap < 2 or len(counts) < 2:
        return Score(name, value, None, None, SIGNATURE)
    rng, n = np.random.default_rng(0), len(counts)
    draws = (rng.integers(n, size=n) for _ in range(bootstrap))  # one by one: a table is too large
    rates = [100 * counts[drawn].sum() / of[drawn].sum() for drawn in draws]
    low, high = np.quantile(rates, [0.025, 0.975])
    return Score(name, value, float(low), float(high), SIGNATURE)
