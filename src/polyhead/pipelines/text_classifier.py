"""Text classification: `TextClassifier.from_dir("runs/reviews").classify("지루하지 않다").label`.

A model may assign one class to a text, several, or a number, and may read pairs of texts.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, overload

import numpy as np
import torch
from torch import Tensor

from polyhead.data.batches.base import pad
from polyhead.data.batches.labelled import segments_of
from polyhead.data.config import DataConfig
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.labelled_text import LabelledExamples, read_labelled
from polyhead.data.labels import PAIR, SEPARATOR, Problem, encode_labels, join_pair
from polyhead.data.line_encoder import encode_texts
from polyhead.decoding.hypotheses import log_normaliser
from polyhead.errors import ConfigError, DataError
from polyhead.metrics.bleu import SAMPLES, check_lengths
from polyhead.metrics.classification import (
    ClassificationReport,
    Interval,
    class_scores,
    interval,
    report,
)
from polyhead.metrics.perplexity import MapBatches, map_by_length, map_here
from polyhead.metrics.predictions import (
    THRESHOLD,
    ScoreReport,
    label_scores,
    number_scores,
    score_report,
)
from polyhead.models.registry import TaskName
from polyhead.pipelines.base import Classification, ClassifierPipeline, Pipeline
from polyhead.pipelines.result_list import ResultList, as_texts
from polyhead.render import notebook


@dataclass(frozen=True)
class ClassificationEvaluation:
    """Scores of a classifier on labelled examples, with 95 % bootstrap intervals."""

    report: ClassificationReport
    accuracy: Interval
    macro_f1: Interval
    n_examples: int
    notices: tuple[str, ...]

    @classmethod
    def of(
        cls,
        expected: Sequence[int],
        predicted: Sequence[int],
        classes: Sequence[str],
        notices: Sequence[str] = (),
    ) -> "ClassificationEvaluation":
        """Compare the predicted classes with the expected ones, both by number."""
        return cls(
            report(expected, predicted, classes),
            interval(expected, predicted, len(classes), "accuracy"),
            interval(expected, predicted, len(classes), "macro_f1"),
            len(expected),
            tuple(notices),
        )

    def __repr__(self) -> str:
        scores = f"accuracy={self.report.accuracy:.4f}, macro_f1={self.report.macro_f1:.4f}"
        return f"ClassificationEvaluation({scores}, n_examples={self.n_examples})"

    def _repr_html_(self) -> str:
        report, low, high = self.report, self.accuracy.low, self.accuracy.high
        score = f"accuracy {report.accuracy:.4f} [{low:.4f}, {high:.4f}]"
        rows = [
            [notebook.escape(c.name), *(f"{x:.4f}" for x in (c.precision, c.recall, c.f1)),
             f"{c.count:,}"]
            for c in report.classes
        ]  # fmt: skip
        header = ["class", "precision", "recall", "F1", "count"]
        return f"<p>{score}, macro F1 {report.macro_f1:.4f}</p>" + notebook.table(header, rows)

    def __str__(self) -> str:
        intervals = "  ".join(
            f"{name} [{spread.low:.4f}, {spread.high:.4f}]"
            for name, spread in (("accuracy", self.accuracy), ("macro F1", self.macro_f1))
        )
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} examples"
        return f"{self.report}\n\n{samples}: {intervals}"


@dataclass(frozen=True)
class LabelSet(Classification):
    """The labels of a text that are more probable than not; `label` is the likeliest of all."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        return SEPARATOR.join(self.labels)


@dataclass(frozen=True)
class PredictedNumber(Classification):
    """A number for a text; `label` is its text, and there are no probabilities."""

    number: float


def read_texts(
    pipeline: Pipeline,
    texts: Sequence[str],
    compute: Callable[[Tensor], Tensor],
    progress: Callable[[int], None] = lambda _: None,
    map_batches: MapBatches = map_here,
) -> list[list[float]]:
    """Return what a model computes of the ids of each text, in the order of the texts."""
    encoded = encode_texts(pipeline.tokenizer, texts, pipeline.max_length)
    ids = [framed for framed, _ in encoded]

    def read(numbers: Sequence[int]) -> list[list[float]]:
        rows: list[list[float]] = compute(
            pad([ids[number] for number in numbers]).to(pipeline.device)
        ).tolist()
        progress(len(numbers))
        return rows

    return map_by_length(read, [len(text) for text in ids], map_batches)


