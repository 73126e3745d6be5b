"""Replaced-token detection: ELECTRA learns to spot forged tokens (Clark et al. 2020)."""

from collections.abc import Sequence
from typing import Any

import torch

from polyhead.data.batches.masked import ELECTRA_MASKING, MaskedBatch
from polyhead.metrics.detection import detected
from polyhead.tokenizers.storage import PAD
from polyhead.training.losses import ReplacedTokenLoss
from polyhead.training.tasks.sequences import Pretraining

SEED = 0  # of the forgeries in validation
SPOTTING = ReplacedTokenLoss(PAD)


@torch.inference_mode()
def examine(batches: Sequence[MaskedBatch], model: Any, _step: int) -> dict[str, float]:
    """Both players on the same blanks, with forgeries drawn by the same dice, every time.

    generator_accuracy: how often the likeliest token is the true one.
    precision, recall: of the tokens under suspicion, how many were replaced; of the replaced ones,
        how many were under suspicion. To suspect nothing would be right nine times of ten.
    auc: how often a replaced token is more suspect than an original one.
    """
    device = next(model.parameters()).device
    total, count, right, n_blanks = 0.0, 0, 0, 0
    suspicion, replaced = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for batch in (batch.to(device) for batch in batches):
            said = model(batch.ids, batch.blanked, batch.chosen)
            labels, real = batch.ids[batch.chosen], batch.ids != PAD
            total += SPOTTING.of(said, batch, model.spotting).total.item()
            count += batch.n_tokens
            right += int((said.generated.argmax(-1) == labels).sum())
            n_blanks += len(labels)
            suspicion.append(said.suspicion[real].float().cpu())
            replaced.append(said.replaced[real].cpu())
    found = detected(torch.cat(suspicion).numpy(), torch.cat(replaced).numpy())
    return {
        "loss": total / max(1, count),
        "generator_accuracy": right / max(1, n_blanks),
        "precision": found.precision,
        "recall": found.recall,
        "auc": found.auc,
    }


REPLACED = Pretraining(ELECTRA_MASKING, SPOTTING, examine)
