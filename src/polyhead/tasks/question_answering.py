"""Answers as parts of a context: readers, search, scores, and the task `question_answering`.

    SQuAD's JSON    versions 1.1 and 2 (with questions that have no answer); KorQuAD's is the same
    tables          columns question, context, and answer with its first character (answer_start),
                    or `answers` as Hugging Face's datasets write it

An example is kept as two lines: question, tab, context; and the answers as JSON,
[[start, text], …], which is empty if the context holds no answer. White space of the context
becomes spaces, one for one, so that offsets stay as they are.

The score of a span is the sum of its two logits. All spans of at most `max_answer` tokens inside
the context are compared, in all windows of a long one. The first token stands for "no answer": its
score is the lowest of all windows, as every window must deny an answer. The probability of a span
is its share among all of them and, where that is allowed, "no answer".

    exact match    normalised answers are equal: lower case, no punctuation, no a, an, the
    F1             of words, both as SQuAD's script (Rajpurkar et al. 2016)
    character F1   of characters without spaces, as KorQuAD's script (Lim et al. 2019)
"""

import json
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from polyhead.data.columns import Record, TwoColumns, show_pairs
from polyhead.data.config import DataConfig
from polyhead.data.labelled_text import ExampleForm
from polyhead.data.labels import NO_ANSWER, PAIR, join_pair
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import Examples
from polyhead.data.locate import find
from polyhead.data.tables import NotText, decoded_kind, open_table, shorten, text_problem
from polyhead.data.text_files import BadLine, excerpt, unpacked
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError
from polyhead.metrics.predictions import ScoreReport, Scores, score_report
from polyhead.render import notebook
from polyhead.special_tokens import BOS, EOS
from polyhead.tasks.base import (
    Facts,
    Measured,
    Stage,
    Task,
    TrainingCorpus,
    Used,
    map_parts,
    with_mask_token,
)
from polyhead.tasks.verbs import AnswerOptions
from polyhead.tasks.words import WordEncoder, position_batches, split_words, word_encoder
from polyhead.tokenizers.storage import TokenizerPair

if TYPE_CHECKING:
    from torch import Tensor

    from polyhead.metrics.perplexity import MapBatches

NAMES = {  # of columns, in lower case
    "question": "question|query|질문",
    "context": "context|passage|paragraph|본문|지문",
    "answer": "answers?|answer_text|정답|답",
    "start": "answer_start|start|시작",
}
SPACE = re.compile(r"\s")
PLACE = re.compile(r"\d{1,9}")
SCORES = ("exact_match", "f1", "character_f1")
MARKS = frozenset(string.punctuation)
BRACKETS = re.compile("['\"《》<>〈〉()‘’]")  # KorQuAD's
Span = tuple[float, int, int]  # score, first token (or character), last one (or the end)


# Examples


def read_questions(path: str | Path, config: DataConfig) -> TwoColumns:
    """Read questions with contexts and answers; the notices show the first."""
    articles = _squad(path, config.encoding)
    if articles is not None:
        name, notices, records = str(path), tuple[str, ...](), _from_squad(str(path), articles)
    else:
        table = open_table(path, encoding=config.encoding).with_header()
        name, notices = table.name, table.notices
        records = _from_rows(name, table.columns or (), chain(table.sample, table.rest))
    head = list(islice(records, 2))
    shown = [(r.first.split(PAIR)[0], r.second) for r in head if not r.bad]
    if shown:
        notices = (*notices, f"{name}: {show_pairs(shown)}")
    return TwoColumns(name, chain(head, records), notices, None)


def answers_of(label: str) -> list[tuple[int, str]]:
    """Return the answers of an example: first character and text."""
    return [(int(start), str(text)) for start, text in json.loads(label)]


def _squad(path: str | Path, encoding: str) -> list[Any] | None:
    """Return the articles of a file in SQuAD's form, which may be one line; None for others."""
    place = find(path)
    if not place.is_file() or decoded_kind(place):
        return None
    with place.open("rb") as stream:
        content = b"".join(unpacked(stream, str(path)))
    try:
        whole = json.loads(
            content.decode(encoding).removeprefix("\ufeff")
        )  # JSON lines end it at the second
    except (ValueError, RecursionError):
        return None
    articles = whole.get("data") if isinstance(whole, dict) else None
    return articles if isinstance(articles, list) else None


