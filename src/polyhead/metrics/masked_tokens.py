"""Scores of masked language models and of replaced-token detectors on masked batches."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.batches.masked import BERT_MASKING, ELECTRA_MASKING, MaskedBatch, MaskingConfig
from polyhead.metrics.classification import detection_scores
from polyhead.special_tokens import PAD

MASKING: dict[str, MaskingConfig] = {
    "masked_lm": BERT_MASKING,
    "replaced_token": ELECTRA_MASKING,
}  # by task
SEED = 0  # of the generator's samples in validation


@torch.inference_mode()
def score_masked_tokens(batches: Sequence[MaskedBatch], model: Any) -> dict[str, float]:
    """Return loss, perplexity and accuracy (the likeliest token is the true one)."""
    total, n_correct, count = 0.0, 0, 0
    device = next(model.parameters()).device
    for batch in (batch.to(device) for batch in batches):
        logits = model.fill(batch.blanked, batch.chosen).float()
        labels = batch.ids[batch.chosen]
        total += F.cross_entropy(logits, labels, reduction="sum").item()
        n_correct += int((logits.argmax(-1) == labels).sum())
        count += len(labels)
    loss = total / max(1, count)
    return {
        "loss": loss,
        "perplexity": math.exp(min(700.0, loss)),
        "accuracy": n_correct / max(1, count),
    }


@torch.inference_mode()
def score_replaced_tokens(batches: Sequence[MaskedBatch], model: Any) -> dict[str, float]:
    """Return the metrics of generator and discriminator, with the same samples every time.

    precision, recall: of the tokens classified as replaced; most are original.
    auc: how often a replaced token has a higher logit than an original one.
    """
    device = next(model.parameters()).device
    total, count, n_correct, n_masked = 0.0, 0, 0, 0
    suspicion, replaced = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for batch in (batch.to(device) for batch in batches):
            output = model(batch.ids, batch.blanked, batch.chosen)
            labels, real = batch.ids[batch.chosen], batch.ids != PAD
            total += replaced_token_loss(output, batch, model.spotting, PAD).item()
            count += batch.n_tokens
            n_correct += int((output.generated.argmax(-1) == labels).sum())
            n_masked += len(labels)
            suspicion.append(output.suspicion[real].float().cpu())
            replaced.append(output.replaced[real].cpu())
    return {
        "loss": total / max(1, count),
        "generator_accuracy": n_correct / max(1, n_masked),
        **detection_scores(torch.cat(suspicion).numpy(), torch.cat(replaced).numpy()),
    }


def replaced_token_loss(output: Any, batch: MaskedBatch, weight: float, pad: int) -> Tensor:
    """Return (tokens / masked) · L_fill + λ · L_spot, summed over all tokens; `weight` is λ."""
    fill = F.cross_entropy(output.generated.float(), batch.ids[batch.chosen], reduction="sum")
    real = batch.ids != pad
    spot = F.binary_cross_entropy_with_logits(
        output.suspicion.float()[real], output.replaced[real].float(), reduction="sum"
    )
    return batch.tokens_per_blank * fill + weight * spot
