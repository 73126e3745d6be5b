"""Masked language modelling: BERT learns to fill in blanks (Devlin et al. 2019)."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from polyhead.data.batches.masked import BERT_MASKING, MaskedBatch
from polyhead.training.losses import MaskedTokenLoss
from polyhead.training.tasks.sequences import Pretraining


@torch.inference_mode()
def examine(batches: Sequence[MaskedBatch], model: Any, _step: int) -> dict[str, float]:
    """How well the same blanks are filled in every time.

    Accuracy counts how often the likeliest token is the true one.
    """
    total, right, count = 0.0, 0, 0
    device = next(model.parameters()).device
    for batch in batches:
        moved = batch.to(device)
        logits = model.fill(moved.blanked, moved.chosen).float()
        labels = moved.ids[moved.chosen]
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        right += int((logits.argmax(-1) == labels).sum())
        count += len(labels)
    loss = total / max(1, count)
    return {
        "loss": loss,
        "perplexity": math.exp(min(700.0, loss)),
        "accuracy": right / max(1, count),
    }


MASKED = Pretraining(BERT_MASKING, MaskedTokenLoss(), examine)
