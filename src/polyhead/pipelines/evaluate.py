"""How good a translator is on a set of sentences with references."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from polyhead.decoding.config import DecodeConfig
from polyhead.metrics.bleu import Comparison, Score, compare, score
from polyhead.metrics.error_rates import compare_errors, error_rates
from polyhead.pipelines.translator import Translator

Metric = Literal["bleu", "wer"]  # how close it comes, or whether it is exactly right


@dataclass(frozen=True)
class TranslationEvaluation:
    """Scores, the translations they belong to, and the paired test if there was another system."""

    scores: list[Score]
    outputs: list[str]
    against: list[Comparison]


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    options: DecodeConfig | None = None,
    against: Translator | Sequence[str] | None = None,
    lowercase: bool = False,
    tokenize: str = "13a",
    progress: Callable[[int], None] = lambda _: None,
) -> TranslationEvaluation:
    """Translate `sources`, score against `references`, and compare with another system if given."""
    outputs = _best(translator, sources, options, progress)
    scores = score(outputs, references, lowercase=lowercase, tokenize=tokenize)
    tested: list[Comparison] = []
    if against is not None:
        other = _others(against, sources, progress)
        tested = compare(other, outputs, references, lowercase=lowercase, tokenize=tokenize)
    return TranslationEvaluation(scores, outputs, tested)


def evaluate_exactly(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    options: DecodeConfig | None = None,
    against: Translator | Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> TranslationEvaluation:
    """The same where only one output is right: WER and PER instead of BLEU and chrF."""
    outputs = _best(translator, sources, options, progress)
    scores = error_rates(outputs, references)
    tested: list[Comparison] = []
    if against is not None:
        tested = compare_errors(_others(against, sources, progress), outputs, references)
    return TranslationEvaluation(scores, outputs, tested)


def _others(
    against: Translator | Sequence[str], sources: Sequence[str], progress: Callable[[int], None]
) -> list[str]:
    """What the other system says, or has said."""
    if isinstance(against, Translator):
        return _best(against, sources, None, progress)
    return list(against)


def _best(
    translator: Translator,
    sources: Sequence[str],
    options: DecodeConfig | None,
    progress: Callable[[int], None],
) -> list[str]:
    found = translator.n_best(sources, options=options, progress=progress)
    return [best[0].text for best in found]
