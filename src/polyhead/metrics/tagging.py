"""Tags of words: prediction, and precision, recall and F1 of entities, as conlleval counts them.

An entity is right if its first word, last word and type are right. It starts at B-X or S-X, or at
any X that does not continue an entity of that type; it ends before another one, before O, and after
E-X or S-X (Tjong Kim Sang and De Meulder 2003). L- is E-, and U- is S-.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from polyhead.data.batches.base import pad
from polyhead.data.labelled_text import class_numbers
from polyhead.data.tagged_text import are_chunks
from polyhead.data.word_pieces import WordEncoder, parts_of_words
from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import (
    ClassificationReport,
    ClassScore,
    Interval,
    report,
    score_table,
)
from polyhead.metrics.perplexity import MapBatches, map_by_length, map_here

BEGIN, END = "BSU", "ESLU"  # tags that start an entity, and that end one
Rows = list[list[float]]  # of each word, the logits or probabilities of all tags


class Entity(NamedTuple):
    """An entity: its first word, the end, and its type."""

    first: int
    end: int
    type: str


@dataclass(frozen=True)
class EntityReport:
    """Scores of all entities, and of each type; F1 with its 95 % bootstrap interval."""

    precision: float
    recall: float
    f1: float
    interval: Interval
    types: tuple[ClassScore, ...]

    def __str__(self) -> str:
        total = f"entities: precision {self.precision:.4f}  recall {self.recall:.4f}"
        spread = f"[{self.interval.low:.4f}, {self.interval.high:.4f}]"
        return "\n".join([f"{total}  F1 {self.f1:.4f} {spread}", "", *score_table(self.types)])


@dataclass(frozen=True)
class TaggingReport:
    """Scores of the tags of words, and of entities if the tags mark any; loss by word."""

    report: ClassificationReport
    accuracy: Interval
    entities: EntityReport | None
    loss: float
    n_examples: int

    def __str__(self) -> str:
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} sentences"
        interval = f"{samples}: accuracy [{self.accuracy.low:.4f}, {self.accuracy.high:.4f}]"
        by_entity = "" if self.entities is None else f"\n\n{self.entities}"
        return f"{self.report}\n\n{interval}{by_entity}"

    @property
    def f1(self) -> float:
        """F1 of the entities; without any, the mean over the tags."""
        return self.report.macro_f1 if self.entities is None else self.entities.f1


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, in order."""
    chunks: list[Entity] = []
    first, kind, before = None, "", "O"
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        continues = prefix not in (*BEGIN, "O") and name == kind and before not in END
        if first is not None and not continues:
            chunks.append(Entity(first, place, kind))
            first = None
        if first is None and prefix != "O":
            first = place
        kind, before = name, prefix
    return chunks


def entity_report(
    expected: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> EntityReport:
    """Compare the entities of sentences, given by the tags of their words."""
    counts = {name: Counter[str]() for name in ("hits", "expected", "predicted")}
    hits, both = np.zeros(len(expected)), np.zeros(len(expected))
    for number, sides in enumerate(zip(expected, predicted, strict=True)):
        right, given = (set(entities(tags)) for tags in sides)
        hits[number], both[number] = len(right & given), len(right) + len(given)
        for name, group in (("hits", right & given), ("expected", right), ("predicted", given)):
            counts[name].update(entity.type for entity in group)
    types = sorted(counts["expected"] | counts["predicted"])
    scores = [_score(name, *(counts[part][name] for part in counts)) for name in types]
    total = _score("all", *(counts[part].total() for part in counts))
    spread = ratio_interval(2 * hits, both)
    return EntityReport(total.precision, total.recall, total.f1, spread, tuple(scores))


def _score(name: str, hits: int, n_expected: int, n_predicted: int) -> ClassScore:
    precision, recall = hits / max(1, n_predicted), hits / max(1, n_expected)
    f1 = 2 * hits / max(1, n_expected + n_predicted)
    return ClassScore(name, precision, recall, f1, n_expected)


def ratio_interval(parts: np.ndarray, wholes: np.ndarray) -> Interval:
    """Return the 95 % interval of Σ parts / Σ wholes; bootstrap samples are drawn by example."""
    rng, n = np.random.default_rng(0), len(parts)
    values = np.zeros(SAMPLES)
    for sample in range(SAMPLES):
        drawn = rng.integers(n, size=n)
        values[sample] = parts[drawn].sum() / max(1.0, wholes[drawn].sum())
    low, high = np.quantile(values, [0.025, 0.975])
    return Interval(float(low), float(high))


@torch.inference_mode()
def predict_tags(
    model: Any,
    encoder: WordEncoder,
    sentences: Sequence[Sequence[str]],
    max_length: int,
    *,
    map_batches: MapBatches = map_here,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Rows]:
    """Return for each word of each sentence the log-probabilities of all tags.

    Sentences longer than `max_length` tokens are read in parts.
    """
    device = next(model.parameters()).device
    parts = [
        (number, part)
        for number, words in enumerate(sentences)
        for part in parts_of_words(encoder, words, max_length)
    ]

    def read(numbers: list[int]) -> list[Rows]:
        ids = pad([parts[n][1].ids for n in numbers]).to(device)
        log_p = model(ids).float().log_softmax(-1).cpu()
        progress(len(numbers))
        return [log_p[row, parts[n][1].firsts].tolist() for row, n in enumerate(numbers)]

    results: list[Rows] = [[] for _ in sentences]
    rows = map_by_length(read, [len(part.ids) for _, part in parts], map_batches)
    for (sentence, _), part_rows in zip(parts, rows, strict=True):
        results[sentence] += part_rows
    return results


def score_tags(
    log_p: Sequence[Rows], labels: Sequence[str], classes: Sequence[str], where: str
) -> TaggingReport:
    """Compare the predicted tags of sentences with the right ones, which tabs join."""
    expected = [label.split("\t") for label in labels]
    rights = [class_numbers(tags, classes, where) for tags in expected]
    numbers = [np.argmax(rows, axis=1).tolist() for rows in log_p]
    n_right = [sum(map(int.__eq__, *pair)) for pair in zip(rights, numbers, strict=True)]
    predicted = [[classes[number] for number in sentence] for sentence in numbers]
    flat = list(chain(*rights))
    chosen = [row[n] for row, n in zip(chain(*log_p), flat, strict=True)]
    return TaggingReport(
        report(flat, list(chain(*numbers)), classes),
        ratio_interval(np.array(n_right), np.array([len(tags) for tags in expected])),
        entity_report(expected, predicted) if are_chunks(classes) else None,
        -sum(chosen) / len(chosen),
        len(labels),
    )
