"""Position codes: added to embeddings, or rotations of queries and keys.

Added to the embedding (Vaswani et al. 2017, section 3.5, and simpler codes for comparison):

    counting     PE(pos, i)    = pos                          grows without end
    normalised   PE(pos, i)    = pos / (length - 1)           depends on the sentence's length
    binary       PE(pos)       = the digits of pos            neighbours at uneven distances
    sinusoidal   PE(pos, 2k)   = sin(w_k pos)
                 PE(pos, 2k+1) = cos(w_k pos),                w_k = 10000^(-2k / d_model)
    learned      PE(pos)       = a learned vector             up to max_length
    axial        PE(pos)       = [row's ; column's] vector    up to max_length (axial_positions.py)

Sinusoids have a property that the others lack: moving by φ positions is the same rotation of every
pair of features at any position,

    M(φ) · (sin w_k t, cos w_k t)ᵀ = (sin w_k (t+φ), cos w_k (t+φ))ᵀ
    M(φ) = ( cos w_k φ   sin w_k φ)
           (-sin w_k φ   cos w_k φ)

and `Rotary` (Su et al. 2021) rotates queries and keys themselves, in every layer, so that their dot
products depend on distances only.

A position module maps (length, offset) to vectors. `offset` is the number of earlier positions, so
that decoding can feed one token at a time.
"""

from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from polyhead.layers.axial_positions import AxialConfig, make_axial

PositionKind = Literal["sinusoidal", "learned", "axial", "rotary", "none"]
BOUNDED_POSITIONS = ("learned", "axial")  # kinds without positions beyond max_length


@runtime_checkable
class Positions(Protocol):
    """Code of `length` positions from `offset` on."""

    def __call__(self, length: int, offset: int = 0) -> Float[Tensor, "length d_model"]: ...


class SinusoidalPositions(nn.Module):
    """Fixed sinusoids (Vaswani et al. 2017): no parameters, no maximum length."""

    rate: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, got {d_model}")
        self.register_buffer("rate", frequencies(d_model), persistent=False)

    def forward(self, length: int, offset: int = 0) -> Float[Tensor, "length d_model"]:
        position = torch.arange(offset, offset + length, device=self.rate.device)
        angle = position[:, None] * self.rate  # (length, d_model / 2)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


class LearnedPositions(nn.Module):
    """One learned vector per position, as in GPT, BERT and ViT; longer input is an error."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.table = nn.Embedding(max_length, d_model)

    def forward(self, length: int, offset: int = 0) -> Float[Tensor, "length d_model"]:
        if offset + length > self.table.num_embeddings:
            raise ValueError(
                f"this model has {self.table.num_embeddings} positions, "
                f"but the input reaches position {offset + length}"
            )
        return self.table.weight[offset : offset + length]


class NoPositions(nn.Module):
    """Zero code: for rotary attention, or models without positions."""

    nothing: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("nothing", torch.zeros(1, d_model), persistent=False)

    def forward(
        self,
        length: int,
        offset: int = 0,  # noqa: ARG002
    ) -> Float[Tensor, "length d_model"]:
        return self.nothing.expand(length, -1)


def make_positions(
    kind: PositionKind, d_model: int, max_length: int, axial: AxialConfig | None = None
) -> nn.Module:
    """Return the code to add to embeddings; only bounded kinds use `max_length`."""
    if kind == "sinusoidal":
        return SinusoidalPositions(d_model)
    if kind == "learned":
        return LearnedPositions(max_length, d_model)
    if kind == "axial":
        return make_axial(axial or AxialConfig(), d_model, max_length)
    return NoPositions(d_model)


class CountingPositions(nn.Module):
    """0, 1, 2, … in every feature: for comparison only."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, length: int, offset: int = 0) -> Float[Tensor, "length d_model"]:
        return torch.arange(offset, offset + length)[:, None].expand(-1, self.d_model).float()


class NormalisedPositions(nn.Module):
    """From 0 at the first to 1 at the last position of offset + length: for comparison only.

    The second word of four stands at 1/3, of five at 1/4. Fed one token at a time, the end is
    always the newest token, and what was said about the older ones no longer holds.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, length: int, offset: int = 0) -> Float[Tensor, "length d_model"]:
        last = max(1, offset + length - 1)
        position = torch.arange(offset, offset + length) / last
        return position[:, None].expand(-1, self.d_model)


class BinaryPositions(nn.Module):
    """The d_model binary digits of the position, highest first: for comparison only."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, length: int, offset: int = 0) -> Float[Tensor, "length d_model"]:
        if offset + length > 2**self.d_model:
            raise ValueError(
                f"{self.d_model} binary digits count to {2**self.d_model} positions, "
                f"but the input reaches position {offset + length}"
            )
        digit = torch.arange(self.d_model - 1, -1, -1).clamp(max=62)  # an int64 has no more
        return (torch.arange(offset, offset + length)[:, None] >> digit & 1).float()


class Rotary(nn.Module):
    """Rotation of queries and keys [batch head length d_head] by M(position), per feature pair.

    M(s)ᵀ M(t) = M(t - s): a query at s and a key at t meet as if the key stood t - s away. Nothing
    is added to the embedding, and there is no longest sentence.
    """

    def __init__(self, d_head: int) -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"rotary positions need an even d_head, got {d_head}")
        self.d_head = d_head

    def forward(
        self, x: Float[Tensor, "batch head length d_head"], places: Num[Tensor, "length"]
    ) -> Float[Tensor, "batch head length d_head"]:
        """Multiply z_k = x_2k + i x_2k+1 by exp(-i w_k t)."""
        exact = x if x.dtype == torch.float64 else x.float()
        angle = places[:, None] * frequencies(self.d_head, x.device).to(exact.dtype)
        turn = torch.polar(torch.ones_like(angle), -angle)  # (length, d_head / 2)
        pairs = torch.view_as_complex(exact.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)


def frequencies(d_model: int, device: torch.device | None = None) -> Float[Tensor, "frequency"]:
    """Return w_k = 10000^(-2k / d_model): wavelengths from 2π to nearly 10000 · 2π."""
    return 10000.0 ** (-torch.arange(0, d_model, 2, device=device) / d_model)


def rotation(distance: int, d_model: int) -> Float[Tensor, "frequency 2 2"]:
    """Return M(φ), one matrix per frequency, which maps the code at t to that at t + φ."""
    angle = distance * frequencies(d_model)
    sin, cos = angle.sin(), angle.cos()
    return torch.stack([cos, sin, -sin, cos], dim=-1).unflatten(-1, (2, 2))


def swap_pairs(x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
    """Swap sine and cosine features.

    Some code, and the numpy listing of the study notes, puts the cosine into the even features.
    That is the same code with another order of features; needed to load such weights.
    """
    return x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
