"""Convolution over time, with dilation and weight normalisation.

    y_t = b + Σ_j W_j x_(t + (j - o) · dilation)          j = 0 … k - 1

    same     o = (k - 1) / 2: a centred window; k is odd
    causal   o = k - 1: past and present only, for decoders

Positions outside the sentence are zero. Dilation (Yu & Koltun 2016) leaves gaps between the k
positions, so that layers with dilations 1, 2, 4, … see exponentially far. Weight normalisation
(Salimans & Kingma 2016) learns the length g and the direction v of each row of W apart:

    W = g · v / ‖v‖                                       row by row: one for each number of y

The k positions are concatenated and multiplied with one matrix. On a CPU forward and backward take
9 to 20 % less time than `nn.Conv1d` (k = 3 and 5, 64 sentences of 16 and 32 words, d_in 256, d_out
512). Taps outside a short sentence, as with large dilations, are skipped.

Incremental decoding (`step`) needs the last (k - 1) · dilation inputs. They are kept in a ring
buffer: position t in slot t mod its size.

Axes: batch, length, beam (hypotheses of one sentence, side by side), slot, d_in, d_out.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.recurrent import RecurrentState


class Convolution(nn.Module):
    """Convolution over time; a linear layer for kernel = 1.

    Weights are initialized with variance gain / (k · d_in), so that y is √gain times as large as x,
    biases with zero. `normed` is weight normalisation.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        kernel: int = 1,
        *,
        dilation: int = 1,
        causal: bool = False,
        normed: bool = False,
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        check_kernel("kernel", kernel, causal=causal)
        if dilation < 1:
            raise ValueError(f"dilation = {dilation}: expected at least 1")
        self.kernel = kernel
        self.dilation = dilation
        self.before = (
            self.reach if causal else self.reach // 2
        )  # positions visible before the current one
        self.v = nn.Parameter(torch.empty(d_out, kernel * d_in))
        self.bias = nn.Parameter(torch.zeros(d_out))
        nn.init.normal_(self.v, std=(gain / self.v.size(1)) ** 0.5)
        self.g = nn.Parameter(self.v.detach().norm(dim=1)) if normed else None

    @property
    def reach(self) -> int:
        """Distance from the first to the last input position of one output."""
        return (self.kernel - 1) * self.dilation

    @property
    def weight(self) -> Float[Tensor, "d_out d_window"]:
        """W_0 … W_(k-1), concatenated."""
        if self.g is None:
            return self.v
        return self.v * (self.g / self.v.norm(dim=1))[:, None]

    def forward(self, x: Float[Tensor, "batch length d_in"]) -> Float[Tensor, "batch length d_out"]:
        """Convolve all positions of complete sentences."""
        if self.kernel == 1:
            return F.linear(x, self.weight, self.bias)
        length = x.size(1)
        shifts = [j * self.dilation - self.before for j in range(self.kernel)]
        seen = [
            j for j, shift in enumerate(shifts) if abs(shift) < length
        ]  # others would only read zeros
        windows = torch.cat([_shifted(x, shifts[j]) for j in seen], dim=-1)
        weight = self.weight
        if len(seen) < self.kernel:
            weight = weight.unflatten(1, (self.kernel, -1))[:, seen].flatten(1)
        return F.linear(windows, weight, self.bias)

    def no_past(self, batch: int, width: int) -> Float[Tensor, "slot batch beam d_in"]:
        """Return the empty ring buffer for `width` hypotheses per sentence."""
        return self.v.new_zeros(self.reach, batch, width, self.v.size(1) // self.kernel)

    def step(
        self,
        x: Float[Tensor, "batch beam d_in"],
        past: Float[Tensor, "slot batch beam d_in"],
        place: int,
    ) -> Float[Tensor, "batch beam d_out"]:
        """Return the output at position `place` and store x in `past`."""
        n_slots = len(past)
        assert n_slots == self.before, "incremental decoding needs a causal convolution"
        old = [past[(place - back) % n_slots] for back in range(n_slots, 0, -self.dilation)]
        y = F.linear(torch.cat([*old, x], dim=-1), self.weight, self.bias)
        if n_slots:
            past[place % n_slots] = x
        return y


@dataclass
class ConvolutionalState(RecurrentState):
    """Decoding state; `parts` are the ring buffers of all convolutions."""

    place: int = 0  # tokens read by every hypothesis


class ScaledGradient(torch.autograd.Function):
    """Identity whose gradient is multiplied by `factor`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


def check_kernel(name: str, kernel: int, *, causal: bool) -> None:
    """Check the width of a kernel."""
    if kernel < 1:
        raise ValueError(f"{name} = {kernel}: expected at least 1")
    if not causal and kernel % 2 == 0:
        raise ValueError(
            f"{name} = {kernel}: expected an odd number, because an encoder's window is "
            f"centred; write {kernel - 1} or {kernel + 1}"
        )


def _shifted(x: Tensor, by: int) -> Tensor:
    """Return x shifted by `by` positions, padded with zeros."""
    if by == 0:
        return x
    return F.pad(x[:, max(0, by) : x.size(1) + min(0, by)], (0, 0, max(0, -by), max(0, by)))