def _from_squad(name: str, articles: Sequence[Any]) -> Iterator[Record]:
    """Yield the questions; their `line` is their number in the file, from 1."""
    number = 0
    for article in articles:
        for paragraph in _objects(article, "paragraphs"):
            for item in _objects(paragraph, "qas"):
                number += 1
                answers = [] if item.get("is_impossible") else _answers(item.get("answers", []))
                yield _record(name, number, item.get("question"), paragraph.get("context"), answers)


def _objects(parent: object, key: str) -> list[dict[str, Any]]:
    """Return a list of objects; of anything else an empty object, which is a bad example."""
    values = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(values, list):
        return [{}]
    return [value if isinstance(value, dict) else {} for value in values]


def _answers(value: object) -> list[tuple[Any, Any]]:
    """Return texts and starts of a list of objects, or of an object of lists; else a bad answer."""
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return [(item.get("text"), item.get("answer_start")) for item in value]
    table = value if isinstance(value, dict) else {}
    texts, starts = table.get("text"), table.get("answer_start")
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        return [(None, None)]
    return list(zip(texts, starts, strict=True))


def _from_rows(name: str, header: Sequence[str], rows: Iterator[Any]) -> Iterator[Record]:
    """Yield the questions of a table."""
    places: dict[str, int] = {}
    for role, pattern in NAMES.items():
        named = [n for n, title in enumerate(header) if re.fullmatch(pattern, title.lower())]
        places |= {role: named[0]} if len(named) == 1 else {}
    if missing := [role for role in ("question", "context", "answer") if role not in places]:
        raise DataError(
            f"{name}: no column {missing[0]!r}; it has {shorten(header)}. Expected question, "
            "context, answer and answer_start, or a file in SQuAD's form.",
            "unclear_columns",
        )
    for row in rows:
        if row.bad is not None or not any(row.cells):
            yield Record(row.line, "", "", row.bad)
            continue
        cells = {role: row.cells[n] for role, n in places.items() if n < len(row.cells)}
        answer, start = cells.get("answer"), cells.get("start", "")
        place = int(start) if isinstance(start, str) and PLACE.fullmatch(start) else None
        answers = [(answer, place)] if answer else []
        if isinstance(answer, NotText):
            answers = _answers(answer.value)
        yield _record(name, row.line, cells.get("question"), cells.get("context"), answers)


def _record(
    name: str, line: int, question: object, context: object, answers: Sequence[tuple[Any, Any]]
) -> Record:
    """Return an example, or why it cannot be used."""
    problem = ""
    if not isinstance(question, str) or not isinstance(context, str) or not context.strip():
        question = context = ""
        problem = "no question or no context"
    problem = problem or text_problem(question) or text_problem(context)
    checked: list[tuple[int, str]] = []
    for text, start in answers:
        if start is None and isinstance(text, str) and context.count(text) == 1:
            start = context.index(text)
        if not isinstance(text, str) or type(start) is not int:
            problem = problem or f"the answer {excerpt(str(text))} has no place in the context"
        elif not text.strip() or context[start : start + len(text)] != text or start < 0:
            problem = problem or f"the answer {excerpt(text)} does not stand at character {start}"
        else:
            checked.append((start, SPACE.sub(" ", text)))
    if problem:
        return Record(line, "", "", BadLine(name, line, problem))
    first = join_pair(" ".join(question.split()), SPACE.sub(" ", context))
    return Record(line, first, json.dumps(checked, ensure_ascii=False))


QUESTIONS = ExampleForm(read_questions, group=lambda text: text.partition(PAIR)[2], problem="spans")


class Window(NamedTuple):
    """A question and a part of its context: BOS question EOS part EOS.

    first: the position of the first token of the part.
    places: the characters of each token of the part in the context.
    span: the positions of the first and last token of the answer; (0, 0) if it is not inside.
    """

    ids: list[int]
    first: int
    places: list[tuple[int, int]]
    span: tuple[int, int] = (0, 0)


