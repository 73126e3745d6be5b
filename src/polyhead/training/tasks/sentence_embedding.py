"""Sentence embeddings: pairs of texts that belong together, or pairs with a score of similarity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from polyhead.data.batches.labelled import TextBatch, split_pairs
from polyhead.errors import DataError
from polyhead.metrics.predictions import correlations, partner_ranks, retrieval_scores
from polyhead.tasks.losses import ContrastiveLoss, Objective, SimilarityLoss
from polyhead.training.config import RunConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup
from polyhead.training.tasks.text_classification import (
    LabelledCorpus,
    encode_corpus,
    judged_by_loss,
    read_labelled_corpus,
    with_sizes,
)


class SentenceEmbeddingTask:
    """Give texts of equal meaning vectors that are near to each other."""

    def read_data(self, config: RunConfig) -> tuple[LabelledCorpus, dict[str, str]]:
        corpus, fingerprints = read_labelled_corpus(config, of_pairs=True)
        if corpus.problem not in ("contrastive", "regression"):
            raise DataError(
                "the labels of pairs are classes; sentence embeddings need pairs without labels "
                "(--pairs FILE), or with numbers (data.problem=regression)",
                "not_a_number",
            )
        return corpus, fingerprints

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: LabelledCorpus, log: RunLog
    ) -> TaskSetup:
        texts = encode_corpus(config, run_dir, corpus, log)
        if not texts.of_pairs:
            raise DataError(
                "sentence embeddings need two texts in each example. Name their columns with "
                "--text-column and --text-pair-column.",
                "no_pairs",
            )
        objective: Objective = ContrastiveLoss()
        about: dict[str, Any] = {}
        config = with_sizes(config, texts)
        if corpus.problem == "regression":
            numbers = texts.batches.labels
            assert isinstance(numbers, np.ndarray)
            about["range"] = [float(numbers.min()), float(numbers.max())]
            if numbers.min() == numbers.max():
                raise DataError(
                    f"all pairs have the score {numbers.min():g}; give pairs of different scores, "
                    "or without scores if each belongs together",
                    "equal_scores",
                )
            objective = SimilarityLoss(*about["range"])
            config = judged_by_loss(config, log)
        return TaskSetup(
            config,
            texts.tokenizers,
            texts.batches,
            objective,
            lambda model, _step, processes: validate(
                texts.valid_batches, objective, model, processes
            ),
            texts.summary,
            about,
        )


@torch.inference_mode()
def validate(
    batches: Sequence[TextBatch], objective: Objective, model: Any, processes: Processes
) -> dict[str, float]:
    """Return the loss, and how often a partner is the nearest of all, or the correlations."""
    device = next(model.parameters()).device

    def score(batch: TextBatch) -> tuple[float, list[list[list[float]]]]:
        moved = batch.to(device)
        sides = [model(side).tolist() for side in split_pairs(moved.ids)]
        return objective(model, moved).total.item(), sides

    scored = processes.map(score, batches)
    labels = np.concatenate([batch.labels.numpy() for batch in batches])
    loss = sum(total for total, _ in scored) / len(labels)
    first, second = (np.array([row for _, s in scored for row in s[side]]) for side in (0, 1))
    if isinstance(objective, SimilarityLoss):
        return {"loss": loss, **correlations(labels, (first * second).sum(1))}
    return {
        "loss": loss,
        **retrieval_scores(partner_ranks(first, second), partner_ranks(second, first)),
    }
