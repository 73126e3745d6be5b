"""Scores of masked language models and of replaced-token detectors on masked batches."""

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.batches.masked import BERT_MASKING, ELECTRA_MASKING, MaskedBatch, MaskingConfig
from polyhead.metrics.classification import detection_scores
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.special_tokens import PAD

MASKING: dict[str, MaskingConfig] = {
    "masked_lm": BERT_MASKING,
    "replaced_token": ELECTRA_MASKING,
}  # by task


@torch.inference_mode()
def score_masked_tokens(
    batches: Sequence[MaskedBatch], model: Any, map_batches: MapBatches = map_here
) -> dict[str, float]:
    """Return loss, perplexity and accuracy (the likeliest token is the true one)."""
    device = next(model.parameters()).device

    def score(batch: MaskedBatch) -> tuple[float, int, int]:
        batch = batch.to(device)
        logits = model.fill(batch.blanked, batch.chosen).float()
        labels = batch.ids[batch.chosen]
        total = F.cross_entropy(logits, labels, reduction="sum").item()
        return total, int((logits.argmax(-1) == labels).sum()), len(labels)

    total, n_correct, count = map(sum, zip(*map_batches(score, batches), strict=True))
    loss = total / max(1, count)
    return {
        "loss": loss,
        "perplexity": math.exp(min(700.0, loss)),
        "accuracy": n_correct / max(1, count),
    }


@torch.inference_mode()
def score_replaced_tokens(
    batches: Sequence[MaskedBatch], model: Any, map_batches: MapBatches = map_here
) -> dict[str, float]:
    """Return the metrics of generator and discriminator, with the same samples every time.

    precision, recall: of the tokens classified as replaced; most are original.
    auc: how often a replaced token has a higher logit than an original one.
    """
    device = next(model.parameters()).device

    def score(batch: MaskedBatch) -> tuple[Any, ...]:
        rows = zip(batch.ids.numpy(), batch.chosen.sum(1).tolist(), strict=True)
        u = [np.random.default_rng(row[row != PAD]).random(n, np.float32) for row, n in rows]
        batch = batch.to(device)
        u_chosen = torch.from_numpy(np.concatenate(u)).to(device)
        output = model(batch.ids, batch.blanked, batch.chosen, u_chosen)
        labels, real = batch.ids[batch.chosen], batch.ids != PAD
        return (
            replaced_token_loss(output, batch, model.spotting, PAD).item(),
            int((output.generated.argmax(-1) == labels).sum()),
            output.suspicion[real].float().tolist(),
            output.replaced[real].tolist(),
        )

    scored = map_batches(score, batches)
    totals, n_correct, suspicion, replaced = zip(*scored, strict=True)
    return {
        "loss": sum(totals) / max(1, sum(batch.n_tokens for batch in batches)),
        "generator_accuracy": sum(n_correct)
        / max(1, sum(int(batch.chosen.sum()) for batch in batches)),
        **detection_scores(
            np.array(list(chain.from_iterable(suspicion)), dtype=np.float32),
            np.array(list(chain.from_iterable(replaced)), dtype=bool),
        ),
    }


def replaced_token_loss(output: Any, batch: MaskedBatch, weight: float, pad: int) -> Tensor:
    """Return (tokens / masked) · L_fill + λ · L_spot, summed over all tokens; `weight` is λ."""
    fill = F.cross_entropy(output.generated.float(), batch.ids[batch.chosen], reduction="sum")
    real = batch.ids != pad
    spot = F.binary_cross_entropy_with_logits(
        output.suspicion.float()[real], output.replaced[real].float(), reduction="sum"
    )
    return batch.tokens_per_blank * fill + weight * spot
