"""Linear attention (Katharopoulos et al. 2020): time and memory grow with n, not with n².

    context_i = φ(q_i) Σ_j φ(k_j)ᵀ v_j / φ(q_i) Σ_j φ(k_j)ᵀ        φ(x) = elu(x) + 1

j runs over all keys, or over those up to i if attention is causal: then the sums are carried from
one chunk of positions to the next, and only the keys of the own chunk are masked.

    polyhead train small --plugin linear_attention.py model.stack.attention=linear
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.attention import NO_MASK, Mask
from polyhead.layers.transformer_stack import StackConfig
from polyhead.plugins import register_attention

CHUNK = 64  # positions
SMALLEST = 1e-6  # a query that sees no key has the context 0


@register_attention("linear")
class LinearAttention(nn.Module):
    """Kernel that replaces the softmax by a dot product of positive features."""

    def __init__(self, stack: StackConfig) -> None:
        super().__init__()
        del stack  # it has no options

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NO_MASK) -> Tensor:
        n_queries, n_keys = q.size(-2), k.size(-2)
        if mask.pairs is not None or (mask.causal and 1 < n_queries < n_keys):
            return self.weights(q, k, mask) @ v  # a decoding step: few queries
        v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)  # the last feature sums the weights
        q, k = phi(q), phi(k) if mask.keys is None else phi(k) * mask.keys[:, None, :, None]
        sums = causal_sums(q, k, v) if mask.causal and n_queries > 1 else q @ (k.mT @ v)
        return sums[..., :-1] / sums[..., -1:].clamp_min(SMALLEST)

    def weights(self, q: Tensor, k: Tensor, mask: Mask = NO_MASK) -> Tensor:
        """Return the share of every key, for the viewer."""
        allowed = mask.dense(q.size(-2), k.size(-2), q.device)
        shares = phi(q) @ phi(k).mT * (1 if allowed is None else allowed)
        return shares / shares.sum(-1, keepdim=True).clamp_min(SMALLEST)


def phi(x: Tensor) -> Tensor:  # noqa: D103
    return F.elu(x) + 1


def causal_sums(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return φ(q_i) Σ_j φ(k_j)ᵀ v_j over j ≤ i, in O(n)."""
    past, sums = q.new_zeros(()), []
    for queries, keys, values in zip(*(x.split(CHUNK, dim=2) for x in (q, k, v)), strict=True):
        own = (queries @ keys.mT).tril() @ values
        sums.append(own + queries @ past if past.dim() else own)
        past = past + keys.mT @ values
    return torch.cat(sums, dim=2)
