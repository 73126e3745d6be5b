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
from jaxtyping import Shaped

from polyhead.data.batches.base import pad
from polyhead.data.labels import PAIR, encode_labels
from polyhead.data.tagged_text import are_chunks
from polyhead.data.word_pieces import WordEncoder, parts_of_words
from polyhead.metrics.bleu import SAMPLES
from polyhead.metrics.classification import ClassificationReport, Interval, class_scores, report
from polyhead.metrics.perplexity import MapBatches, map_by_length, map_here
from polyhead.metrics.predictions import ScoreReport, Scores, score_report

BEGIN, END = "BSU", "ESLU"  # tags that start an entity, and that end one
Rows = list[list[float]]  # of each word, the logits or probabilities of all tags
Counts = Shaped[np.ndarray, "sentence"]


class Entity(NamedTuple):
    """An entity: its first word, the end, and its type."""

    first: int
    end: int
    type: str


@dataclass(frozen=True)
class TaggingReport:
    """Scores of the tags of words, and of entities if the tags mark any; loss by word."""

    report: ClassificationReport
    accuracy: Interval
    entities: ScoreReport | None
    loss: float
    n_examples: int
    notices: tuple[str, ...] = ()

    def __str__(self) -> str:
        samples = f"95 % of {SAMPLES:,} bootstrap samples of {self.n_examples:,} sentences"
        interval = f"{samples}: accuracy [{self.accuracy.low:.4f}, {self.accuracy.high:.4f}]"
        by_entity = "" if self.entities is None else f"\n\nentities:\n{self.entities}"
        return f"{self.report}\n\n{interval}{by_entity}"

    @property
    def f1(self) -> float:
        """F1 of the entities; without any, the mean over the tags."""
        return self.report.macro_f1 if self.entities is None else self.entities.scores["f1"]


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
) -> ScoreReport:
    """Compare the entities of sentences, given by the tags of their words."""
    counts = [Counter[str](), Counter[str](), Counter[str]()]  # by type
    columns = np.zeros((3, len(expected)))
    for number, sides in enumerate(zip(expected, predicted, strict=True)):
        both = [set(entities(tags)) for tags in sides]
        for place, group in enumerate((both[0] & both[1], *both)):
            columns[place, number] = len(group)
            counts[place].update(entity.type for entity in group)
    types = sorted(counts[1] | counts[2])
    hits, right, given = (np.array([count[name] for name in types]) for count in counts)
    classes = class_scores(hits, right, given, types)
    return score_report(entity_scores, *columns, classes=classes)


def entity_scores(hits: Counts, expected: Counts, predicted: Counts) -> Scores:
    """Return precision, recall and F1 by the counts of each sentence."""
    columns = (hits, expected, predicted)
    n_hits, n_expected, n_predicted = (float(column.sum()) for column in columns)
    return {
        "precision": n_hits / max(1.0, n_predicted),
        "recall": n_hits / max(1.0, n_expected),
        "f1": 2 * n_hits / max(1.0, n_expected + n_predicted),
    }


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
    log_p: Sequence[Rows],
    labels: Sequence[str],
    classes: Sequence[str],
    where: str,
    notices: Sequence[str] = (),
) -> TaggingReport:
    """Compare the predicted tags of sentences with the right ones, which tabs join."""
    expected = [label.split(PAIR) for label in labels]
    rights = [numbers.tolist() for numbers in encode_labels(labels, "tags", classes, where)]
    numbers = [np.argmax(rows, axis=1).tolist() for rows in log_p]
    n_right = [sum(map(int.__eq__, *pair)) for pair in zip(rights, numbers, strict=True)]
    n_words = [len(tags) for tags in expected]

    def word_scores(right: Counts, words: Counts) -> Scores:
        return {"accuracy": float(right.sum() / max(1.0, words.sum()))}

    predicted = [[classes[number] for number in sentence] for sentence in numbers]
    flat = list(chain(*rights))
    chosen = [row[n] for row, n in zip(chain(*log_p), flat, strict=True)]
    return TaggingReport(
        report(flat, list(chain(*numbers)), classes),
        score_report(word_scores, np.array(n_right), np.array(n_words)).intervals["accuracy"],
        entity_report(expected, predicted) if are_chunks(classes) else None,
        -sum(chosen) / len(chosen),
        len(labels),
        tuple(notices),
    )
