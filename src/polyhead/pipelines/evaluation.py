"""Evaluation of translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from polyhead.config import suggest
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.metrics.bleu import (
    Comparison,
    Score,
    check_lengths,
    check_tokenizer,
    compare,
    score,
)
from polyhead.metrics.error_rates import compare_errors, error_rates
from polyhead.metrics.named_metrics import METRICS, registered_metric
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.pipelines.translator import Translator
from polyhead.render import notebook

Metric = Literal["bleu", "wer"]  # similarity to the reference, or exact matches
NAMES = ("bleu", "chrf", "wer")
COMET = (
    ". Write the translations with --output, and score them with the package unbabel-comet: "
    "comet-score -s SOURCE -t OUTPUT -r TARGET"
)
CHUNK = 128  # lines that are translated together, whatever the number of processes


@dataclass(frozen=True)
class MetricConfig:
    """Metric and options for scoring translations."""

    name: str = "bleu"  # and chrF; "chrf"; "wer": and PER; or a metric that a plug-in registered
    lowercase: bool = False  # of BLEU and chrF, as `tokenize` is of BLEU; see sacreBLEU
    tokenize: str = "13a"

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenize)
        known = [*NAMES, *(name for name, metric in METRICS.items() if metric.compute is not None)]
        if self.name not in known:
            instead = COMET if self.name.lower() == "comet" else suggest(self.name, known)
            raise ConfigError(f"metric {self.name}: unknown{instead}", "unknown_metric")
        changed = {"tokenize": self.tokenize != "13a", "lowercase": self.lowercase}
        for name, metrics in (("tokenize", NAMES[:1]), ("lowercase", NAMES[:2])):
            if changed[name] and self.name not in metrics:
                raise ConfigError(f"{name} has no effect on {self.name}", "no_effect")


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
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metric: MetricConfig | None = None,
    options: DecodeConfig | None = None,
    against: Translator | Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    map_batches: MapBatches = map_here,
) -> TranslationEvaluation:
    """Translate, score, and compare with another system, or its outputs, if given.

    metric: BLEU and chrF unless given.
    options: how both systems decode; the defaults of `translator` unless given.
    """
    check_lengths(sources, references)
    metric = MetricConfig() if metric is None else metric
    options = translator.defaults if options is None else options
    if against is not None and metric.name not in NAMES:
        raise ConfigError(f"against: there is no paired test of {metric.name}", "no_effect")
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    chunks = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]

    def translate(system: Translator) -> list[str]:
        def best(numbers: list[int]) -> list[str]:
            lines = [sources[number] for number in numbers]
            candidates = system.n_best(lines, options=options, seed=numbers[0], progress=progress)
            return [hypotheses[0].text for hypotheses in candidates]

        texts = chain.from_iterable(map_batches(best, chunks))
        return [text for _, text in sorted(zip(order, texts, strict=True))]

    outputs = translate(translator)
    other = translate(against) if isinstance(against, Translator) else against
    lowercase, tokenize = metric.lowercase, metric.tokenize
    if metric.name == "wer":
        scores = error_rates(outputs, references)
        tests = [] if other is None else compare_errors(other, outputs, references)
    elif metric.name not in NAMES:
        (value,) = registered_metric(metric.name, outputs, references).values()
        scores, tests = [Score(metric.name, value, None, None, "plug-in")], []
    else:
        scores = score(outputs, references, lowercase=lowercase, tokenize=tokenize)
        tests = [] if other is None else compare(
            other, outputs, references, lowercase=lowercase, tokenize=tokenize
        )  # fmt: skip
        if metric.name == "chrf":
            scores, tests = scores[1:], tests[1:]
    return TranslationEvaluation(scores, outputs, tests)
