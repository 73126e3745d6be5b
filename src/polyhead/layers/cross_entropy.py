"""Cross-entropy of a linear output layer with label smoothing, in one memory-saving function.

    z = h Wᵀ + b
    L = Σ_i  (1 - ε) · (lse(z_i) - z_i[y_i])  +  ε / V · Σ_v (lse(z_i) - z_i[v])

lse is log Σ exp. The logits z are the largest tensor of a training step (positions x vocabulary),
and autograd would keep two of them. Here the rows are taken in chunks; the gradient

    ∂L/∂z = softmax(z) - (1 - ε) · onehot(y) - ε / V

is written over the logits while they are in the processor's cache, multiplied into the gradients
of h, W and b, and freed. The smoothing term is the same for all words and need not pass through the
logits: Σ_v z_i[v] = h_i · Σ_v W_v + Σ b, and -ε / V reaches h as the mean of
W, and every row of W as the sum of h. The result is that of `F.cross_entropy(…, reduction="sum")`.

In mixed precision (autocast) the loss stays in full precision; only the two products for the
gradients of h and W use fewer bits.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

CHUNK = 2**22  # numbers in one chunk of logits: 16 MB


def linear_cross_entropy(
    h: Float[Tensor, "position d_model"],
    weight: Float[Tensor, "vocab d_model"],
    bias: Float[Tensor, "vocab"] | None,
    labels: Int[Tensor, "position"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the summed cross-entropy of `labels` under softmax(h Wᵀ + b)."""
    kind = h.device.type
    mixed = torch.is_autocast_enabled(kind)
    kept = torch.get_autocast_dtype(kind) if mixed else weight.dtype
    with torch.autocast(kind, enabled=False):
        h = h.to(weight.dtype)
        return _LinearCrossEntropy.apply(h, weight, bias, labels, smoothing, kept)


class _LinearCrossEntropy(torch.autograd.Function):
    """Gradients are computed in the forward pass and scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        smoothing: float,
        kept: torch.dtype,
    ) -> Tensor:
        wanted = any(ctx.needs_input_grad[:3])
        low_h, low_weight = (h.to(kept), weight.to(kept)) if wanted else (h, weight)
        d_h = torch.empty_like(h) if wanted else None
        d_weight = torch.zeros_like(weight) if wanted else None
        d_bias = torch.zeros_like(bias) if wanted and bias is not None else None
        total = h.new_zeros(())
        for start in range(0, len(h), max(1, CHUNK // len(weight))):
            rows = slice(start, start + max(1, CHUNK // len(weight)))
            z = F.linear(h[rows], weight, bias)
            total += _loss_then_gradient(z, labels[rows], smoothing)  # z is now ∂L/∂z
            if d_h is not None and d_weight is not None and kept == weight.dtype:
                torch.mm(z, weight, out=d_h[rows])
                d_weight.addmm_(z.t(), h[rows])
            elif d_h is not None and d_weight is not None:
                low_z = z.to(kept)
                d_h[rows] = torch.mm(low_z, low_weight)
                d_weight += torch.mm(low_z.t(), low_h[rows])
            if d_bias is not None:
                d_bias += z.sum(0)
        if smoothing:
            total -= _smooth(h, weight, bias, smoothing, (d_h, d_weight, d_bias))
        ctx.gradients = (d_h, d_weight, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        d_h, d_weight, d_bias = (None if g is None else g.mul_(scale) for g in ctx.gradients)
        del ctx.gradients
        return d_h, d_weight, d_bias, None, None, None


def _loss_then_gradient(
    z: Float[Tensor, "position vocab"], labels: Int[Tensor, "position"], smoothing: float
) -> Float[Tensor, ""]:
    """Return the summed loss of some rows without smoothing; overwrite z by its gradient."""
    right = labels[:, None]
    at_label = z.gather(1, right).sum()
    top = z.amax(1, keepdim=True)
    z.sub_(top).exp_()
    mass = z.sum(1, keepdim=True)
    z.div_(mass)
    z.scatter_add_(1, right, torch.full_like(right, 0, dtype=z.dtype) - (1 - smoothing))
    return (mass.log() + top).sum() - (1 - smoothing) * at_label


def _smooth(
    h: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    smoothing: float,
    gradients: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> Tensor:
    """Return ε / V · Σ z, to be subtracted from the loss, and update the gradients."""
    share = smoothing / len(weight)
    all_words, all_positions = weight.sum(0), h.sum(0)
    d_h, d_weight, d_bias = gradients
    if d_h is not None:
        d_h.sub_(all_words, alpha=share)
    if d_weight is not None:
        d_weight.sub_(all_positions, alpha=share)
    total = all_words @ all_positions
    if bias is not None:
        total = total + bias.sum() * len(h)
    if d_bias is not None:
        d_bias.sub_(share * len(h))
    return total * share
