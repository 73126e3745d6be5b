"""Answers in a context: `QuestionAnswerer.from_dir("runs/qa").answer("누가 왔나?", context)`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar

import numpy as np

from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import LabelledExamples, read_labelled
from polyhead.data.question_files import QUESTIONS, answers_of
from polyhead.data.word_pieces import WordEncoder, windows_of
from polyhead.errors import ConfigError, DataError, check_list
from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import Interval
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.question_answering import (
    Answer,
    SpanSearch,
    rank_answers,
    read_windows,
    score_answer,
)
from polyhead.metrics.tagging import ratio_interval
from polyhead.models.registry import Task
from polyhead.pipelines.base import Pipeline

NAMES = ("exact match", "F1", "character F1")


@dataclass(frozen=True)
class AnsweredQuestion:
    """The best answer to a question, and the next ones; an empty text means no answer."""

    question: str
    answer: Answer
    alternatives: tuple[Answer, ...]


@dataclass(frozen=True)
class AnswerEvaluation:
    """Exact match and F1 (SQuAD), character F1 (KorQuAD), with 95 % bootstrap intervals."""

    exact_match: float
    f1: float
    character_f1: float
    intervals: tuple[Interval, Interval, Interval]
    n_examples: int
    notices: tuple[str, ...]

    def __str__(self) -> str:
        values = (self.exact_match, self.f1, self.character_f1)
        rows = [
            f"{name:<12}  {value:.4f}  [{spread.low:.4f}, {spread.high:.4f}]"
            for name, value, spread in zip(NAMES, values, self.intervals, strict=True)
        ]
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} questions"
        return "\n".join([*rows, f"intervals: {samples}"])


@dataclass(frozen=True, repr=False)
class QuestionAnswerer(Pipeline):
    """A model that finds the answer to a question in a context."""

    tasks: ClassVar[tuple[Task, ...]] = ("question_answering",)
    use: ClassVar[str] = "answer"

    @cached_property
    def encoder(self) -> WordEncoder:
        """The encoder of single words."""
        return WordEncoder(self.tokenizer)

    def search(self, top: int = 5, threshold: float | None = None) -> SpanSearch:
        """Return the options of a search; "no answer" is allowed if it was trained, or given."""
        if threshold is None and self.saved.about.get("no_answer") is True:
            threshold = 0.0
        return SpanSearch(self.data.max_answer, top, None if threshold is None else -threshold)

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
        if not question.strip() or not context.strip():
            raise DataError("expected a question and a context, not an empty text", "empty_text")
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1", "out_of_range")
        return self.answer_all([(question, context)], self.search(top, threshold))[0]

    def answer_all(
        self,
        questions: Sequence[tuple[str, str]],
        search: SpanSearch,
        *,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> list[AnsweredQuestion]:
        """Return the answers to questions, each with its context."""
        length, stride = self.max_length, self.data.stride
        groups = [
            windows_of(self.encoder, *pair, max_length=length, stride=stride) for pair in questions
        ]
        windows = list(chain.from_iterable(groups))
        scored = iter(
            read_windows(self.model, windows, search, map_batches=map_batches, progress=progress)
        )
        results = []
        for (question, context), group in zip(questions, groups, strict=True):
            best, *others = rank_answers(context, [next(scored) for _ in group], search)
            results.append(AnsweredQuestion(question, best, tuple(others)))
        return results

    def evaluate(self, files: Sequence[str | Path]) -> AnswerEvaluation:
        """Return the scores on files of questions, contexts and answers."""
        check_list(files, "evaluate", "files")
        return self.evaluate_examples(*self.read(files))

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> AnswerEvaluation:
        """Return the scores on examples that were read before."""
        pairs = [(question, context) for question, _, context in map(_parts, examples.texts)]
        results = self.answer_all(pairs, self.search(1), progress=progress, map_batches=map_batches)
        rights = [[text for _, text in answers_of(label)] for label in examples.labels]
        scores = np.array([
            score_answer(result.answer.text, right)
            for result, right in zip(results, rights, strict=True)
        ])  # fmt: skip
        exact, f1, character_f1 = scores.mean(0).tolist()
        ones = np.ones(len(scores))
        first, second, third = (ratio_interval(column, ones) for column in scores.T)
        intervals = (first, second, third)
        return AnswerEvaluation(exact, f1, character_f1, intervals, len(examples), tuple(notices))

    def read(
        self, files: Sequence[str | Path], encoding: str = "utf-8"
    ) -> tuple[LabelledExamples, list[str]]:
        """Return questions with contexts and answers from files, and notices about them."""
        notices: list[str] = []
        return read_labelled(files, DataConfig(encoding=encoding), notices, QUESTIONS), notices


def _parts(text: str) -> tuple[str, str, str]:
    return text.partition("\t")