@dataclass(frozen=True, repr=False)
class TextClassifier(ClassifierPipeline):
    """A model that assigns texts, or pairs of texts, to classes, or a number to each."""

    tasks: ClassVar[tuple[TaskName, ...]] = ("text_classification",)
    use: ClassVar[str] = "classify"

    @property
    def problem(self) -> str:
        """The kind of its labels: "single_label", "multi_label" or "regression"."""
        return str(self.saved.config.problem)

    @property
    def pairs(self) -> Literal["no", "optional", "required"]:
        """Pairs of texts are required by models that were trained on them.

        They are optional for an imported model with two segments, which may be of either kind.
        """
        about, n_segments = self.saved.about, self.saved.config.encoder.segments
        if about.get("pairs"):
            return "required"
        return "optional" if "imported" in about and n_segments > 1 else "no"

    def texts(self, lines: Sequence[str], pair: Sequence[str] | None = None) -> list[str]:
        """Return texts as the model reads them: pairs are divided by a tab."""
        if pair is not None and len(pair) != len(lines):
            message = f"pair: {len(pair)} texts, expected {len(lines)}, one for each text"
            raise ConfigError(message, "unequal_lengths")
        if pair is not None:
            lines = [join_pair(*both) for both in zip(lines, pair, strict=True)]
        elif self.pairs == "no":
            return [line.replace(PAIR, " ") for line in lines]
        if self.pairs == "no":
            raise ConfigError("the model reads single texts, not pairs", "no_pairs")
        texts = [join_pair(*line.split(PAIR, 1)) if PAIR in line else line for line in lines]
        if self.pairs == "required" and not all(PAIR in text for text in texts):
            raise DataError(
                "the model reads pairs of texts; give two texts divided by a tab, or with "
                "--pair (pair= in Python, text_pair over HTTP)",
                "no_pair",
            )
        return texts

    @overload  # a text is also a sequence of texts
    def classify(  # type: ignore[overload-overlap]
        self, lines: str, *, pair: str | None = None
    ) -> Classification: ...
    @overload
    def classify(
        self,
        lines: Iterable[str],
        *,
        pair: Iterable[str] | None = None,
        progress: Callable[[int], None] = ...,
        map_batches: MapBatches = ...,
    ) -> ResultList[Classification]: ...
    @torch.inference_mode()
    def classify(
        self,
        lines: str | Iterable[str],
        *,
        pair: str | Iterable[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> Classification | ResultList[Classification]:
        """Return the classification of a text, or of every text of a list, in their order.

        lines: texts; of a long one the first `max_length` tokens are read.
        pair: the second text of each, for models of pairs.
        progress: called with the number of lines of each batch.
        map_batches: applies the model to all batches; several processes may share them.

        Of several labels it returns `LabelSet`s, of numbers `PredictedNumber`s.

        Example: `classifier.classify("지루하지 않다").label`
        """
        second = None if pair is None else as_texts(pair, "classify")
        texts = self.texts(as_texts(lines, "classify"), second)

        def compute(ids: Tensor) -> Tensor:
            logits: Tensor = self.model(ids, segments_of(ids)).float()
            log_normaliser(logits)  # raises if they are not finite
            if self.problem == "single_label":
                return logits.softmax(-1)
            return logits.sigmoid() if self.problem == "multi_label" else logits

        rows = read_texts(self, texts, compute, progress, map_batches)
        results = ResultList(map(self.result, rows))
        return results[0] if isinstance(lines, str) else results

    def result(self, row: Sequence[float]) -> Classification:
        """Return the classification of a text by its probabilities, or by its number."""
        if self.problem == "regression":
            return PredictedNumber(f"{row[0]:.4g}", {}, row[0])
        probabilities = dict(zip(self.classes, row, strict=True))
        best = max(probabilities, key=lambda name: probabilities[name])
        if self.problem == "single_label":
            return Classification(best, probabilities)
        labels = tuple(name for name, share in probabilities.items() if share > THRESHOLD)
        return LabelSet(best, probabilities, labels)

    def evaluate(
        self,
        data: str | Path | Sequence[str | Path],
        labels: Sequence[str | int] | None = None,
        *,
        pair: Sequence[str] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> ClassificationEvaluation | ScoreReport:
        """Return the scores on labelled texts: of several labels or numbers a `ScoreReport`.

        data: files with the same columns as in training; texts in memory if `labels` are given.
        labels, pair: of the texts in memory, one for each.
        progress: called with the number of texts of each batch.

        Example: `classifier.evaluate("test.tsv").report.accuracy`
        """
        if labels is None:
            examples, notices = self.read([data] if isinstance(data, str | Path) else data)
            return self.evaluate_examples(examples, notices, progress)
        texts = self.texts(as_texts(data, "evaluate"), pair)
        check_lengths(texts, labels)
        examples = LabelledExamples(texts, [str(label) for label in labels])
        return self.evaluate_examples(examples, (), progress)

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ClassificationEvaluation | ScoreReport:
        """Return the scores on examples that were read before."""
        problem: Problem = self.saved.config.problem
        labels = encode_labels(examples.labels, problem, self.classes, self.name)
        results = self.classify(examples.texts, progress=progress, map_batches=map_batches)
        if problem == "regression":
            numbers = [result.number for result in results if isinstance(result, PredictedNumber)]
            columns = labels.ids.view(np.float32).astype(np.float64), np.array(numbers)
            return score_report(number_scores, *columns, notices=notices)
        if problem == "multi_label":
            rows = [[p > THRESHOLD for p in result.probabilities.values()] for result in results]
            wanted = np.zeros((len(rows), len(self.classes)), dtype=np.bool_)
            for row, numbers_of_labels in zip(wanted, labels, strict=True):
                row[numbers_of_labels] = True
            both = wanted, np.array(rows)
            counts = (wanted & both[1]).sum(0), wanted.sum(0), both[1].sum(0)
            classes = class_scores(*counts, self.classes)
            return score_report(label_scores, *both, classes=classes, notices=notices)
        expected: list[int] = labels.ids.tolist()
        places = {name: place for place, name in enumerate(self.classes)}
        predicted = [places[result.label] for result in results]
        return ClassificationEvaluation.of(expected, predicted, self.classes, notices)

    def read(
        self, files: Sequence[str | Path], encoding: str = "utf-8"
    ) -> tuple[LabelledExamples, list[str]]:
        """Return labelled texts from files, and notices about them."""
        notices: list[str] = []
        data = self.data
        config = replace(
            DataConfig(encoding=encoding), text_key=data.text_key, label_key=data.label_key,
            text_pair_key=data.text_pair_key,
        )  # fmt: skip
        files = evaluation_files(files, "labelled")
        examples = read_labelled(files, config, notices)
        if PAIR in examples.texts[0] and self.pairs == "no":
            raise DataError(
                f"{files[0]} has pairs of texts, and {self.name} reads single texts. Name their "
                "column as in training.",
                "no_pairs",
            )
        return examples, notices
