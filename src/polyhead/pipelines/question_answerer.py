"""Answers in a context: `QuestionAnswerer.from_dir("runs/qa").answer("누가 왔나?", context)`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from polyhead.data.labelled_text import ExampleForm, LabelledExamples
from polyhead.data.labels import NO_ANSWER, PAIR
from polyhead.data.question_files import QUESTIONS, answers_of
from polyhead.data.word_pieces import Window, windows_of
from polyhead.errors import ConfigError, DataError
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.predictions import ScoreReport
from polyhead.metrics.question_answering import (
    FoundAnswer,
    SpanSearch,
    find_answers,
    score_answers,
)
from polyhead.models.registry import TaskName
from polyhead.pipelines.tagger import WordPipeline
from polyhead.render import notebook


@dataclass(frozen=True)
class AnsweredQuestion:
    """The best answer to a question, and the next ones; an empty text means no answer."""

    question: str
    answer: FoundAnswer
    alternatives: tuple[FoundAnswer, ...]

    def _repr_html_(self) -> str:
        answers = (self.answer, *self.alternatives)
        rows = [
            [notebook.escape(span.text or NO_ANSWER), notebook.bar(span.probability)]
            for span in answers
        ]
        return notebook.table([self.question, "probability"], rows)


@dataclass(frozen=True, repr=False)
class QuestionAnswerer(WordPipeline):
    """A model that finds the answer to a question in a context."""

    tasks: ClassVar[tuple[TaskName, ...]] = ("question_answering",)
    use: ClassVar[str] = "answer"
    form: ClassVar[ExampleForm] = QUESTIONS

    def search(self, top: int = 5, threshold: float | None = None) -> SpanSearch:
        """Return the options of a search; "no answer" is allowed if it was trained, or given."""
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1", "out_of_range")
        if threshold is None and self.saved.about.get("no_answer") is True:
            threshold = 0.0
        return SpanSearch(self.data.max_answer, top, None if threshold is None else -threshold)

    def windows(self, question: str, context: str) -> list[Window]:
        """Return the question with all parts of its context, as the model reads them."""
        if not question.strip() or not context.strip():
            raise DataError("expected a question and a context, not an empty text", "empty_text")
        length, stride = self.max_length, self.data.stride
        return windows_of(self.encoder, question, context, max_length=length, stride=stride)

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
        return self.answer_all([(question, context)], self.search(top, threshold))[0]

    def answer_all(
        self,
        questions: Sequence[tuple[str, str]],
        search: SpanSearch,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[AnsweredQuestion]:
        """Return the answers to questions, each with its context."""
        pairs = [(context, self.windows(question, context)) for question, context in questions]
        answers, _ = find_answers(self.model, pairs, search, progress=progress)
        return [
            AnsweredQuestion(question, best[0], tuple(best[1:]))
            for (question, _), best in zip(questions, answers, strict=True)
        ]

    def evaluate(self, files: str | Path | Sequence[str | Path]) -> ScoreReport:
        """Return the scores on files of questions, contexts and answers.

        Example: `qa.evaluate("test.json").scores["f1"]`
        """
        return self.evaluate_examples(*self.read(files))

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ScoreReport:
        """Return the scores on examples that were read before."""
        rights = [answers_of(label) for label in examples.labels]
        limits = {"max_length": self.max_length, "stride": self.data.stride}
        pairs = []
        for text, right in zip(examples.texts, rights, strict=True):
            question, context = text.split(PAIR)
            pairs.append((context, windows_of(self.encoder, question, context, right, **limits)))
        answers, _ = find_answers(
            self.model, pairs, self.search(1), map_batches=map_batches, progress=progress
        )
        return score_answers(answers, [[text for _, text in right] for right in rights], notices)
