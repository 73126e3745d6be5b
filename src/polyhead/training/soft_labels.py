"""The loss of a classifier whose labels are shares: a mixed image is partly of each class.

    L = - Σ_i Σ_c  t_ic · log softmax(z_i)_c        t_ic = (1 - ε) y_ic + ε / C

y are shares that sum to one, ε smooths them. With whole labels it is the usual cross-entropy.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.data.batches.images import ImageBatch
from polyhead.training.losses import Loss


@dataclass(frozen=True)
class SoftLabels:
    """Cross-entropy of the shares of classes, for a model that reads images."""

    smoothing: float = 0.0

    def __call__(self, model: Any, batch: ImageBatch) -> Loss:
        logits = model(batch.images)
        with torch.autocast(logits.device.type, enabled=False):
            total = soft_cross_entropy(logits.float(), batch.targets, self.smoothing)
        return Loss(total, len(batch.images))


def soft_cross_entropy(
    logits: Float[Tensor, "batch classes"],
    targets: Float[Tensor, "batch classes"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The sum over the batch."""
    smooth = targets * (1 - smoothing) + smoothing / targets.size(-1)
    return -(smooth * logits.log_softmax(-1)).sum()
