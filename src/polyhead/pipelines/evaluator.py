"""Evaluation of a model of any task: `polyhead.evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polyhead.errors import ConfigError
from polyhead.metrics.predictions import ScoreReport
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.evaluation import TranslationEvaluation
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.task_pipeline import TaskPipeline, TextClassifier
from polyhead.pipelines.text_generator import LanguageScore, TextGenerator
from polyhead.pipelines.translator import Translator
from polyhead.render.notebook import MetricTable
from polyhead.tasks.tagging import TaggingReport
from polyhead.tasks.text_classification import ClassificationEvaluation

Evaluation = (
    TranslationEvaluation | LanguageScore | MetricTable | ClassificationEvaluation | ScoreReport
    | TaggingReport
)  # fmt: skip
Data = str | Path | Sequence[str | Path] | Sequence[np.ndarray]
Labels = Sequence[str | int] | Sequence[str]


def evaluate(model: Pipeline, data: Data, references: Labels | Path | None = None) -> Evaluation:
    """Measure the quality of a model on held-out data, as its method `evaluate` does.

    model: a pipeline, as returned by `polyhead.load`.
    data: source lines for a translator, lines of text for a language model or a mask filler,
        labelled files for a text classifier, a tagger or a question answerer, files of pairs for a
        sentence embedder, folders of images for an image classifier. Texts are lists or files.
    references: the right translations of a translator's lines; of a classifier the labels, if
        `data` are texts or images in memory.

    Returns BLEU and chrF, perplexity, metrics of masked tokens, or a classification report.

    Example: `polyhead.evaluate(polyhead.load("runs/mine"), sources, references).scores[0].value`
    """
    given: Any = data
    other: Any = references
    if isinstance(model, Translator | TextClassifier | ImageClassifier):
        return model.evaluate(given, other)
    if other is not None:
        raise ConfigError("this model is evaluated without references", "unused_references")
    assert isinstance(model, TextGenerator | TaskPipeline)
    result: Evaluation = model.evaluate(given)
    return result
