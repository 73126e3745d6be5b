"""Attention kernels by their name in a configuration.

    full     all pairs of positions                    attention.py, attention_scores.py
    local    neighbours at most `window` positions away local_attention.py
    lsh      neighbours found by hashing (Reformer)    lsh/attention.py

A stack may mix them: `attention = ["local", "lsh"]` alternates through the layers. Only
self-attention is restricted; cross-attention always sees the whole source.
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from polyhead.layers.attention import FullAttention
from polyhead.layers.attention_scores import ScoredAttention, ScoreKind, make_score
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.lsh.hashing import factors

AttentionKind = Literal["full", "local", "lsh"]


@dataclass(frozen=True)
class LSHConfig:
    """Sizes of LSH attention (Reformer)."""

    chunk: int = 64
    rounds: int = 2
    eval_rounds: int = 0  # 0: as many as in training
    buckets: int = 0  # 0: chosen so that a bucket has half a chunk
    same_bucket: bool = False  # attend within the bucket only

    def __post_init__(self) -> None:
        for name, least in (("chunk", 1), ("rounds", 1), ("eval_rounds", 0), ("buckets", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least {least}")
        if self.buckets:
            factors(self.buckets)


def check_heads(d_model: int, n_heads: int) -> None:
    """Check that d_model divides into equal heads."""
    if d_model < 1 or n_heads < 1 or d_model % n_heads:
        fits = next((n for n in range(min(n_heads, d_model), 0, -1) if d_model % n == 0), 1)
        raise ValueError(
            f"d_model ({d_model}) must be a multiple of n_heads ({n_heads}); write n_heads = {fits}"
        )


def check_kinds(
    attention: AttentionKind | tuple[AttentionKind, ...], score: ScoreKind, window: int
) -> None:
    """Check that the kinds of attention fit the score (local and LSH have scaled_dot only)."""
    kinds = (attention,) if isinstance(attention, str) else attention
    if not kinds:
        raise ValueError('attention = []: name at least one kind, as in attention = "full"')
    restricted = [kind for kind in kinds if kind != "full"]
    if restricted and score != "scaled_dot":
        raise ValueError(
            f'{restricted[0]} attention supports score = "scaled_dot" only, got {score!r}; leave '
            'score out, or write attention = "full"'
        )
    if "local" in kinds and window < 1:
        raise ValueError(f"window = {window}: expected at least 1 position to each side")


def full_kernel(score: ScoreKind, n_heads: int, d_head: int, dropout: float) -> nn.Module:
    """Return a kernel over all pairs of positions with this score."""
    if score == "scaled_dot":
        return FullAttention(dropout)
    return ScoredAttention(make_score(score, n_heads, d_head), dropout)


def local_kernel(window: int, dropout: float) -> nn.Module:
    """Return a kernel over a window of neighbours."""
    return LocalAttention(window, dropout)


def lsh_kernel(config: LSHConfig, dropout: float) -> nn.Module:
    """Return a hashing kernel; queries and keys share one projection."""
    return LSHAttention(
        config.chunk,
        config.rounds,
        eval_rounds=config.eval_rounds,
        n_buckets=config.buckets,
        same_bucket=config.same_bucket,
        dropout=dropout,
    )
