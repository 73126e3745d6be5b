"""Statistics over runs with different seeds: Student's t for means and for paired differences."""

import math
from collections.abc import Sequence
from statistics import mean, stdev

CONFIDENCE = 0.95


def inside_probability(t: float, n_free: int) -> float:
    """Return P(|T| < t) of Student's t with `n_free` degrees (Abramowitz & Stegun 26.7.3-4)."""
    angle = math.atan(abs(t) / math.sqrt(n_free))
    cosine, term, total = math.cos(angle), 1.0, 0.0
    if n_free % 2:
        term = cosine
        for k in range(1, n_free, 2):
            total += term
            term *= cosine**2 * (k + 1) / (k + 2)
        return 2 / math.pi * (angle + math.sin(angle) * total)
    for k in range(0, n_free, 2):
        total += term
        term *= cosine**2 * (k + 1) / (k + 2)
    return math.sin(angle) * total


def quantile(n_free: int, confidence: float = CONFIDENCE) -> float:
    """Return t with P(|T| < t) = `confidence`, by bisection."""
    low, high = 0.0, 1.0
    while inside_probability(high, n_free) < confidence:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        if inside_probability(middle, n_free) < confidence:
            low = middle
        else:
            high = middle
    return high


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval; both ends are the mean if there is one value."""
    average = mean(values)
    if len(values) < 2:
        return average, average, average
    half = quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return average, average - half, average + half


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for the number of tests (Holm 1979)."""
    corrected, largest = list(p_values), 0.0
    for n_done, place in enumerate(sorted(range(len(p_values)), key=lambda n: p_values[n])):
        largest = max(largest, min(1.0, (len(p_values) - n_done) * p_values[place]))
        corrected[place] = largest
    return corrected


def paired_test(values: Sequence[float], others: Sequence[float]) -> float | None:
    """Return the two-sided p-value of the paired t-test; None with fewer than two pairs."""
    differences = [a - b for a, b in zip(values, others, strict=True)]
    if len(differences) < 2:
        return None
    spread, average = stdev(differences), mean(differences)
    if spread == 0:
        return 1.0 if average == 0 else 0.0
    n = len(differences)
    return max(0.0, 1 - inside_probability(average / spread * math.sqrt(n), n - 1))
