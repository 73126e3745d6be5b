"""Evaluation of trained models on held-out data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, get_args, overload

from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError
from polyhead.metrics.bleu import Comparison, Score, check_tokenizer, compare, score
from polyhead.metrics.classification import ClassificationReport
from polyhead.metrics.error_rates import compare_errors, error_rates
from polyhead.metrics.named_metrics import METRICS, registered_metric
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.predictions import ScoreReport
from polyhead.metrics.tagging import TaggingReport
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.pipelines.question_answerer import QuestionAnswerer
from polyhead.pipelines.sentence_embedder import SentenceEmbedder
from polyhead.pipelines.tagger import Tagger
from polyhead.pipelines.text_classifier import ClassificationEvaluation, TextClassifier
from polyhead.pipelines.text_generator import LanguageScore, TextGenerator
from polyhead.pipelines.translator import Translator

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


Evaluation = (
    TranslationEvaluation
    | LanguageScore
    | dict[str, float]
    | ClassificationEvaluation
    | ScoreReport
    | TaggingReport
    | ClassificationReport
)


@overload
def evaluate(
    model: Translator, data: Sequence[str], references: Sequence[str]
) -> TranslationEvaluation: ...
@overload
def evaluate(model: TextGenerator, data: Sequence[str]) -> LanguageScore: ...
@overload
def evaluate(model: MaskFiller, data: Sequence[str]) -> dict[str, float]: ...
@overload
def evaluate(
    model: TextClassifier, data: Sequence[str | Path]
) -> ClassificationEvaluation | ScoreReport: ...
@overload
def evaluate(
    model: SentenceEmbedder | QuestionAnswerer, data: Sequence[str | Path]
) -> ScoreReport: ...
@overload
def evaluate(model: Tagger, data: Sequence[str | Path]) -> TaggingReport: ...
@overload
def evaluate(model: ImageClassifier, data: Sequence[str | Path]) -> ClassificationReport: ...
@overload
def evaluate(
    model: Pipeline, data: Sequence[str] | Sequence[str | Path], references: Sequence[str] = ()
) -> Evaluation: ...
def evaluate(
    model: Pipeline, data: Sequence[str] | Sequence[str | Path], references: Sequence[str] = ()
) -> Evaluation:
    """Measure the quality of a model on held-out data.

    model: a pipeline, as returned by `polyhead.load`.
    data: source lines for a translator, lines of text for a language model or a mask filler,
        files for a text classifier, a tagger or a question answerer, files of pairs for a sentence
        embedder, folders of images for an image classifier.
    references: the right translations, for a translator only.

    Returns BLEU and chrF, perplexity, metrics of masked tokens, or a classification report.

    Example: `polyhead.evaluate(polyhead.load("runs/mine"), sources, references).scores[0].value`
    """
    lines = [str(item) for item in data]
    if references and not isinstance(model, Translator):
        raise ConfigError("only translators are compared with references", "unused_references")
    if isinstance(model, Translator):
        return evaluate_translation(model, lines, references)
    if isinstance(model, TextGenerator | MaskFiller):
        return model.score(lines)
    if isinstance(model, TextClassifier | Tagger | QuestionAnswerer | SentenceEmbedder):
        return model.evaluate(lines)
    assert isinstance(model, ImageClassifier)
    return model.evaluate(lines)[0]


def evaluate_translation(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metric: MetricConfig = BLEU_AND_CHRF,
    options: DecodeConfig | None = None,
    against: Translator | Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    map_batches: MapBatches = map_here,
) -> TranslationEvaluation:
    """Translate, score, and compare with another system, or its outputs, if given.

    There is no significance test of a metric that a plug-in registered.
    """
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    chunks = [order[start : start + CHUNK] for start in range(0, len(order), CHUNK)]

    def translate(system: Translator, decode: DecodeConfig | None) -> list[str]:
        def best(numbers: list[int]) -> list[str]:
            lines = [sources[number] for number in numbers]
            candidates = system.n_best(lines, options=decode, seed=numbers[0], progress=progress)
            return [hypotheses[0].text for hypotheses in candidates]

        texts = chain.from_iterable(map_batches(best, chunks))
        return [text for _, text in sorted(zip(order, texts, strict=True))]

    outputs = translate(translator, options)
    other = translate(against, None) if isinstance(against, Translator) else against
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
