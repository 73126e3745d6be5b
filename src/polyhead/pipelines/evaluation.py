"""Evaluation of translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.metrics.bleu import Comparison, Score, check_tokenizer, compare, score
from polyhead.metrics.error_rates import compare_errors, error_rates
from polyhead.metrics.named_metrics import METRICS, registered_metric
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.pipelines.translation import TextTranslator
from polyhead.render import notebook

Metric = Literal["bleu", "wer"]  # similarity to the reference, or exact matches
CHUNK = 128  # lines that are translated together, whatever the number of processes


@dataclass(frozen=True)
class MetricConfig:
    """Metric and options for scoring translations."""

    name: str = "bleu"  # and chrF; "wer": and PER; or a metric that a plug-in registered
    lowercase: bool = False  # this and `tokenize` are of BLEU, see sacreBLEU
    tokenize: str = "13a"

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenize)
        if self.name not in get_args(Metric) and METRICS[self.name].compute is None:
            raise ConfigError(
                f"metric {self.name}: expected bleu, wer, or one of a plug-in", "unknown_metric"
            )


BLEU_AND_CHRF = MetricConfig()


@dataclass(frozen=True)
class TranslationEvaluation:
    """Scores, the translations, and the significance tests against another system."""

    scores: list[Score]
    outputs: list[str]
    against: list[Comparison]

    def __repr__(self) -> str:
        scores = ", ".join(f"{score.name}={score.value:.2f}" for score in self.scores)
        return f"TranslationEvaluation({scores}, {len(self.outputs)} outputs)"

    def _repr_html_(self) -> str:
        rows = [[notebook.escape(str(score))] for score in self.scores]
        rows += [
            [f"{test.name} of the other system {test.baseline:.2f}, p = {test.p_value:.4f}"]
            for test in self.against
        ]
        outputs = [[notebook.escape(text)] for text in self.outputs]
        return notebook.table(["score"], rows) + notebook.table(["output"], outputs)


def evaluate_translation(
    translator: TextTranslator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metric: MetricConfig = BLEU_AND_CHRF,
    options: DecodeConfig | None = None,
    against: TextTranslator | Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    map_batches: MapBatches = map_here,
) -> TranslationEvaluation:
    """Translate, score, and compare with another system, or its outputs, if given.

    There is no significance test of a metric that a plug-in registered.
    """
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    chunks = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]

    def translate(system: TextTranslator, decode: DecodeConfig | None) -> list[str]:
        def best(numbers: list[int]) -> list[str]:
            lines = [sources[number] for number in numbers]
            candidates = system.n_best(lines, options=decode, seed=numbers[0], progress=progress)
            return [hypotheses[0].text for hypotheses in candidates]

        texts = chain.from_iterable(map_batches(best, chunks))
        return [text for _, text in sorted(zip(order, texts, strict=True))]

    outputs = translate(translator, options)
    other = translate(against, None) if isinstance(against, TextTranslator) else against
    lowercase, tokenize = metric.lowercase, metric.tokenize
    if metric.name == "wer":
        scores = error_rates(outputs, references)
        tests = [] if other is None else compare_errors(other, outputs, references)
    elif metric.name != "bleu":
        (value,) = registered_metric(metric.name, outputs, references).values()
        scores, tests = [Score(metric.name, value, None, None, "plug-in")], []
    else:
        scores = score(outputs, references, lowercase=lowercase, tokenize=tokenize)
        tests = [] if other is None else compare(
            other, outputs, references, lowercase=lowercase, tokenize=tokenize
        )  # fmt: skip
    return TranslationEvaluation(scores, outputs, tests)