def windows_of(
    encoder: WordEncoder,
    question: str,
    context: str,
    answers: Sequence[tuple[int, str]] = (),
    *,
    max_length: int,
    stride: int,
) -> list[Window]:
    """Return a question with all parts of its context, which overlap if there are several.

    answers: first character and text of each; the first one is the label.
    stride: tokens between the starts of two parts, at most as many as a part has.
    """
    head = [piece.id for word in question.split() for piece in encoder(word)]
    head = head[: max_length // 2 - 1]
    ids: list[int] = []
    places: list[tuple[int, int]] = []
    for start, end in split_words(context, "spaces"):
        for piece in encoder(context[start:end]):
            ids.append(piece.id)
            places.append((start + piece.start, start + piece.end))
    inside: list[int] = []
    for first, text in answers[:1]:
        end = first + len(text)
        inside = [n for n, place in enumerate(places) if place[0] < end and place[1] > first]
    room, offset = max_length - len(head) - 3, len(head) + 2
    windows: list[Window] = []
    for at in range(0, len(ids), min(stride, room)):
        if windows and at - min(stride, room) + room >= len(ids):
            break
        span = (0, 0)
        if inside and at <= inside[0] and inside[-1] < at + room:
            span = (offset + inside[0] - at, offset + inside[-1] - at)
        part = slice(at, at + room)
        pair = [BOS, *head, EOS, *ids[part], EOS]
        windows.append(Window(pair, offset, places[part], span))
    return windows


# Search


@dataclass(frozen=True)
class FoundAnswer:
    """A part of a context, `context[start:end]`, and its probability; "" where there is none."""

    text: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class SpanSearch:
    """Options of the search; `no_answer` None allows none, else it is added to its score."""

    max_answer: int = 30  # tokens
    top: int = 5
    no_answer: float | None = None


@dataclass(frozen=True)
class WindowScores:
    """The best spans of a window in characters of the context, and sums over all of its spans."""

    spans: list[Span]
    log_total: float  # log Σ exp(score)
    no_answer: float
    loss: float  # of the labels of the window


def best_spans(
    starts: "Float[Tensor, 'length']",
    ends: "Float[Tensor, 'length']",
    allowed: "Bool[Tensor, 'length']",
    search: SpanSearch,
) -> tuple[list[Span], float]:
    """Return the best spans of allowed positions, and log Σ exp(score) over all of them."""
    scores = starts.unsqueeze(1) + ends.unsqueeze(0)
    pairs = (allowed.unsqueeze(1) & allowed).triu().tril(search.max_answer - 1)
    scores = scores.masked_fill(~pairs, -math.inf).flatten()
    best = scores.topk(min(search.top, int(pairs.sum())))
    best_pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    spans = [(score, place // len(starts), place % len(starts)) for score, place in best_pairs]
    return spans, float(scores.logsumexp(0))


def _scores_of(
    window: Window, logits: "Float[Tensor, 'length 2']", search: SpanSearch
) -> list[Any]:
    """Return the fields of `WindowScores`, as values that JSON can hold."""
    import torch
    from torch.nn.functional import cross_entropy

    allowed = torch.zeros(len(logits), dtype=torch.bool)
    allowed[window.first : window.first + len(window.places)] = True
    spans, log_total = best_spans(logits[:, 0], logits[:, 1], allowed, search)
    placed = [
        [score, window.places[i - window.first][0], window.places[j - window.first][1]]
        for score, i, j in spans
    ]
    loss = cross_entropy(logits.T, torch.tensor(window.span))
    return [placed, log_total, float(logits[0].sum()), float(loss)]


def rank_answers(
    context: str, windows: Sequence[WindowScores], search: SpanSearch
) -> list[FoundAnswer]:
    """Return the best answers of all windows with different places, "" for no answer."""
    import torch

    scores: dict[tuple[int, int], float] = {}
    for score, start, end in (span for window in windows for span in window.spans):
        scores[start, end] = max(score, scores.get((start, end), -math.inf))
    totals = [window.log_total for window in windows]
    if search.no_answer is not None:
        scores[0, 0] = min(window.no_answer for window in windows) + search.no_answer
        totals.append(scores[0, 0])
    total = float(torch.tensor(totals).logsumexp(0))
    ranked = sorted(scores.items(), key=lambda item: -item[1])[: search.top]
    return [
        FoundAnswer(context[start:end], start, end, min(1.0, math.exp(score - total)))
        for (start, end), score in ranked
    ]


# Scores


def normalise_squad(text: str) -> str:
    """Return an answer as SQuAD's script compares it."""
    text = "".join(character for character in text.lower() if character not in MARKS)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def normalise_korquad(text: str) -> str:
    """Return an answer as KorQuAD's script compares it."""
    text = BRACKETS.sub(" ", text).lower()
    return " ".join("".join(c for c in text if c not in MARKS).split())


def bag_f1(predicted: Sequence[str], expected: Sequence[str]) -> float:
    """Return the F1 of two bags; 1 if both are empty."""
    if not predicted or not expected:
        return float(predicted == expected)
    return 2 * (Counter(predicted) & Counter(expected)).total() / (len(predicted) + len(expected))


def score_answer(predicted: str, expected: Sequence[str]) -> tuple[float, float, float]:
    """Return exact match, F1 and character F1, each with the answer that fits best."""
    rights = expected or [""]
    squad, korquad = normalise_squad(predicted), normalise_korquad(predicted)
    bare = korquad.replace(" ", "")
    return (
        max(float(squad == normalise_squad(right)) for right in rights),
        max(bag_f1(squad.split(), normalise_squad(right).split()) for right in rights),
        max(bag_f1(list(bare), list(normalise_korquad(r).replace(" ", ""))) for r in rights),
    )


def score_answers(answers: Sequence[str], rights: Sequence[Sequence[str]]) -> ScoreReport:
    """Compare answers with the right ones, of which there may be several or none."""
    rows = np.array([score_answer(*pair) for pair in zip(answers, rights, strict=True)])

    def mean_scores(rows: Float[np.ndarray, "question 3"]) -> Scores:
        return dict(zip(SCORES, rows.mean(0).tolist(), strict=True))

    return score_report(mean_scores, rows)


# The task


@dataclass(frozen=True)
class AnsweredQuestion:
    """The best answer to a question, and the next ones; an empty text means no answer."""

    question: str
    answer: FoundAnswer
    alternatives: tuple[FoundAnswer, ...]

    def __str__(self) -> str:
        return self.answer.text

    def _repr_html_(self) -> str:
        answers = (self.answer, *self.alternatives)
        rows = [
            [notebook.escape(span.text or NO_ANSWER), notebook.bar(span.probability)]
            for span in answers
        ]
        return notebook.table([self.question, "probability"], rows)


@dataclass(frozen=True)
class QuestionInput:
    """A question with all parts of its context, as windows that a model reads."""

    question: str
    context: str
    parts: list[Window]

    @property
    def text(self) -> str:
        return join_pair(self.question, self.context)


class QuestionAnswering(Task[QuestionInput, list[WindowScores], AnsweredQuestion]):
    """Find the answers to questions in contexts."""

    name, verb, tag = "question_answering", "answer", "question-answering"
    metrics = ("loss", *SCORES)
    result_class = AnsweredQuestion
    pipeline = "polyhead.pipelines.task_pipeline:QuestionAnswerer"
    form, examples = QUESTIONS, "questions with their contexts"
    fields = ("question", "context")

    def facts(self, data: TrainingCorpus) -> Facts:
        config = replace(data.config, model=with_mask_token(data.config, data.tokenizers))
        return Facts(config, {"no_answer": NO_ANSWER in data.corpus.classes, "pairs": True})

    def encode(
        self, tokenizers: TokenizerPair, columns: Sequence[Sequence[str]], form: StoreForm
    ) -> tuple[list[TokenSequences], int]:
        """Labels are the positions of the first and last token of the answer, from 1 on."""
        encoder, n_cut = WordEncoder(tokenizers.source), 0
        texts: list[list[int]] = []
        labels: list[list[int]] = []
        for text, label in zip(*columns, strict=True):
            question, context = text.split(PAIR)
            windows = windows_of(
                encoder, question, context, answers_of(label),
                max_length=form.max_length, stride=form.stride,
            )  # fmt: skip
            n_cut += len(windows) > 1
            texts += [window.ids for window in windows]
            labels += [[place + 1 for place in window.span] for window in windows]
        sides = zip((texts, labels), form.sizes(tokenizers), strict=True)
        return [TokenSequences.of(*side) for side in sides], n_cut

    def batches(self, data: TrainingCorpus) -> Any:
        return position_batches(data)

    def loss(self, _config: Any, _about: Mapping[str, Any]) -> Any:
        from polyhead.tasks.losses import SpanLoss

        return SpanLoss()

    def read(self, used: Used, rows: Sequence[tuple[str, ...]]) -> list[QuestionInput]:
        if not all(text.strip() for row in rows for text in row):
            raise DataError("expected a question and a context, not an empty text", "empty_text")
        return [self._input(used, question, context) for question, context in rows]

    def example(self, used: Used, examples: Examples) -> list[QuestionInput]:
        rows = zip(examples.texts, examples.labels, strict=True)
        inputs = []
        for text, label in rows:
            question, context = text.split(PAIR)
            inputs.append(self._input(used, question, context, answers_of(label)))
        return inputs

    def _input(
        self, used: Used, question: str, context: str, answers: Sequence[tuple[int, str]] = ()
    ) -> QuestionInput:
        windows = windows_of(
            word_encoder(used), question, context, answers,
            max_length=used.max_length, stride=used.data.stride,
        )  # fmt: skip
        return QuestionInput(question, context, windows)

    def run(
        self, used: Used, inputs: Sequence[QuestionInput], options: AnswerOptions,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> list[list[WindowScores]]:  # fmt: skip
        """Return the best spans of every window."""
        from polyhead.tasks.losses import span_logits

        search = span_search(used, options)

        def compute(ids: Any, windows: list[Window]) -> list[Any]:
            logits = span_logits(used.model, ids).cpu()
            return [_scores_of(w, row, search) for w, row in zip(windows, logits, strict=True)]

        rows = map_parts(compute, used, inputs, map_batches, progress)
        return [
            [WindowScores([(s, i, j) for s, i, j in spans], *rest) for spans, *rest in windows]
            for windows in rows
        ]

    def result(
        self, used: Used, given: QuestionInput, output: list[WindowScores], options: AnswerOptions
    ) -> AnsweredQuestion:
        best, *others = rank_answers(given.context, output, span_search(used, options))
        return AnsweredQuestion(given.question, best, tuple(others))

    def measure(
        self, used: Used, inputs: Sequence[QuestionInput], labels: Sequence[str], _stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return the loss by window, exact match, and F1 of words and characters."""
        options = AnswerOptions(top=1)
        outputs = self.run(used, inputs, options, map_batches, progress)
        both = zip(inputs, outputs, strict=True)
        answers = [self.result(used, *pair, options).answer.text for pair in both]
        rights = [[text for _, text in answers_of(label)] for label in labels]
        scores = score_answers(answers, rights)
        losses = [window.loss for windows in outputs for window in windows]
        return Measured({"loss": sum(losses) / max(1, len(losses)), **scores.scores}, scores)

    def row(self, result: AnsweredQuestion, _options: AnswerOptions) -> str:
        answers = (result.answer, *result.alternatives)
        return "".join(f"{a.text or '(no answer)'}\t{a.probability:.4f}\n" for a in answers)


def span_search(used: Used, options: AnswerOptions) -> SpanSearch:
    """Return the options of a search; "no answer" is allowed if it was trained, or given."""
    threshold = options.threshold
    if threshold is None and used.about.get("no_answer") is True:
        threshold = 0.0
    return SpanSearch(used.data.max_answer, options.top, None if threshold is None else -threshold)
