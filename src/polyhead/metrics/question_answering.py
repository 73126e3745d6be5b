"""Answers as parts of a context: search for the best one, exact match and F1.

The score of a span is the sum of its two logits. All spans of at most `max_answer` tokens inside
the context are compared, in all windows of a long one. The first token stands for "no answer": its
score is the lowest of all windows, as every window must deny an answer. The probability of a span
is its share among all of them and, where that is allowed, "no answer".

    exact match    normalised answers are equal: lower case, no punctuation, no a, an, the
    F1             of words, both as SQuAD's script (Rajpurkar et al. 2016)
    character F1   of characters without spaces, as KorQuAD's script (Lim et al. 2019)
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.batches.base import pad
from polyhead.data.batches.labelled import segments_of
from polyhead.data.word_pieces import Window
from polyhead.metrics.perplexity import MapBatches, map_by_length, map_here
from polyhead.metrics.predictions import ScoreReport, Scores, score_report
from polyhead.special_tokens import PAD

NAMES = ("exact_match", "f1", "character_f1")
MARKS = frozenset(string.punctuation)
BRACKETS = re.compile("['\"《》<>〈〉()‘’]")  # KorQuAD's
Span = tuple[float, int, int]  # score, first token (or character), last one (or the end)


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
    starts: Float[Tensor, "length"],
    ends: Float[Tensor, "length"],
    allowed: Bool[Tensor, "length"],
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


@torch.inference_mode()
def find_answers(
    model: Any,
    pairs: Sequence[tuple[str, Sequence[Window]]],
    search: SpanSearch,
    *,
    map_batches: MapBatches = map_here,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[list[list[FoundAnswer]], float]:
    """Return the best answers in each context, given with its windows, and the mean loss."""
    device = next(model.parameters()).device
    windows = [window for _, group in pairs for window in group]

    def read(numbers: list[int]) -> list[list[Any]]:
        ids = pad([windows[n].ids for n in numbers]).to(device)
        logits = span_logits(model, ids).cpu()
        progress(len(numbers))
        return [_scores_of(windows[n], row, search) for n, row in zip(numbers, logits, strict=True)]

    rows = map_by_length(read, [len(window.ids) for window in windows], map_batches)
    scores = [WindowScores([(s, i, j) for s, i, j in spans], *rest) for spans, *rest in rows]
    left = iter(scores)
    answers = [
        rank_answers(context, [next(left) for _ in group], search) for context, group in pairs
    ]
    return answers, sum(score.loss for score in scores) / max(1, len(scores))


def span_logits(model: Any, ids: Tensor) -> Float[Tensor, "batch length 2"]:
    """Return the logits of start and end, -∞ at padding."""
    logits: Tensor = model(ids, segments_of(ids)).float()
    return logits.masked_fill((ids == PAD).unsqueeze(-1), -math.inf)


def _scores_of(window: Window, logits: Float[Tensor, "length 2"], search: SpanSearch) -> list[Any]:
    """Return the fields of `WindowScores`, as values that JSON can hold."""
    allowed = torch.zeros(len(logits), dtype=torch.bool)
    allowed[window.first : window.first + len(window.places)] = True
    spans, log_total = best_spans(logits[:, 0], logits[:, 1], allowed, search)
    placed = [
        [score, window.places[i - window.first][0], window.places[j - window.first][1]]
        for score, i, j in spans
    ]
    loss = F.cross_entropy(logits.T, torch.tensor(window.span))
    return [placed, log_total, float(logits[0].sum()), float(loss)]


def rank_answers(
    context: str, windows: Sequence[WindowScores], search: SpanSearch
) -> list[FoundAnswer]:
    """Return the best answers of all windows with different places, "" for no answer."""
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


def score_answers(
    answers: Sequence[Sequence[FoundAnswer]],
    rights: Sequence[Sequence[str]],
    notices: Sequence[str] = (),
) -> ScoreReport:
    """Compare the best answers with the right ones, of which there may be several or none."""
    pairs = zip(answers, rights, strict=True)
    rows = np.array([score_answer(best[0].text, right) for best, right in pairs])

    def mean_scores(rows: Float[np.ndarray, "question 3"]) -> Scores:
        return dict(zip(NAMES, rows.mean(0).tolist(), strict=True))

    return score_report(mean_scores, rows, notices=notices)
