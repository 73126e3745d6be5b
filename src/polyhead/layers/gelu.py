"""GELU by tanh (Hendrycks & Gimpel 2016), as GPT-2 has it, faster where it is learned on a CPU.

    GELU(x) = x / 2 · (1 + tanh(√(2/π) (x + a x³)))  =  x σ(w)      a = 0.044715
    w       = c (x + a x³)                                          c = 2 √(2/π)
    GELU'   = σ(w) + x σ(w) (1 - σ(w)) c (1 + 3 a x²)

PyTorch's kernel computes the tanh, which costs six times as much as σ, on the way forward and again
on the way back. Here σ is computed once, and GELU' with it: the way back is one multiplication.
What is kept for it is as large as x, which PyTorch would keep.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

A, C = 0.044715, 2 * math.sqrt(2 / math.pi)
EXACT = (torch.float32, torch.float64)  # in half precision every step would be rounded


class TanhGELU(nn.Module):
    """`nn.GELU(approximate="tanh")`, which it is wherever nothing is to be learned on a CPU."""

    def forward(self, x: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        learning = torch.is_grad_enabled() and x.requires_grad
        if learning and x.device.type == "cpu" and x.dtype in EXACT:
            return _TanhGELU.apply(x)
        return F.gelu(x, approximate="tanh")


class _TanhGELU(torch.autograd.Function):
    """x σ(w), whose slope is computed on the way forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        cube = (x * x).mul_(x)
        sigma = torch.add(x, cube, alpha=A).mul_(C).sigmoid_()
        slope = torch.add(x, cube, alpha=3 * A, out=cube).mul_(sigma)
        slope.addcmul_(slope, sigma, value=-1)  # x (1 + 3 a x²) σ (1 - σ)
        ctx.save_for_backward(slope.mul_(C).add_(sigma))
        return sigma.mul_(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (slope,) = ctx.saved_tensors
        return gradient * slope
