"""The pipeline of any task of `polyhead.tasks`, and the typed ones of the tasks of the package."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar, overload

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.labelled_text import collect, open_examples
from polyhead.data.labels import PAIR
from polyhead.data.line_spool import Examples
from polyhead.errors import CheckpointError, ConfigError
from polyhead.metrics.bleu import check_lengths
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.predictions import ScoreReport
from polyhead.models.registry import FAMILIES, TASKS, TaskName, find_task
from polyhead.pipelines.base import ClassifierPipeline, ModelFiles, Pipeline
from polyhead.pipelines.result_list import ResultList, Shown, as_lines, as_texts
from polyhead.plugin_registry import resolve
from polyhead.render.notebook import MetricTable
from polyhead.special_tokens import BOS, MASK
from polyhead.tasks.base import Task, Used
from polyhead.tasks.masked_tokens import Detected, Filled, MaskedLM, ReplacedToken
from polyhead.tasks.question_answering import AnsweredQuestion, QuestionAnswering
from polyhead.tasks.sentence_embedding import SentenceEmbedding, TextEmbedding
from polyhead.tasks.tagging import TaggedText, Tagging, TaggingReport
from polyhead.tasks.text_classification import (
    Classification,
    ClassificationEvaluation,
    TextClassification,
    reads_pairs,
    with_pairs,
)
from polyhead.tasks.verbs import AnswerOptions, FillOptions, build_options
from polyhead.tokenizers.mask_tokens import encode_masked

R = TypeVar("R", bound=Shown)
S = TypeVar("S")  # a report
Files = str | Path | Sequence[str | Path]


class Attended(NamedTuple):
    """Ids whose attention is shown, with their text, a title, and the encoder that reads them."""

    ids: list[int]
    text: str
    title: str
    encoder: nn.Module


@dataclass(frozen=True, repr=False)
class TaskPipeline(ClassifierPipeline, Generic[R, S]):
    """A model of a task, ready to use."""

    task: ClassVar[Task[Any, Any, Any]]

    @cached_property
    def used(self) -> Used:
        """The model as its task uses it."""
        about = dict(self.saved.about)
        if "classes" in vars(self.saved.config):
            about["classes"] = self.classes
        sizes = self.saved.config
        return Used(
            self.model, self.saved.tokenizers, self.max_length, self.name, sizes, about, self.data
        )

    def for_verb(self, _verb: str) -> "TaskPipeline[Any, Any]":
        """Return the pipeline of a verb that the model has; most have one."""
        return self

    def attended(self, row: tuple[str, ...]) -> Attended:
        """Return what to show of an input: of one in several parts, the first."""
        (given,) = self.task.read(self.used, [row])
        (result,) = self.results([given], self.task.words.options())
        title = " → ".join(filter(None, (row[0].replace(PAIR, " / "), str(result))))
        encoder = self.model.get_submodule(self.task.encoder)
        return Attended(given.parts[0].ids, given.text, title, encoder)

    def apply(
        self,
        rows: Sequence[tuple[str, ...]],
        options: Any = None,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ResultList[R]:
        """Return the results of inputs, each with the texts that the task's `fields` name."""
        options = self.task.words.options() if options is None else options
        inputs = self.task.read(self.used, rows)
        return self.results(inputs, options, progress, map_batches)

    def results(
        self,
        inputs: Sequence[Any],
        options: Any,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ResultList[R]:
        """Return the results of inputs that the task has read."""
        outputs = self.task.run(self.used, inputs, options, map_batches, progress)
        both = zip(inputs, outputs, strict=True)
        return ResultList(self.task.result(self.used, *pair, options) for pair in both)

    @overload
    def __call__(self, texts: str) -> R: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(
        self, texts: Iterable[str], *, progress: Callable[[int], None] = ...
    ) -> ResultList[R]: ...
    def __call__(
        self, texts: str | Iterable[str], *, progress: Callable[[int], None] = lambda _: None
    ) -> R | ResultList[R]:
        """Return the result of a text, or of every text of a list, in their order.

        texts: one, or a list; long ones are read in parts, if the task reads all.
        progress: called with the number of parts of each batch.

        Example: `polyhead.load("runs/names")("세종대왕은 서울에서 태어났다.")`
        """
        rows = [(text,) for text in as_texts(texts, self.task.verb)]
        results = self.apply(rows, progress=progress)
        return results[0] if isinstance(texts, str) else results

    def read(
        self, files: Files, encoding: str = "utf-8", *, of_pairs: bool | None = None
    ) -> tuple[Examples, list[str]]:
        """Return examples from files with the columns of training, and notices about them.

        of_pairs: pairs without labels, as translators read; by default as in training.
        """
        if self.task.option == "text":
            return Examples(as_lines(files, "evaluate", encoding)), []
        form, notices = self.task.form, list[str]()
        if of_pairs is None:
            of_pairs = form.of_pairs and not self.data.labelled
        given = [files] if isinstance(files, str | Path) else files
        names = evaluation_files(given, "pairs" if of_pairs else "labelled")
        labelled, sides = (((), ((), (), names))) if of_pairs else (names, None)
        config = replace(self.data, encoding=encoding)
        records = open_examples(config, labelled, sides, notices, form)
        assert records is not None
        return collect(records), notices

    def evaluate(self, files: Files) -> S:
        """Return the scores on files with the same columns as in training.

        Example: `polyhead.load("runs/names").evaluate("test.conll")`
        """
        return self.evaluate_examples(*self.read(files))

    def evaluate_examples(
        self,
        examples: Any,  # `Examples`, or an `ImageSet`
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> S:
        """Return the scores on examples that were read before."""
        inputs = self.task.example(self.used, examples)
        measured = self.task.measure(
            self.used, inputs, examples.labels, "evaluate", map_batches, progress
        )
        report: Any = measured.report
        return replace(report, notices=tuple(notices)) if notices else report


@dataclass(frozen=True, repr=False)
class Tagger(TaskPipeline[TaggedText, TaggingReport]):
    """A model that gives every word of a text a tag."""

    tasks = (Tagging.name,)
    use, task = Tagging.verb, Tagging()
    tag = TaskPipeline.__call__


@dataclass(frozen=True, repr=False)
class QuestionAnswerer(TaskPipeline[AnsweredQuestion, ScoreReport]):
    """A model that finds the answer to a question in a context."""

    tasks = (QuestionAnswering.name,)
    use, task = QuestionAnswering.verb, QuestionAnswering()

    def answer(
        self, question: str, context: str, *, top: int = 5, threshold: float | None = None
    ) -> AnsweredQuestion:
        """Return the part of a context that answers a question, with its probability.

        context: of any length; a long one is read in windows.
        top: the number of answers, the best one included.
        threshold: of a model that knows questions without an answer (or if given): by how much the
            score of "no answer" must exceed that of the best answer; 0 unless given.

        Example: `qa.answer("어디에서 태어났나?", "세종은 한양에서 태어났다.").answer.text`
        """
        return self.answer_all([(question, context)], top=top, threshold=threshold)[0]

    def answer_all(
        self,
        questions: Sequence[tuple[str, str]],
        *,
        top: int = 5,
        threshold: float | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> ResultList[AnsweredQuestion]:
        """Return the answers to questions, each with its context; see `answer`."""
        options = build_options(AnswerOptions, {"top": top, "threshold": threshold})
        return self.apply(questions, options, progress)


@dataclass(frozen=True, repr=False)
class TextClassifier(TaskPipeline[Classification, ClassificationEvaluation | ScoreReport]):
    """A model that assigns texts, or pairs of texts, to classes, or a number to each."""

    tasks = (TextClassification.name,)
    use, task = TextClassification.verb, TextClassification()

    @property
    def problem(self) -> str:
        """The kind of its labels: "single_label", "multi_label" or "regression"."""
        return str(self.saved.config.problem)

    @property
    def pairs(self) -> Literal["no", "optional", "required"]:
        """The use of pairs of texts: "no", "optional" or "required"."""
        return reads_pairs(self.used)

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
        rows = with_pairs(as_texts(lines, "classify"), second)
        results = self.apply(rows, None, progress, map_batches)
        return results[0] if isinstance(lines, str) else results

    def evaluate(
        self,
        data: Files,
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
            examples, notices = self.read(data)
        else:
            rows = with_pairs(as_texts(data, "evaluate"), pair)
            texts = [given.text for given in self.task.read(self.used, rows)]
            check_lengths(texts, labels)
            examples, notices = Examples(texts, [str(label) for label in labels]), []
        return self.evaluate_examples(examples, notices, progress)


@dataclass(frozen=True, repr=False)
class SentenceEmbedder(TaskPipeline[TextEmbedding, ScoreReport]):
    """A model that gives every text a vector of length 1; similar texts have similar ones."""

    tasks = (SentenceEmbedding.name,)
    use, task = SentenceEmbedding.verb, SentenceEmbedding()

    def embed(
        self,
        lines: str | Sequence[str],
        *,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> Float[np.ndarray, "*texts width"]:
        """Return the vector of a text, or a row for every text of a list, as float32.

        lines: texts; of a long one the first `max_length` tokens are read.
        progress: called with the number of lines of each batch.
        map_batches: applies the model to all batches; several processes may share them.

        Example: `embedder.embed(["내일 회의가 있어요."]).shape`
        """
        if isinstance(lines, str):
            return self.embed([lines])[0]
        rows = [(line,) for line in as_texts(lines, "embed")]
        vectors = [result.embedding for result in self.apply(rows, None, progress, map_batches)]
        return np.array(vectors, dtype=np.float32).reshape(len(vectors), self.width)

    @property
    def width(self) -> int:
        """The number of components of a vector."""
        return int(self.saved.config.encoder.stack.d_model)

    def similarity(
        self, first: str | Sequence[str], second: str | Sequence[str]
    ) -> Float[np.ndarray, "*pairs"]:
        """Return the cosine of two texts, from -1 to 1, or of every text with every other.

        Example: `embedder.similarity("a dog", ["a cat", "the tax law"])`
        """
        return self.embed(first) @ self.embed(second).T


class MaskFiller(TaskPipeline[R, MetricTable]):
    """A model that predicts masked tokens, such as BERT or the generator of ELECTRA."""

    tasks: ClassVar[tuple[TaskName, ...]] = (MaskedLM.name, ReplacedToken.name)
    use: ClassVar[str] = MaskedLM.verb
    task: ClassVar[Task[Any, Any, Any]] = MaskedLM()

    @classmethod
    def from_saved(
        cls, saved: SavedModel, name: str, device: torch.device | str
    ) -> "MaskFiller[Any]":
        """Return the pipeline of a loaded model; see `Pipeline.from_saved`."""
        if cls is MaskFiller and FAMILIES[saved.family].task in ReplacedTokenDetector.tasks:
            return ReplacedTokenDetector.from_saved(saved, name, device)  # which fills too
        filler = super().from_saved(saved, name, device)
        if saved.config.vocab <= len(filler.tokenizer):
            raise CheckpointError(
                f"{name} has no id for {MASK}, so it cannot predict masked tokens", "no_mask_token"
            )
        return filler

    @property
    def max_length(self) -> int:
        """The number of positions of the model."""
        return int(self.saved.config.max_length)

    def attended(self, row: tuple[str, ...]) -> Attended:
        """Return a text with or without masks."""
        (text,), tokenizer = row, self.tokenizer
        ids = [BOS, *tokenizer.encode(text)]
        if MASK in text:
            ids = encode_masked(tokenizer, text, len(tokenizer)).ids
        return Attended(ids, text, text, self.model.get_submodule(self.task.encoder))

    @overload
    def fill(self, text: str, top: int = 5) -> Filled: ...  # type: ignore[overload-overlap]
    @overload
    def fill(self, text: Iterable[str], top: int = 5) -> ResultList[Filled]: ...
    def fill(self, text: str | Iterable[str], top: int = 5) -> Filled | ResultList[Filled]:
        """Return the likeliest words for every [MASK] of a text, or of every text of a list.

        Only ids that fit are allowed: after a space those that begin a word, else those that
        continue one. Probabilities are shares among them.

        text: with at least one [MASK].
        top: the number of guesses for each [MASK], and of fillings of all of them.

        Example: `filler.fill("오늘은 [MASK]이다").blanks[0][0].text`
        """
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1", "out_of_range")
        rows = [(line,) for line in as_texts(text, "fill")]
        results: ResultList[Filled] = self.for_verb("fill").apply(rows, FillOptions(top))
        return results[0] if isinstance(text, str) else results


@dataclass(frozen=True, repr=False)
class ReplacedTokenDetector(MaskFiller[Detected]):
    """An ELECTRA: its discriminator detects replaced words, its generator predicts masked ones."""

    tasks = (ReplacedToken.name,)
    use, task = ReplacedToken.verb, ReplacedToken()

    @cached_property
    def _filler(self) -> MaskFiller[Filled]:
        saved = replace(self.saved, model=self.model.get_submodule("generator"))
        return MaskFiller(ModelFiles(self.name, str(self.device), saved))

    def for_verb(self, verb: str) -> "MaskFiller[Filled] | ReplacedTokenDetector":
        """Return a pipeline of the generator that fills, or this one."""
        return self._filler if verb == "fill" else self

    def attended(self, row: tuple[str, ...]) -> Attended:
        """Return what the generator reads of a text with masks, the discriminator of others."""
        return self._filler.attended(row) if MASK in row[0] else super().attended(row)

    detect = TaskPipeline.__call__


def plugin_tasks() -> list[Task[Any, Any, Any]]:
    """Return the tasks that plug-ins have registered."""
    return [find_task(name) for name in TASKS if TASKS.plugin_of(name) is not None]


def pipeline_of(task: Any) -> type[Pipeline]:
    """Return the pipeline class of a task."""
    kind: type[Pipeline] = resolve(task.pipeline)
    own: Any = type(task)
    return _pipeline_of_plugin(own) if kind is TaskPipeline else kind


@cache
def _pipeline_of_plugin(kind: type[Task[Any, Any, Any]]) -> type[Pipeline]:
    own = {"tasks": (kind.name,), "use": kind.verb, "task": kind()}
    return dataclass(frozen=True, repr=False)(type(f"{kind.__name__}Model", (TaskPipeline,), own))
