"""Text classification: `TextClassifier.from_dir("runs/reviews").classify(["지루하지 않다"])`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from polyhead.data.batches.base import pad
from polyhead.data.batches.epoch_plan import plan_by_length
from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import LabelledExamples, class_numbers, read_labelled
from polyhead.data.line_encoder import framed
from polyhead.decoding.hypotheses import log_normaliser
from polyhead.errors import check_list
from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import ClassificationReport, Interval, interval, report
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.models.registry import Task
from polyhead.pipelines.base import Classification, ClassifierPipeline
from polyhead.tokenizers.base import encode_lines

MAX_TOKENS = 8192  # of one batch


@dataclass(frozen=True)
class ClassificationEvaluation:
    """Scores of a classifier on labelled examples, with 95 % bootstrap intervals."""

    report: ClassificationReport
    accuracy: Interval
    macro_f1: Interval
    n_examples: int
    notices: tuple[str, ...]

    def __str__(self) -> str:
        intervals = "  ".join(
            f"{name} [{spread.low:.4f}, {spread.high:.4f}]"
            for name, spread in (("accuracy", self.accuracy), ("macro F1", self.macro_f1))
        )
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} examples"
        return f"{self.report}\n\n{samples}: {intervals}"


@dataclass(frozen=True, repr=False)
class TextClassifier(ClassifierPipeline):
    """A model that assigns texts to classes."""

    tasks: ClassVar[tuple[Task, ...]] = ("text_classification",)
    use: ClassVar[str] = "classify"

    @torch.inference_mode()
    def classify(
        self,
        lines: Sequence[str],
        *,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> list[Classification]:
        """Return the classification of every line, in their order.

        lines: texts; of a long one the first `max_length` tokens are read.
        progress: called with the number of lines of each batch.
        map_batches: applies the model to all batches; several processes may share them.

        Example: `classifier.classify(["지루하지 않다"])[0].label`
        """
        check_list(lines, "classify", "lines")
        texts = list(framed(encode_lines(self.tokenizer, lines), self.max_length))
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        batches = [batch.tolist() for batch in plan_by_length([lengths], MAX_TOKENS, seed=0)]

        def read(numbers: Sequence[int]) -> list[list[float]]:
            ids = pad([texts[number] for number in numbers]).to(self.device)
            logits = self.model(ids).float()
            log_normaliser(logits)  # raises if they are not finite
            progress(len(numbers))
            rows: list[list[float]] = logits.softmax(-1).tolist()
            return rows

        rows = chain.from_iterable(map_batches(read, batches))
        by_number = dict(zip(chain.from_iterable(batches), rows, strict=True))
        results = []
        for number in range(len(texts)):
            probabilities = dict(zip(self.classes, by_number[number], strict=True))
            best = max(probabilities, key=lambda name: probabilities[name])
            results.append(Classification(best, probabilities))
        return results

    def evaluate(
        self, files: Sequence[str | Path], progress: Callable[[int], None] = lambda _: None
    ) -> ClassificationEvaluation:
        """Return the scores on labelled texts.

        files: with the same columns as in training.
        progress: called with the number of texts of each batch.
        """
        check_list(files, "evaluate", "files")
        examples, notices = self.read(files)
        return self.evaluate_examples(examples, notices, progress)

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ClassificationEvaluation:
        """Return the scores on examples that were read before."""
        expected = class_numbers(examples.labels, self.classes, self.name)
        places = {name: place for place, name in enumerate(self.classes)}
        results = self.classify(examples.texts, progress=progress, map_batches=map_batches)
        predicted = [places[result.label] for result in results]
        n_classes = len(self.classes)
        return ClassificationEvaluation(
            report(expected, predicted, self.classes),
            interval(expected, predicted, n_classes, "accuracy"),
            interval(expected, predicted, n_classes, "macro_f1"),
            len(expected),
            tuple(notices),
        )

    def read(
        self, files: Sequence[str | Path], encoding: str = "utf-8"
    ) -> tuple[LabelledExamples, list[str]]:
        """Return labelled texts from files, and notices about them."""
        notices: list[str] = []
        keys = (self.data.text_key, self.data.label_key)
        config = replace(DataConfig(encoding=encoding), text_key=keys[0], label_key=keys[1])
        return read_labelled(files, config, notices), notices
