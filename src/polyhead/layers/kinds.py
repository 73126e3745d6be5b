"""Which kernel a layer's attention has: the choice that a configuration makes.

    full     everyone is compared with everyone                       attention.py, scores.py
    local    … with neighbours at most `window` positions away        local.py
    lsh      … with those that hashing finds near (the Reformer's)    lsh.py

A stack may mix them: `attention = ["local", "lsh"]` alternates, and begins anew when it is used up.
Only self-attention is restricted; cross-attention always sees the whole source.
"""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from polyhead.layers.attention import FullAttention
from polyhead.layers.local import LocalAttention
from polyhead.layers.lsh import LSHAttention
from polyhead.layers.scores import ScoredAttention, ScoreKind, make_score

AttentionKind = Literal["full", "local", "lsh"]


@dataclass(frozen=True)
class LSHConfig:
    """How the Reformer's attention looks for neighbours."""

    chunk: int = 64
    rounds: int = 2
    eval_rounds: int = 0  # 0: as many as in training
    buckets: int = 0  # 0: as many as give buckets of half a chunk
    same_bucket: bool = False  # look at nobody of another bucket, even in the same chunk


def full_kernel(score: ScoreKind, n_heads: int, d_head: int, dropout: float) -> nn.Module:
    """Everyone with everyone, compared by this score."""
    if score == "scaled_dot":
        return FullAttention(dropout)
    return ScoredAttention(make_score(score, n_heads, d_head), dropout)


def local_kernel(score: ScoreKind, window: int, dropout: float) -> nn.Module:
    """Neighbours only; the fused kernel knows one score."""
    if score != "scaled_dot":
        raise ValueError(f'local attention knows score = "scaled_dot" only, got {score!r}')
    return LocalAttention(window, dropout)


def lsh_kernel(config: LSHConfig, dropout: float) -> nn.Module:
    """Neighbours by hashing; queries and keys are one projection."""
    return LSHAttention(
        config.chunk,
        config.rounds,
        eval_rounds=config.eval_rounds,
        n_buckets=config.buckets,
        same_bucket=config.same_bucket,
        dropout=dropout,
    )
