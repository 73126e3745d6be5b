"""Hypotheses of all decoding strategies, and the steps that they share."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.decoding.options import NOT_FINITE, DecodeConfig, check_seed
from polyhead.errors import CheckpointError
from polyhead.special_tokens import PAD

NEVER = float("-inf")


def length_limits(
    config: DecodeConfig, source: Int[Tensor, "batch source"]
) -> Int[Tensor, "batch"]:
    """Return the limit of every row of a batch, which does not depend on its padding."""
    lengths = (source != PAD).sum(1).clamp(min=1).tolist()
    return torch.tensor([config.limit(n) for n in lengths], device=source.device)


def make_generator(seed: int) -> torch.Generator:
    """Return a generator of random numbers with this seed."""
    check_seed(seed)
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Hypotheses:
    """The outputs of every sentence, best `scores` first; `tokens` are padded and have no BOS.

    `token_log_p` has the log-probability of each token given those before; `log_p` is their sum.
    """

    tokens: Int[Tensor, "batch beam length"]
    scores: Float[Tensor, "batch beam"]
    log_p: Float[Tensor, "batch beam"]
    token_log_p: Float[Tensor, "batch beam length"]


def log_normaliser(logits: Float[Tensor, "*axes vocab"]) -> Float[Tensor, "*axes"]:
    """Return log Σ exp(z); CheckpointError if a logit is not a number, or infinite."""
    normaliser = logits.logsumexp(-1)
    if not bool(normaliser.isfinite().all()):
        raise CheckpointError(NOT_FINITE, "not_finite")
    return normaliser


def force_tokens(logits: Float[Tensor, "batch beam vocab"], tokens: Int[Tensor, "batch"]) -> None:
    """Make all tokens but the given one impossible, in sentences that have one (else PAD)."""
    forced = tokens != PAD
    kept = logits[forced].take_along_dim(tokens[forced, None, None], dim=-1)
    only = logits.new_full(logits[forced].shape, NEVER)
    logits[forced] = only.scatter(-1, tokens[forced, None, None].expand_as(kept), kept)
