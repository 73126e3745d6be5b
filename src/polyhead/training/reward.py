"""Training for what is wanted, not for the next word: expected reward, Wu et al. 2016, section 5.

    O_ML = Σ log P(y* | x)                                       likelihood of the right sentence
    O_RL = Σ Σ_y P(y | x) r(y, y*)                               expected reward, eq. 8
    loss = -(α O_ML + O_RL)                                      eq. 9

The expectation is estimated from N sentences that the model draws itself, and its gradient is

    ∇ O_RL ≈ Σ 1/N Σ_n (r(y_n) - r̄) ∇ log P(y_n | x)              r̄: the mean reward of the N

The reward is the GLEU of a sentence: of all n-grams of one to four tokens, those that output and
target share, divided by those of the longer of the two (the smaller of precision and recall).
Unlike BLEU it is made for single sentences. Dropout is off, as in the paper: the model that draws
is the model that learns.
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
from polyhead.training.losses import Loss, TranslationLoss

Draw = Callable[[nn.Module, Tensor, int], Tensor]  # model, source, N → (batch, sample, length)
LONGEST = 4  # tokens of an n-gram


@dataclass(frozen=True)
class RewardConfig:
    """The table [train.reward]: no `samples`, no reward. `likelihood` is the α of the paper."""

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
    """The share of n-grams that two sentences have in common: 1 for equal ones, 0 for strangers."""
    ours, theirs = n_grams(output), n_grams(target)
    most = max(ours.total(), theirs.total())
    return (ours & theirs).total() / most if most else 0.0


def n_grams(tokens: Sequence[int]) -> Counter[tuple[int, ...]]:
    """All sequences of one to four neighbours, and how often each occurs."""
    return Counter(
        tuple(tokens[start : start + n])
        for n in range(1, LONGEST + 1)
        for start in range(len(tokens) - n + 1)
    )


def words_of(ids: Sequence[int]) -> list[int]:
    """A row's tokens before its end."""
    row = list(ids)
    end = row.index(EOS) if EOS in row else len(row)
    return [id for id in row[:end] if id != PAD]


def rewards(
    drawn: Int[Tensor, "batch sample length"], labels: Int[Tensor, "batch target"]
) -> Float[Tensor, "batch sample"]:
    """The GLEU of every drawn sentence with the right one."""
    right = [words_of(row) for row in labels.tolist()]
    rows = [
        [gleu(words_of(one), target) for one in of_sentence]
        for of_sentence, target in zip(drawn.tolist(), right, strict=True)
    ]
    return torch.tensor(rows, device=drawn.device)


@dataclass(frozen=True)
class ExpectedReward:
    """The mixed objective. `draw` lets a model write sentences of its own."""

    config: RewardConfig
    draw: Draw

    def __call__(self, model: Any, batch: TranslationBatch) -> Loss:
        training = model.training
        model.eval()
        try:
            drawn = self.draw(model, batch.source, self.config.samples)
            found = rewards(drawn, batch.labels)
            advantage = found - found.mean(1, keepdim=True)
            with torch.backends.cudnn.flags(enabled=False):  # its RNNs learn in training mode only
                expected = (advantage * log_p(model, batch.source, drawn)).sum() / drawn.size(1)
                likely = TranslationLoss(PAD)(model, batch)
        finally:
            model.train(training)
        return Loss(self.config.likelihood * likely.total - expected, likely.count)


def log_p(
    model: Any, source: Int[Tensor, "batch source"], drawn: Int[Tensor, "batch sample length"]
) -> Float[Tensor, "batch sample"]:
    """The log P of every drawn sentence, its end included."""
    n, flat = drawn.size(1), drawn.flatten(0, 1)
    read = F.pad(flat[:, :-1], (1, 0), value=BOS)
    real = flat != PAD
    states = model.hidden(source.repeat_interleave(n, dim=0), read)
    nll = F.cross_entropy(model.to_logits(states[real]).float(), flat[real], reduction="none")
    each = torch.zeros_like(flat, dtype=nll.dtype).masked_scatter(real, nll)
    return -each.sum(1).unflatten(0, (-1, n))
