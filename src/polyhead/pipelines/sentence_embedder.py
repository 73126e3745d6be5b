"""Sentence embeddings: `SentenceEmbedder.from_dir("runs/embed").similarity("one", "another")`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.data.config import DataConfig
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.labelled_text import LabelledExamples, Sides, collect, open_examples
from polyhead.data.labels import PAIR, encode_labels
from polyhead.errors import DataError
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.metrics.predictions import (
    ScoreReport,
    correlations,
    partner_ranks,
    retrieval_scores,
    score_report,
)
from polyhead.models.registry import TaskName
from polyhead.pipelines.base import Pipeline
from polyhead.pipelines.result_list import as_texts
from polyhead.pipelines.text_classifier import read_texts

Texts = str | Sequence[str]
Vectors = Float[np.ndarray, "*texts width"]


@dataclass(frozen=True, repr=False)
class SentenceEmbedder(Pipeline):
    """A model that gives every text a vector of length 1; similar texts have similar ones."""

    tasks: ClassVar[tuple[TaskName, ...]] = ("sentence_embedding",)
    use: ClassVar[str] = "embed"

    @torch.inference_mode()
    def embed(
        self,
        lines: Texts,
        *,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> Vectors:
        """Return the vector of a text, or a row for every text of a list, as float32.

        lines: texts; of a long one the first `max_length` tokens are read.
        progress: called with the number of lines of each batch.
        map_batches: applies the model to all batches; several processes may share them.

        Example: `embedder.embed(["내일 회의가 있어요."]).shape`
        """
        if isinstance(lines, str):
            return self.embed([lines])[0]

        def compute(ids: Tensor) -> Tensor:
            vectors: Tensor = self.model(ids)
            if not bool(vectors.isfinite().all()):
                raise DataError(f"{self.name}: its vectors are not finite", "not_finite")
            return vectors

        texts = [line.replace(PAIR, " ") for line in as_texts(lines, "embed")]
        rows = read_texts(self, texts, compute, progress, map_batches)
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.width)

    @property
    def width(self) -> int:
        """The number of components of a vector."""
        return int(self.saved.config.encoder.stack.d_model)

    def similarity(self, first: Texts, second: Texts) -> Float[np.ndarray, "*pairs"]:
        """Return the cosine of two texts, from -1 to 1, or of every text with every other.

        Example: `embedder.similarity("a dog", ["a cat", "the tax law"])`
        """
        return self.embed(first) @ self.embed(second).T

    def read(
        self,
        files: Sequence[str | Path],
        sides: Sides | None = None,
        encoding: str = "utf-8",
    ) -> tuple[LabelledExamples, list[str]]:
        """Return pairs, with scores or without, from files, and notices about them.

        files: pairs with scores; sides: files of source, target and pairs, without scores.
        """
        data, notices = self.data, list[str]()
        config = replace(
            DataConfig(encoding=encoding), text_key=data.text_key, label_key=data.label_key,
            text_pair_key=data.text_pair_key, source_key=data.source_key,
            target_key=data.target_key,
        )  # fmt: skip
        records = open_examples(config, [str(file) for file in files], sides, notices)
        assert records is not None
        examples = collect(records)
        if PAIR not in examples.texts[0]:
            message = f"{files[0]} has single texts; expected two columns of texts and a score"
            raise DataError(message, "no_pairs")
        return examples, notices

    def evaluate(self, files: str | Path | Sequence[str | Path]) -> ScoreReport:
        """Return the scores on files of pairs: of graded ones correlations, else of retrieval.

        files: with the same columns as in training.
        """
        given = [files] if isinstance(files, str | Path) else files
        is_graded = bool(self.data.labelled)
        names = evaluation_files(given, "labelled" if is_graded else "pairs")
        examples = self.read(names) if is_graded else self.read((), ((), (), names))
        return self.evaluate_examples(*examples)

    def evaluate_examples(
        self,
        examples: LabelledExamples,
        notices: Sequence[str] = (),
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ScoreReport:
        """Return the scores on pairs that were read before."""
        sides = zip(*(text.split(PAIR) for text in examples.texts), strict=True)
        texts = [text for side in sides for text in side]
        vectors = self.embed(texts, progress=progress, map_batches=map_batches)
        first, second = vectors[: len(examples)], vectors[len(examples) :]
        if examples.labels[0]:
            scores = encode_labels(examples.labels, "regression", (), self.name)
            columns = scores.ids.view(np.float32).astype(np.float64), (first * second).sum(1)
            return score_report(correlations, *columns, notices=notices)
        ranks = partner_ranks(first, second), partner_ranks(second, first)
        return score_report(retrieval_scores, *ranks, notices=notices)
