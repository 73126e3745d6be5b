"""Positions of long inputs from few parameters (Kitaev et al. 2020, appendix D; Ho et al. 2019).

A table of 262,144 positions would outweigh the model. Fold the line into a grid instead, and give
every row and every column a part of the vector:

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
    """The grid of axial positions, for those who do not want the one that fits by itself."""

    shape: tuple[int, ...] = ()  # its sides; nearly a square for max_length positions if empty
    widths: tuple[int, ...] = ()  # what each axis gets of d_model; about equal parts if empty


class AxialPositions(nn.Module):
    """A grid of free vectors over any number of axes; the last axis is the fastest.

    `widths` are the parts of d_model that the axes get, equal parts if not given. A longer input
    than the grid has places is an error.
    """

    def __init__(
        self, shape: tuple[int, ...], d_model: int, *, widths: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        if not shape or min(shape) < 1:
            raise ValueError(f"a grid needs sides of at least 1, got {shape}; write (128, 512)")
        if widths is None:
            if d_model % len(shape):
                raise ValueError(
                    f"d_model ({d_model}) has no {len(shape)} equal parts; give widths"
                )
            widths = (d_model // len(shape),) * len(shape)
        if len(widths) != len(shape) or sum(widths) != d_model or min(widths) < 1:
            raise ValueError(
                f"widths {widths} must be {len(shape)} numbers, one per axis of {shape}, "
                f"that add up to d_model ({d_model})"
            )
        self.shape = shape
        self.axes = nn.ModuleList(
            nn.Embedding(side, width) for side, width in zip(shape, widths, strict=True)
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


def make_axial(config: AxialConfig, d_model: int, max_length: int) -> AxialPositions:
    """Positions for at least `max_length` tokens."""
    shape, widths = grid_of(config, d_model, max_length)
    return AxialPositions(shape, d_model, widths=widths)


def grid_of(
    config: AxialConfig, d_model: int, max_length: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sides and the widths, given or not, once it is clear that they fit the model."""
    shape = config.shape or square_grid(max_length)
    widths = config.widths or _parts(d_model, len(shape))
    if min(shape) < 1 or math.prod(shape) < max_length:
        raise ValueError(
            f"axial.shape = {list(shape)} has {math.prod(shape)} places, but max_length is "
            f"{max_length}; write {list(square_grid(max_length))}, or leave the shape out"
        )
    if len(widths) != len(shape) or sum(widths) != d_model or min(widths) < 1:
        raise ValueError(
            f"axial.widths = {list(widths)}: expected {len(shape)} numbers that add up to d_model "
            f"({d_model}); write {list(_parts(d_model, len(shape)))}, or leave the widths out"
        )
    return shape, widths


def square_grid(n: int) -> tuple[int, int]:
    """Rows and columns for n places: the columns are a power of two, and not fewer than the rows.

    2,048 places are 32 x 64, and 65,536 are 256 x 256.
    """
    if n < 1:
        raise ValueError(f"max_length = {n}: expected at least 1 position")
    columns = 2 ** math.ceil(math.log2(n) / 2)
    return -(-n // columns), columns


def _parts(whole: int, n: int) -> tuple[int, ...]:
    """So many numbers, nearly equal, that add up to the whole."""
    return tuple((whole + i) // n for i in range(n))
