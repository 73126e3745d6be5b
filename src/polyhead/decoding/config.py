"""How to decode: the options of every strategy, and what all of them return."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.errors import ConfigError
from polyhead.special_tokens import PAD

NEVER = float("-inf")
COLDEST = 1e-30  # below it, logits divided by it are no numbers any more
SEEDS = 2**63  # how many there are


@dataclass(frozen=True)
class DecodeConfig:
    """The table [decode]. A beam of 1 is greedy search; `sample` draws instead of searching.

    `length_penalty` is the α of Wu et al. 2016: 0 compares raw probabilities, 1 nearly those per
    word. `coverage` is their β: an output that leaves source words unread is worth less (beam
    search only, and only for models that attend; 0.2 is usual, 0 is off). `replace_unknown` writes,
    for each unknown word, the dictionary's word for what was looked at most, or else that word
    itself (PosUnk; for word vocabularies). An output has at most `max_ratio` · (source length) + 10
    tokens, and at most `max_length`.
    """

    beam: int = 4
    length_penalty: float = 0.6
    coverage: float = 0.0
    replace_unknown: bool = False
    max_length: int = 256
    max_ratio: float = 2.0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0  # draw from the k likeliest; 0 from all
    top_p: float = 1.0  # draw from the likeliest that together have this probability
    n_best: int = 1

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam = {self.beam}: expected at least 1 (1 is greedy search)")
        if self.coverage < 0:
            raise ValueError(f"coverage = {self.coverage}: expected 0 (off) or more")
        if not COLDEST <= self.temperature < math.inf:
            raise ValueError(f"temperature = {self.temperature}: expected more than 0, and finite")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}: expected more than 0 and at most 1")
        if self.n_best > self.beam and not self.sample:
            raise ValueError(
                f"n_best = {self.n_best}: a beam of {self.beam} finds only {self.beam}; set "
                f"beam = {self.n_best} or more"
            )

    def limit(self, source_length: int) -> int:
        """The longest output that is looked for."""
        return max(1, min(self.max_length, int(self.max_ratio * source_length) + 10))


def dice(seed: int) -> torch.Generator:
    """A generator of random numbers that begins with a seed."""
    if not 0 <= seed < SEEDS:
        raise ConfigError(f"seed = {seed}: expected 0 or more, and less than 2^63")
    return torch.Generator().manual_seed(seed)


@dataclass(frozen=True)
class Hypotheses:
    """The outputs of every sentence, best first. `tokens` begins after BOS and is padded.

    `scores` orders the hypotheses; `log_p` is the sum of their tokens' log-probabilities.
    """

    tokens: Int[Tensor, "batch beam length"]
    scores: Float[Tensor, "batch beam"]
    log_p: Float[Tensor, "batch beam"]


def length_normaliser(length: int, alpha: float) -> float:
    """lp(y) = ((5 + |y|) / 6)^α    (Wu et al. 2016, eq. 14)."""
    return float(((5 + length) / 6) ** alpha)


def length_normalisers(
    lengths: Int[Tensor, "batch"], alpha: float, like: Tensor
) -> Float[Tensor, "batch"]:
    """lp(y) of hypotheses of several lengths, in the precision of their scores."""
    return (((5.0 + lengths.double()) / 6.0) ** alpha).to(like.dtype)


def force(logits: Float[Tensor, "batch beam vocab"], wanted: Int[Tensor, "batch"] | None) -> None:
    """Leave only the wanted token possible, in sentences that have one (PAD: no wish)."""
    if wanted is None:
        return
    forced = wanted != PAD
    kept = logits[forced].take_along_dim(wanted[forced, None, None], dim=-1)
    only = logits.new_full(logits[forced].shape, NEVER)
    logits[forced] = only.scatter(-1, wanted[forced, None, None].expand_as(kept), kept)
