"""Four score functions for attention, and a kernel that uses any of them.

    dot          s(q, k) = qᵀ k                        Luong et al. 2015, d_query = d_key
    scaled_dot   s(q, k) = qᵀ k / √d_head              Vaswani et al. 2017, d_query = d_key
    general      s(q, k) = qᵀ W k                      Luong et al. 2015; W is d_query x d_key
    additive     s(q, k) = vᵀ tanh(W_q q + W_k k)      Bahdanau et al. 2015

W, W_q, W_k and v belong to one head each. The first three are dot products of the key with a
*prepared* query (q, q / √d_head, Wᵀq), which one fused kernel computes; the last one a
vector for every pair of query and key, d_head times the memory.

Scores are the numbers before the softmax, weights its result, and the output is weights times
values.
"""

import math
from typing import Annotated, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.attention import (
    NO_MASK,
    Contexts,
    Mask,
    Values,
    Weights,
    fused,
    softmax_of_visible,
)
from polyhead.plugin_registry import Registry

Query = Float[Tensor, "batch head query d_query"]
Key = Float[Tensor, "batch head key d_key"]
Prepared = Float[Tensor, "batch head query d_key"]


class Dot(nn.Module):
    """qᵀ k; its variance grows with d_head, see `ScaledDot`."""

    def __init__(self, n_heads: int = 1, d_query: int = 0, d_key: int = 0) -> None:  # noqa: ARG002
        super().__init__()
        self.check_widths(d_query, d_key)

    def check_widths(self, d_query: int, d_key: int) -> None:
        """Raise ValueError unless queries are as wide as keys."""
        if d_query != d_key:
            raise ValueError(
                f"a dot product needs queries as wide as keys, got {d_query} and {d_key}; "
                "the scores general and additive do not"
            )

    def prepare(self, q: Query, d_key: int) -> Prepared:
        """Return the query whose dot product with a key is the score."""
        self.check_widths(q.size(-1), d_key)
        return q

    def forward(self, q: Query, k: Key) -> Weights:
        return self.prepare(q, k.size(-1)) @ k.transpose(-2, -1)


class ScaledDot(Dot):
    """qᵀ k / √d_head; has unit variance if q and k have."""

    def prepare(self, q: Query, d_key: int) -> Prepared:
        """Divide by √d_head: the width of one head, not of the model."""
        return super().prepare(q, d_key) / math.sqrt(d_key)


class General(Dot):
    """qᵀ W k with one W per head, initialized to the scaled dot product."""

    def __init__(self, n_heads: int, d_query: int, d_key: int) -> None:
        super().__init__()
        if d_query == d_key:
            start = torch.eye(d_key).expand(n_heads, -1, -1) / math.sqrt(d_key)
        else:
            start = torch.randn(n_heads, d_query, d_key) / math.sqrt(d_query * d_key)
        self.w = nn.Parameter(start.clone())

    def prepare(self, q: Query, d_key: int) -> Prepared:
        _expect(self.w.size(1), self.w.size(2), given=(q.size(-1), d_key))
        return torch.einsum("bhqi,hij->bhqj", q, self.w)


class Additive(nn.Module):
    """vᵀ tanh(W_q q + W_k k): a network with one hidden layer of width d_key in every head."""

    def __init__(self, n_heads: int, d_query: int, d_key: int) -> None:
        super().__init__()
        self.w_q = nn.Parameter(torch.randn(n_heads, d_query, d_key) / math.sqrt(d_query))
        self.w_k = nn.Parameter(torch.randn(n_heads, d_key, d_key) / math.sqrt(d_key))
        self.v = nn.Parameter(torch.randn(n_heads, d_key) / math.sqrt(d_key))

    def forward(self, q: Query, k: Key) -> Weights:
        _expect(self.w_q.size(1), self.w_k.size(1), given=(q.size(-1), k.size(-1)))
        queries = torch.einsum("bhqi,hij->bhqj", q, self.w_q)
        keys = torch.einsum("bhki,hij->bhkj", k, self.w_k)
        hidden = torch.tanh(queries[:, :, :, None] + keys[:, :, None])  # (b, h, query, key, d_key)
        return torch.einsum("bhqkj,hj->bhqk", hidden, self.v)


@runtime_checkable
class MakeScore(Protocol):
    """A score class or function: makes a module that maps queries and keys to scores."""

    def __call__(self, n_heads: int, d_query: int, d_key: int) -> nn.Module:
        """Return a module with `forward(q: Query, k: Key) -> Weights`, before the softmax.

        A subclass of `Dot` that has `prepare` uses PyTorch's fused kernel.
        """
        ...


BUILT_IN: dict[str, MakeScore] = {
    "scaled_dot": ScaledDot,
    "dot": Dot,
    "general": General,
    "additive": Additive,
}
SCORES = Registry("score", BUILT_IN)
ScoreKind = Annotated[str, SCORES]


def make_score(
    kind: ScoreKind, n_heads: int, d_head: int, *, d_key: int | None = None
) -> nn.Module:
    """Return a score for queries of width `d_head` and keys of width `d_key` (or the same)."""
    return SCORES[kind](n_heads, d_head, d_head if d_key is None else d_key)


class ScoredAttention(nn.Module):
    """softmax(score(Q, K)) V: a kernel for `MultiHeadAttention`, with dropout on the weights."""

    def __init__(self, score: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.score = score
        self.dropout = dropout

    def forward(self, q: Query, k: Key, v: Values, mask: Mask = NO_MASK) -> Contexts:
        dropout = self.dropout if self.training else 0.0
        if isinstance(self.score, Dot):  # a dot product with prepared queries
            return fused(self.score.prepare(q, k.size(-1)), k, v, mask, dropout, scale=1.0)
        return F.dropout(self.weights(q, k, mask), dropout) @ v

    def weights(self, q: Query, k: Key, mask: Mask = NO_MASK) -> Weights:
        return softmax_of_visible(self.score(q, k), mask)


def _expect(d_query: int, d_key: int, *, given: tuple[int, int]) -> None:
    if given != (d_query, d_key):
        raise ValueError(
            f"this score was made for queries of width {d_query} and keys of width {d_key}, "
            f"got {given[0]} and {given[1]}"
        )
