"""The pipeline of any task of `polyhead.tasks`, and the typed ones of the tasks of the package."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, overload

from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.labelled_text import LabelledExamples, read_labelled
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.predictions import ScoreReport
from polyhead.pipelines.base import ClassifierPipeline, Pipeline
from polyhead.pipelines.result_list import ResultList, Shown, as_texts
from polyhead.plugin_registry import resolve
from polyhead.tasks.base import Task, Used
from polyhead.tasks.question_answering import AnsweredQuestion, QuestionAnswering
from polyhead.tasks.tagging import TaggedText, Tagging, TaggingReport
from polyhead.tasks.verbs import AnswerOptions, build_options

R = TypeVar("R", bound=Shown)
S = TypeVar("S")  # a report


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
        return Used(self.model, self.tokenizers, self.max_length, self.name, about, self.data)

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
        self, files: str | Path | Sequence[str | Path], encoding: str = "utf-8"
    ) -> tuple[LabelledExamples, list[str]]:
        """Return examples from files as in training, and notices about them."""
        notices: list[str] = []
        config = replace(self.data, encoding=encoding)
        names = evaluation_files([files] if isinstance(files, str | Path) else files, "labelled")
        return read_labelled(names, config, notices, self.task.form), notices

    def evaluate(self, files: str | Path | Sequence[str | Path]) -> S:
        """Return the scores on files with the same columns as in training.

        Example: `polyhead.load("runs/names").evaluate("test.conll")`
        """
        return self.evaluate_examples(*self.read(files))

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> S:
        """Return the scores on examples that were read before."""
        inputs = self.task.example(self.used, examples)
        measured = self.task.measure(
            self.used, inputs, examples.labels, "evaluate", map_batches, progress
        )
        report: Any = replace(measured.report, notices=tuple(notices))
        return report


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


def pipeline_of(task: Any) -> type[Pipeline]:
    """Return the pipeline class of a task, which a plug-in need not write."""
    kind: type[Pipeline] = resolve(task.pipeline)
    if kind is not TaskPipeline:
        return kind
    own = {"tasks": (task.name,), "use": task.verb, "task": task}
    return dataclass(frozen=True, repr=False)(type(f"{type(task).__name__}Pipeline", (kind,), own))
