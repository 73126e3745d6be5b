"""Positions of long inputs from few parameters (Kitaev et al. 2020, appendix D; Ho et al. 2019).

A table of 262,144 positions would outweigh the model. Fold the line into a grid instead, and give
every row and every column a part of the vector:

    PE(pos) = [ R[pos div columns] ; C[pos mod columns] ],    R: (rows, d_1),  C: (columns, d_2)

with d_1 + d_2 = d_model. 512 x 512 positions then need 1024 vectors, not 262,144. No two positions
share both parts, and neighbours share one of them.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


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
