"""Training on expected reward (Wu et al. 2016, section 5).

    O_ML = Σ log P(y* | x)                                       likelihood of the reference
    O_RL = Σ Σ_y P(y | x) r(y, y*)                               expected reward, eq. 8
    loss = -(α O_ML + O_RL)                                      eq. 9

The expectation is estimated from N sentences sampled from the model, and its gradient is

    ∇ O_RL ≈ Σ 1/N Σ_n (r(y_n) - r̄) ∇ log P(y_n | x)              r̄: the mean reward of the N

The reward is the GLEU of a sentence: the number of n-grams of one to four tokens that output and
target share, divided by that of the longer of the two (the minimum of precision and recall).
Dropout is off, as in the paper, so that sampling and training use the same model.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.data.batches.translation import TranslationBatch
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.tasks.losses import Loss, TranslationLoss

Draw = Callable[[nn.Module, Tensor, int], Tensor]  # model, source, N → (batch, sample, length)
MAX_N = 4  # of n-grams


@dataclass(frozen=True)
class RewardConfig:
    """The table [train.reward]; 0 `samples` disable it. `likelihood` is the α of the paper."""

    samples: int = 0
    likelihood: float = 0.017

    def __post_init__(self) -> None:
        if self.samples < 0 or self.samples == 1:
            raise ValueError(
                f"samples = {self.samples}: expected 0 (no reward) or at least 2, because each is "
                "compared with the mean of all"
            )
        if self.likelihood < 0:
            raise ValueError(f"likelihood = {self.likelihood}: expected 0 or more")


def gleu(output: Sequence[int], target: Sequence[int]) -> float:
    """Return the share of common n-grams: 1 for equal sentences, 0 if nothing is shared."""
    first, second = n_grams(output), n_grams(target)
    most = max(first.total(), second.total())
    return (first & second).total() / most if most else 0.0


def n_grams(tokens: Sequence[int]) -> Counter[tuple[int, ...]]:
    """Count all n-grams of one to four tokens."""
    return Counter(
        tuple(tokens[start : start + n])
        for n in range(1, MAX_N + 1)
        for start in range(len(tokens) - n + 1)
    )


def strip_padding(ids: Sequence[int]) -> list[int]:
    """Return the tokens before EOS."""
    row = list(ids)
    end = row.index(EOS) if EOS in row else len(row)
    return [id for id in row[:end] if id != PAD]


def rewards(
    drawn: Int[Tensor, "batch sample length"], labels: Int[Tensor, "batch target"]
) -> Float[Tensor, "batch sample"]:
    """Return the GLEU of every sampled sentence."""
    targets = [strip_padding(row) for row in labels.tolist()]
    rows = [
        [gleu(strip_padding(sample), target) for sample in samples]
        for samples, target in zip(drawn.tolist(), targets, strict=True)
    ]
    return torch.tensor(rows, device=drawn.device)


@dataclass(frozen=True)
class ExpectedReward:
    """The mixed objective of equation 9. `draw` samples sentences from a model."""

    config: RewardConfig
    draw: Draw

    def __call__(self, model: Any, batch: TranslationBatch) -> Loss:
        training = model.training
        model.eval()
        try:
            drawn = self.draw(model, batch.source, self.config.samples)
            reward = rewards(drawn, batch.labels)
            advantage = reward - reward.mean(1, keepdim=True)
            with torch.backends.cudnn.flags(enabled=False):  # its RNNs require training mode
                expected = (advantage * log_p(model, batch.source, drawn)).sum() / drawn.size(1)
                likely = TranslationLoss(PAD)(model, batch)
        finally:
            model.train(training)
        return Loss(self.config.likelihood * likely.total - expected, likely.count)


def log_p(
    model: Any, source: Int[Tensor, "batch source"], drawn: Int[Tensor, "batch sample length"]
) -> Float[Tensor, "batch sample"]:
    """Return log P of every sampled sentence, with its EOS."""
    n, flat = drawn.size(1), drawn.flatten(0, 1)
    read = F.pad(flat[:, :-1], (1, 0), value=BOS)
    real = flat != PAD
    states = model.hidden(source.repeat_interleave(n, dim=0), read)
    nll = F.cross_entropy(model.to_logits(states[real]).float(), flat[real], reduction="none")
    each = torch.zeros_like(flat, dtype=nll.dtype).masked_scatter(real, nll)
    return -each.sum(1).unflatten(0, (-1, n))
