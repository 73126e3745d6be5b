"""Vectors of texts: the task `sentence_embedding`.

It is trained on pairs of texts that belong together, or on pairs with a score of their similarity.
The validation loss of the former is that of finding the partner among all held-out texts.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from polyhead.data.labelled_text import PAIRS
from polyhead.data.labels import PAIR, encode_labels, label_values
from polyhead.data.line_spool import Examples
from polyhead.errors import DataError
from polyhead.metrics.predictions import (
    correlations,
    partner_ranks,
    retrieval_scores,
    score_report,
)
from polyhead.render import notebook
from polyhead.tasks.base import (
    Facts,
    Measured,
    Stage,
    TrainingCorpus,
    Used,
    map_parts,
    with_mask_token,
)
from polyhead.tasks.labelled import (
    KINDS,
    TextInput,
    WholeTextTask,
    encode_whole,
    without_accuracy,
)

if TYPE_CHECKING:
    from polyhead.metrics.perplexity import MapBatches

Vectors = list[list[float]]  # of a text, or of both texts of a pair


@dataclass(frozen=True)
class TextEmbedding:
    """A text and its vector of length 1."""

    text: str
    embedding: list[float]

    def __str__(self) -> str:
        return ""  # not in the title of an attention view

    def _repr_html_(self) -> str:
        return notebook.plain(self.text)


class SentenceEmbedding(WholeTextTask[Vectors, TextEmbedding]):
    """Give texts of equal meaning vectors that are near to each other."""

    name, verb, tag = "sentence_embedding", "embed", "sentence-similarity"
    metrics = ("loss", "accuracy", "mrr", "pearson", "spearman")
    result_class = TextEmbedding
    pipeline = "polyhead.pipelines.task_pipeline:SentenceEmbedder"
    form = PAIRS

    def facts(self, data: TrainingCorpus) -> Facts:
        check_pairs(data.corpus.valid)
        config = replace(data.config, model=with_mask_token(data.config, data.tokenizers))
        facts = Facts(config, {}, of_what=KINDS[data.corpus.problem])
        if data.corpus.problem == "contrastive":
            return facts
        numbers: Any = label_values(data.stores["label"], "regression")
        if numbers.min() == numbers.max():
            raise DataError(
                f"all pairs have the score {numbers.min():g}; give pairs of different scores, or "
                "without scores if each belongs together",
                "equal_scores",
            )
        score_range = [float(numbers.min()), float(numbers.max())]
        return without_accuracy(replace(facts, about={"range": score_range}))

    def loss(self, _config: Any, about: Mapping[str, Any]) -> Any:
        from polyhead.tasks.losses import ContrastiveLoss, SimilarityLoss

        return SimilarityLoss(*about["range"]) if "range" in about else ContrastiveLoss()

    def read(self, used: Used, rows: Sequence[tuple[str, ...]]) -> list[TextInput]:
        texts = [text.replace(PAIR, " ") for (text,) in rows]
        encoded = encode_whole(used, texts)
        return [TextInput(text, (ids,)) for text, ids in zip(texts, encoded, strict=True)]

    def example(self, used: Used, examples: Examples) -> list[TextInput]:
        """Both texts of a pair are read alone."""
        check_pairs(examples)
        encoded = iter(encode_whole(used, [t for text in examples.texts for t in text.split(PAIR)]))
        return [TextInput(text, (next(encoded), next(encoded))) for text in examples.texts]

    def run(
        self, used: Used, inputs: Sequence[TextInput], _options: Any,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> list[Vectors]:  # fmt: skip
        """Return the vectors of the texts of every input."""

        def compute(ids: Any, _parts: list[Any]) -> Vectors:
            rows: Vectors = used.model(ids).tolist()
            return rows

        return map_parts(compute, used, inputs, map_batches, progress)

    def result(self, used: Used, given: TextInput, output: Vectors, _options: Any) -> TextEmbedding:
        check_finite(used, output)
        return TextEmbedding(given.text, output[0])

    def measure(
        self, used: Used, inputs: Sequence[TextInput], labels: Sequence[str], stage: Stage,
        map_batches: "MapBatches", progress: Callable[[int], None],
    ) -> Measured:  # fmt: skip
        """Return how often a partner is the nearest of all, or the correlations of scores."""
        vectors = self.run(used, inputs, None, map_batches, progress)
        if stage == "evaluate":
            check_finite(used, chain(*vectors))
        first, second = np.array(vectors).transpose(1, 0, 2)
        if labels[0]:
            wanted = label_values(encode_labels(labels, "regression", (), used.name), "regression")
            columns = np.asarray(wanted, np.float64), (first * second).sum(1)
            low, high = used.about.get("range", (0.0, 1.0))
            errors = columns[1] - (columns[0] - low) / (high - low)
            figures = {"loss": float(np.square(errors).mean()), **correlations(*columns)}
            report = score_report(correlations, *columns) if stage == "evaluate" else None
            return Measured(figures, report)
        ranks = partner_ranks(first, second), partner_ranks(second, first)
        loss = {"loss": partner_loss(first, second, inputs, used.model.temperature)}
        report = score_report(retrieval_scores, *ranks) if stage == "evaluate" else None
        return Measured(loss | retrieval_scores(*ranks), report)

    def row(self, result: TextEmbedding, _options: Any) -> str:
        return json.dumps(asdict(result), ensure_ascii=False) + "\n"


def check_pairs(examples: Examples) -> None:
    """Raise DataError if examples are single texts."""
    if PAIR not in examples.texts[0]:
        raise DataError(
            "sentence embeddings need two texts in each example. Name their columns with "
            "--text-column and --text-pair-column.",
            "no_pairs",
        )


def check_finite(used: Used, vectors: Iterable[Sequence[float]]) -> None:
    """Raise DataError if a component is not a number, or infinite."""
    if not all(map(math.isfinite, chain(*vectors))):
        raise DataError(f"{used.name}: its vectors are not finite", "not_finite")


def partner_loss(first: Any, second: Any, inputs: Sequence[TextInput], temperature: float) -> float:
    """Return the mean cross-entropy of the partner of each text among all, in both directions.

    A text that occurs twice has two right partners: neither is a wrong one for the other.
    """
    sides = [np.unique([str(given.parts[n].ids) for given in inputs], return_inverse=True)[1]
             for n in (0, 1)]  # fmt: skip
    total = 0.0
    for start in range(0, len(first), 1000):
        rows = slice(start, start + 1000)
        places = np.arange(len(first))[rows]
        own = np.arange(len(places)), places
        twice = (sides[0][rows, None] == sides[0]) | (sides[1][rows, None] == sides[1])
        twice[own] = False
        for texts, others in ((first, second), (second, first)):
            similarity = texts[rows] @ others.T / temperature
            similarity[twice] = -np.inf
            total += float((np.logaddexp.reduce(similarity, 1) - similarity[own]).sum())
    return total / 2 / len(first)
