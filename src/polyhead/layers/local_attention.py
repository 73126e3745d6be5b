"""Restricted self-attention to a window of neighbours (Vaswani et al. 2017, section 4).

    position i sees j  if  |i - j| ≤ r          and, if causal,  0 ≤ i - j ≤ r

It costs O(r · n · d) where full attention costs O(n² · d); the maximum path length is n / r layers
(Table 1 of the paper).

The sequence is split into blocks of queries. Each block attends to the keys of its neighbourhood:
itself, r positions before it and, unless causal, r positions after it.

    queries             ░░░░░░[ block ]░░░░░░░░░░
    keys            ░░[   r   |  block  |   r   ]░░

All blocks of all sentences are one call of the fused kernel, whose mask is the band inside the
neighbourhood. Positions outside the sequence are masked, not zero: a key of zeros would still get
a share of the softmax. No tensor has n² elements.

A key is copied into several neighbourhoods. For very long inputs these copies would be the largest
tensors of a training step; they are made for some thousand positions at a time and recomputed in
the backward pass.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from polyhead.layers.attention import (
    NO_MASK,
    Contexts,
    FullAttention,
    Keys,
    Mask,
    Queries,
    Values,
    Weights,
    attention_weights,
    check_heads,
)

SMALLEST_BLOCK = 32  # smaller blocks are slower
SPAN = 2**14  # positions whose neighbourhoods exist at once


class LocalAttention(nn.Module):
    """Kernel equal to `FullAttention` with a banded mask, in linear time and memory.

    If queries and keys differ in number, or pairs are given, the call is a decoding step: the last
    query is at the last key, and every step has appended as many slots as there are queries (see
    `kv_cache.py`), so that the window is the last slots.
    """

    def __init__(self, window: int, dropout: float = 0.0) -> None:
        super().__init__()
        if window < 1:
            raise ValueError(f"a window must reach at least 1 position, got {window}")
        self.window = window
        self.block = max(SMALLEST_BLOCK, window // 2)  # the fastest of those measured
        self.full = FullAttention(dropout)

    def forward(self, q: Queries, k: Keys, v: Values, mask: Mask = NO_MASK) -> Contexts:
        check_heads(q, k, v)
        n_queries, n_keys = q.size(-2), k.size(-2)
        if mask.pairs is None and n_queries == n_keys > self.block:
            return self._spans(q, k, v, mask)
        reach = min(n_keys, self._reach(n_queries, mask))
        near = self._near(_last_keys(mask, reach))
        if near.pairs is None and n_queries > 1:
            near = self._banded(near, q, reach)
        return self.full(q, k[:, :, -reach:], v[:, :, -reach:], near)

    def weights(self, q: Queries, k: Keys, mask: Mask = NO_MASK) -> Weights:
        """Return the n x n weights with zeros outside the window, for inspection."""
        n_keys = k.size(-2)
        if mask.pairs is None:
            return attention_weights(q, k, self._banded(mask, q, n_keys))
        first = n_keys - self._reach(q.size(-2), mask)
        recent = torch.arange(n_keys, device=q.device) >= first
        return attention_weights(q, k, self._near(mask._replace(pairs=mask.pairs & recent)))

    def _near(self, mask: Mask) -> Mask:
        """Mask keys beyond the window; a prompt has one slot per position, not one per beam."""
        if mask.pairs is None or mask.behind is None:
            return mask
        return mask._replace(pairs=mask.pairs & (mask.behind <= self.window))

    def _reach(self, n_queries: int, mask: Mask) -> int:
        """Return how many of the last keys the queries can see."""
        if mask.pairs is None:
            return n_queries + self.window  # queries at successive positions
        return n_queries * (self.window + 1)  # queries at the same position, one per beam

    def _banded(self, mask: Mask, q: Tensor, n_keys: int) -> Mask:
        n_queries = q.size(-2)
        if mask.causal and n_keys <= self.window + 1:
            return mask
        query = torch.arange(n_keys - n_queries, n_keys, device=q.device)[:, None]
        pairs = self._visible(query - torch.arange(n_keys, device=q.device), causal=mask.causal)
        return Mask(keys=mask.keys, pairs=pairs.expand(q.size(0), -1, -1))

    def _visible(self, distance: Tensor, *, causal: bool) -> Tensor:
        """Return True where a key at this distance before the query is visible."""
        return (distance <= self.window) & (distance >= (0 if causal else -self.window))

    def _spans(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Attend within long sequences, one span at a time if they are very long."""
        length, span = q.size(-2), -(-SPAN // self.block) * self.block
        if length <= 2 * span:
            return self._blocks(q, k, v, mask)
        contexts = []
        for start in range(0, length, span):
            low = max(0, start - self.window)
            high = min(length, start + span + (0 if mask.causal else self.window))
            near = mask._replace(keys=None if mask.keys is None else mask.keys[:, low:high])
            here = slice(low, high)
            context = self._recomputed(q[:, :, here], k[:, :, here], v[:, :, here], near)
            contexts.append(context[:, :, start - low : start - low + span])
        return torch.cat(contexts, dim=2)

    def _recomputed(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Apply `_blocks`, recomputing neighbourhoods in the backward pass."""
        if not torch.is_grad_enabled():
            return self._blocks(q, k, v, mask)
        random = self.training and self.full.dropout > 0.0
        return checkpoint(
            self._blocks, q, k, v, mask, use_reentrant=False, preserve_rng_state=random
        )

    def _blocks(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """Attend within blocks; batch and block become one axis."""
        batch, _, length, _ = q.shape
        n_blocks = -(-length // self.block)
        rest = n_blocks * self.block - length
        around = (self.window, rest + (0 if mask.causal else self.window))
        size = self.block + self.window + (0 if mask.causal else self.window)

        queries = F.pad(q, (0, 0, 0, rest)) if rest else q
        queries = queries.unflatten(2, (n_blocks, self.block)).transpose(1, 2).flatten(0, 1)
        keys, values = (_neighbourhoods(x, around, size, self.block) for x in (k, v))
        one_row = torch.ones(1, length, dtype=torch.bool, device=q.device)  # without padding
        real = F.pad(one_row if mask.keys is None else mask.keys, around)
        query = torch.arange(self.block, device=q.device)[:, None]
        key = torch.arange(size, device=q.device) - self.window
        band = self._visible(query - key, causal=mask.causal)
        allowed = band & real.unfold(1, size, self.block)[:, :, None]
        context = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None],
            dropout_p=self.full.dropout if self.training else 0.0,
        )
        return context.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _last_keys(mask: Mask, n: int) -> Mask:
    """Return the mask of the last n keys."""
    return Mask(
        keys=None if mask.keys is None else mask.keys[:, -n:],
        causal=mask.causal,
        pairs=None if mask.pairs is None else mask.pairs[:, :, -n:],
        behind=None if mask.behind is None else mask.behind[-n:],
    )


def _neighbourhoods(x: Tensor, around: tuple[int, int], size: int, step: int) -> Tensor:
    """Rearrange (batch, head, length, d) to (batch · block, head, size, d), padded with zeros."""
    padded = F.pad(x.transpose(1, 2), (0, 0, 0, 0, *around))
    return _Unfold.apply(padded, size, step).flatten(0, 1).transpose(1, 2)


class _Unfold(torch.autograd.Function):
    """Overlapping windows along the second axis: `Tensor.unfold` with a faster backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, step: int) -> Tensor:
        ctx.shape, ctx.step = x.shape, step
        return x.unfold(1, size, step).movedim(-1, 2).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Add the overlapping windows in pieces of `step` positions, which do not overlap."""
        total, step = gradient.new_zeros(ctx.shape), ctx.step
        n_windows, size = gradient.shape[1:3]
        for start in range(0, size, step):
            width = min(step, size - start)
            covered = total[:, start : start + (n_windows - 1) * step + width]
            piece = covered.unfold(1, width, step).movedim(-1, 2)
            piece += gradient[:, :, start : start + width]
        return total, None, None
