"""A contrastive objective beside the masked tokens of BERT (Gao et al. 2021, "SimCSE").

Every text is encoded twice, with other dropout: z_i and z'_i, the means of its vectors. Among the
second encodings of a batch, each text should find its own:

    L = L_masked + λ · mean_i ( log Σ_j exp(cos(z_i, z'_j) / τ) - cos(z_i, z'_i) / τ )

    polyhead train bert-tiny --text my.txt --plugin contrastive.py train.objective=contrastive
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.plugins import register_objective
from polyhead.special_tokens import PAD
from polyhead.tasks.losses import Loss
from polyhead.training.tasks.base import TaskSetup

WEIGHT, TEMPERATURE = 0.1, 0.05  # λ and τ


def contrast(first: Tensor, second: Tensor, temperature: float = TEMPERATURE) -> Tensor:
    """Return the mean of -log p of each row's partner among all rows of `second`."""
    similar = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T / temperature
    return (similar.logsumexp(dim=-1) - similar.diagonal()).mean()


@register_objective("contrastive")
class ContrastiveLoss:
    """The task's own loss, plus the contrastive loss of the whole texts of a batch."""

    def __init__(self, setup: TaskSetup) -> None:
        self.own = setup.objective

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        loss = self.own(model, batch)
        extra = contrast(embed(model, batch.ids), embed(model, batch.ids))
        return Loss(loss.total + WEIGHT * loss.count * extra, loss.count)  # a sum over predictions


def embed(model: Any, ids: Tensor) -> Tensor:
    """Return the mean vector of every text, without its padding."""
    real = (ids != PAD).unsqueeze(-1)
    states: Tensor = torch.where(real, model.hidden(ids), 0.0)
    return states.sum(1) / real.sum(1)
