"""BLEU and chrF by sacreBLEU, with signatures and bootstrap intervals.

Intervals are 95 % of 1,000 bootstrap samples (Koehn 2004); two systems are compared by a paired
bootstrap test.
"""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from polyhead.errors import ConfigError, DataError, MissingError

SAMPLES, SEED = 1000, 12345  # the seed of sacreBLEU


@dataclass(frozen=True)
class Score:
    """One metric of one system. `low` and `high` bound 95 % of the bootstrap samples."""

    name: str
    value: float
    low: float | None
    high: float | None
    signature: str

    def __str__(self) -> str:
        spread = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.name} {self.value:.2f}{spread}  ({self.signature})"


@dataclass(frozen=True)
class Comparison:
    """Paired test of one metric; `p_value` is the probability of such a difference by chance."""

    name: str
    baseline: float
    system: float
    p_value: float
    signature: str


class PlainCHRF(CHRF):
    """chrF of sacreBLEU as float: 2.6 also returns numpy.float32, and cannot add up both."""

    def _compute_score_from_stats(self, stats: Any) -> Any:
        result = super()._compute_score_from_stats(stats)
        result.score = float(result.score)
        return result


def score(
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    bootstrap: int = SAMPLES,
) -> list[Score]:
    """Return BLEU and chrF of a whole set."""
    check_lengths(outputs, references)
    scores = []
    for name, metric in _metrics(lowercase, tokenize).items():
        stats = metric._extract_corpus_statistics(list(outputs), [list(references)])
        result = metric._aggregate_and_compute(stats)
        low = high = None
        if bootstrap > 1 and len(outputs) > 1:
            metric.n_bootstrap, metric.seed = bootstrap, str(SEED)  # for the signature
            result.estimate_ci(resample(metric, stats, bootstrap))
            middle, half = float(result._mean), float(result._ci)
            low, high = max(0.0, middle - half), min(100.0, middle + half)
        signature = metric.get_signature().format(short=False)
        scores.append(Score(name, float(result.score), low, high, signature))
    return scores


def quick_bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Return BLEU without an interval, for validation during training."""
    return float(BLEU().corpus_score(list(outputs), [list(references)]).score)


def compare(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenize: str = "13a",
    samples: int = SAMPLES,
) -> list[Comparison]:
    """Compare `system` with `baseline` by a paired bootstrap test."""
    check_lengths(baseline, references)
    check_lengths(system, references)
    comparisons = []
    for name, metric in _metrics(lowercase, tokenize).items():
        both = [
            metric._extract_corpus_statistics(list(lines), [list(references)])
            for lines in (baseline, system)
        ]
        before, after = (float(metric._aggregate_and_compute(stats).score) for stats in both)
        drawn = np.array([[s.score for s in resample(metric, stats, samples)] for stats in both])
        distances = np.abs(drawn[0] - drawn[1])
        n_farther = int((distances - distances.mean() > abs(before - after)).sum())
        # equal scores would have a small p-value
        p_value = 1.0 if before == after else (n_farther + 1) / (samples + 1)
        signature = metric.get_signature()
        signature.update("seed", str(SEED))
        signature.update("bs", samples)
        comparisons.append(Comparison(name, before, after, p_value, signature.format(short=False)))
    return comparisons


def resample(metric: Any, stats: Sequence[Any], samples: int) -> list[Any]:
    """Return scores of bootstrap samples: those of sacreBLEU, which draws all of them at once."""
    rng, table = np.random.default_rng(SEED), np.array(stats, dtype=np.float32)
    n = len(table)
    return [
        metric._compute_score_from_stats(table[rng.choice(n, n)].sum(0)) for _ in range(samples)
    ]


def check_tokenizer(name: str) -> None:
    """Raise if sacreBLEU has no such tokenizer, or lacks its packages."""
    if name not in BLEU.TOKENIZERS:
        known = ", ".join(str(tokenizer) for tokenizer in BLEU.TOKENIZERS)
        raise ConfigError(f"tokenizer {name!r}: expected one of {known}", "unknown_tokenizer")
    try:
        with redirect_stderr(io.StringIO()):  # it also prints several lines
            BLEU(tokenize=name)
    except (ImportError, RuntimeError):
        extra = name.split("-")[0]  # ko-mecab, ja-mecab
        message = f'tokenizer {name!r} needs further packages: pip install "sacrebleu[{extra}]"'
        raise MissingError(message, "missing_package") from None
    except OSError as error:
        message = f"tokenizer {name!r}: sacreBLEU cannot download its model ({error})"
        raise MissingError(message, "download_failed") from None


def _metrics(lowercase: bool, tokenize: str) -> dict[str, Any]:
    return {
        "BLEU": BLEU(lowercase=lowercase, tokenize=tokenize),
        "chrF2": PlainCHRF(lowercase=lowercase),
    }


def check_lengths(outputs: Sequence[object], references: Sequence[object]) -> None:
    """Raise if outputs and references do not correspond one by one."""
    if len(outputs) != len(references):
        message = f"{len(outputs)} outputs and {len(references)} references; expected one for each"
        raise DataError(message, "different_lengths")
    if not len(references):
        raise DataError("no examples to score", "no_examples")
