"""Dropout (Srivastava et al. 2014), faster than torch's on a CPU.

    y = x · m / (1 - p),   m_i = 1 with probability 1 - p, else 0

Equivalent to `nn.Dropout`. On a CPU one random float per number costs more than the matrix product
before it; here 64 random bits decide four numbers (p is rounded to a multiple of 2⁻¹⁶). They come
from a fast generator that torch's generator seeds at every call, so that seeds and resumed runs
work as usual.
"""

from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

Share = Annotated[float, Field(ge=0, lt=1)]  # p, in a configuration
LEVELS = 2**16  # values of sixteen random bits


class Dropout(nn.Module):
    """`nn.Dropout`, faster on a CPU."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be at least 0 and less than 1, got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return _Drop.apply(x, keep(x, self.p), 1.0 / (1.0 - self.p))

    def onto(self, skip: Tensor, x: Tensor) -> Tensor:
        """Return skip + dropout(x) with one pass over memory less."""
        if not self.training or self.p == 0.0 or x.device.type != "cpu" or skip.dtype != x.dtype:
            return skip + self(x)
        return _DropAndAdd.apply(skip, x, keep(x, self.p), 1.0 / (1.0 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def keep(x: Tensor, p: float) -> Tensor:
    """Return a random mask in the shape of x: 1 with probability 1 - p, else 0 (int8)."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    draws = np.random.SFC64(seed).random_raw((x.numel() + 3) // 4)
    bits = torch.from_numpy(draws.view(np.int16))[: x.numel()]  # uniform over -32768 … 32767
    return (bits >= round(p * LEVELS) - LEVELS // 2).view(x.shape).view(torch.int8)


class _Drop(torch.autograd.Function):
    """x · m · scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return (x * mask).mul_(scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return (gradient * mask).mul_(ctx.scale), None, None


class _DropAndAdd(torch.autograd.Function):
    """skip + x · m · scale."""

    @staticmethod
    def forward(ctx: Any, skip: Tensor, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.add(skip, x * mask, alpha=scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (mask,) = ctx.saved_tensors
        return gradient, (gradient * mask).mul_(ctx.scale), None, None
