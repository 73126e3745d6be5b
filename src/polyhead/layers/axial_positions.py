"""Axial position codes for long inputs (Kitaev et al. 2020, appendix D; Ho et al. 2019).

A table of 262,144 positions would be larger than the model. Instead positions form a grid, and
every row and every column has a part of the vector:

    PE(pos) = [ R[pos div columns] ; C[pos mod columns] ],    R: (rows, d_1),  C: (columns, d_2)

with d_1 + d_2 = d_model. 512 x 512 positions then need 1024 vectors, not 262,144. No two positions
share both parts, and neighbours share one of them.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class AxialConfig:
    """Grid of axial positions; empty fields are derived from max_length and d_model."""

    shape: tuple[int, ...] = ()  # sides; nearly square if empty
    widths: tuple[int, ...] = ()  # share of d_model per axis; about equal if empty


class AxialPositions(nn.Module):
    """Learned vectors on a grid of any number of axes; the last axis varies fastest."""

    def __init__(self, config: AxialConfig, d_model: int, max_length: int) -> None:
        super().__init__()
        self.shape, widths = grid_of(config, d_model, max_length)
        self.axes = nn.ModuleList(
            nn.Embedding(side, width) for side, width in zip(self.shape, widths, strict=True)
        )

    def forward(self, length: int, offset: int = 0) -> Float[Tensor, "length d_model"]:
        if offset + length > math.prod(self.shape):
            grid = " x ".join(str(side) for side in self.shape)
            raise ValueError(
                f"this model has {grid} = {math.prod(self.shape)} positions, "
                f"but the input reaches position {offset + length}"
            )
        parts, step = [], math.prod(self.shape)
        for side, axis in zip(self.shape, self.axes, strict=True):
            step //= side
            assert isinstance(axis, nn.Embedding)
            at = torch.arange(offset, offset + length, device=axis.weight.device)
            parts.append(axis(at // step % side))
        return torch.cat(parts, dim=-1)


def grid_of(
    config: AxialConfig, d_model: int, max_length: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sides and widths of the grid, derived or checked."""
    shape = config.shape or square_grid(max_length)
    widths = config.widths or _parts(d_model, len(shape))
    if min(shape) < 1 or math.prod(shape) < max_length:
        raise ValueError(
            f"axial.shape = {list(shape)} has {math.prod(shape)} positions, but max_length is "
            f"{max_length}; write {list(square_grid(max_length))}, or leave the shape out"
        )
    if len(widths) != len(shape) or sum(widths) != d_model or min(widths) < 1:
        raise ValueError(
            f"axial.widths = {list(widths)}: expected {len(shape)} numbers that add up to d_model "
            f"({d_model}); write {list(_parts(d_model, len(shape)))}, or leave the widths out"
        )
    return shape, widths


def square_grid(n: int) -> tuple[int, int]:
    """Return rows and columns for n positions: 32 x 64 for 2,048, 256 x 256 for 65,536."""
    if n < 1:
        raise ValueError(f"max_length = {n}: expected at least 1 position")
    columns = 2 ** math.ceil(math.log2(n) / 2)
    return -(-n // columns), columns


def _parts(whole: int, n: int) -> tuple[int, ...]:
    """Split `whole` into n nearly equal integers."""
    return tuple((whole + i) // n for i in range(n))
