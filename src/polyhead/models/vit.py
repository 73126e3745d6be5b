"""The Vision Transformer (Dosovitskiy et al. 2021): an image is a sentence of 16 x 16 patches.

    z_0 = [class ; patch_1 E ; … ; patch_N E] + P                (1)
    y   = LayerNorm(z_L)[class] W                                (4)

Between the two stands the same stack that reads text. E is one linear map for every patch, written
as a convolution whose kernel and stride are the patch. The patches are read row by row.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.dropout import Dropout
from polyhead.layers.init import vision
from polyhead.layers.positions import PositionKind, make_positions
from polyhead.layers.stack import StackConfig
from polyhead.layers.stacks import make_stack

Grid = tuple[int, int]  # rows and columns of patches


def cut(height: int, width: int, patch: int) -> Grid:
    """The grid of patches of an image, which must fit exactly: a rest would be dropped silently."""
    if patch < 1 or height < patch or width < patch or height % patch or width % patch:
        raise ValueError(
            f"an image of {height} x {width} pixels cannot be cut into patches of {patch} x {patch}"
            f"; both sides must be multiples of {patch}: resize it or choose another patch"
        )
    return height // patch, width // patch


def _stack(n_layers: int, d_model: int, n_heads: int) -> StackConfig:
    """A stack as ViT has it: norms before each sub-layer, and no dropout unless asked for."""
    return StackConfig(
        n_layers, d_model, n_heads, 4 * d_model,
        dropout=0.0, norm="pre", norm_eps=1e-6, activation="gelu",
    )  # fmt: skip


@dataclass(frozen=True)
class ViTConfig:
    """The defaults are ViT-B/16 for 224 x 224 pixels and ImageNet's thousand classes.

    pooling: "class" reads the result from an extra token, "mean" from the average of the patches.
    """

    classes: int = 1000
    height: int = 224
    width: int = 224
    channels: int = 3
    patch: int = 16
    pooling: Literal["class", "mean"] = "class"
    stack: StackConfig = _stack(12, 768, 12)
    positions: PositionKind = "learned"  # the others count the patches row by row

    def __post_init__(self) -> None:
        cut(self.height, self.width, self.patch)

    @property
    def grid(self) -> Grid:
        """How many patches stand below and beside each other."""
        return cut(self.height, self.width, self.patch)


PUBLISHED = {
    "vit-ti-16": ViTConfig(stack=_stack(12, 192, 3)),
    "vit-s-16": ViTConfig(stack=_stack(12, 384, 6)),
    "vit-b-16": ViTConfig(),
    "vit-b-32": ViTConfig(patch=32),
    "vit-l-16": ViTConfig(stack=_stack(24, 1024, 16)),
    "vit-h-14": ViTConfig(patch=14, stack=_stack(32, 1280, 16)),
}


class PatchEmbed(nn.Module):
    """Cut an image into patches, row by row, and map each to a vector."""

    def __init__(self, patch: int, channels: int, d_model: int) -> None:
        super().__init__()
        self.patch = patch
        self.project = nn.Conv2d(channels, d_model, kernel_size=patch, stride=patch)

    def forward(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch patch d_model"]:
        cut(images.size(-2), images.size(-1), self.patch)
        return self.project(images).flatten(2).transpose(1, 2)


class ViT(nn.Module):
    """An image classifier. Its output layer begins at zero: the first loss is ln(classes)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        d_model, self.grid = config.stack.d_model, config.grid
        self.embed = PatchEmbed(config.patch, config.channels, d_model)
        with_class = config.pooling == "class"
        self.class_token = nn.Parameter(torch.zeros(d_model)) if with_class else None
        n_tokens = self.grid[0] * self.grid[1] + int(with_class)
        self.n_tokens = n_tokens
        self.positions = make_positions(config.positions, d_model, n_tokens)
        self.dropout = Dropout(config.stack.dropout)
        self.stack = make_stack(config.stack, rotary=config.positions == "rotary")
        self.to_logits = nn.Linear(d_model, config.classes)
        vision(self)
        nn.init.zeros_(self.to_logits.weight)

    def hidden(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch token d_model"]:
        """A vector for every patch, after that of the class token if there is one."""
        x = self.embed(images)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        places = self.places(cut(images.size(-2), images.size(-1), self.embed.patch))
        return self.stack(self.dropout(x + places))

    def forward(
        self, images: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch classes"]:
        states = self.hidden(images)
        return self.to_logits(states.mean(1) if self.class_token is None else states[:, 0])

    def places(self, grid: Grid) -> Float[Tensor, "token d_model"]:
        """The position vectors for a grid: as learned, or interpolated if it is another one."""
        table = self.positions(self.n_tokens)
        if grid == self.grid:
            return table
        first = int(self.class_token is not None)
        return torch.cat([table[:first], interpolate(table[first:], self.grid, grid)])


def interpolate(
    table: Float[Tensor, "old d_model"], old: Grid, new: Grid
) -> Float[Tensor, "new d_model"]:
    """Position vectors of one grid of patches stretched to another (section 3.2).

    The old grid is told, not guessed: 12 patches may be 3 x 4, 4 x 3 or 2 x 6.
    """
    assert len(table) == old[0] * old[1], f"{len(table)} vectors are not a grid of {old}"
    picture = table.float().t().unflatten(1, old)[None]  # (1, d_model, rows, columns)
    stretched = F.interpolate(picture, size=new, mode="bicubic", antialias=True)
    return stretched[0].flatten(1).t().to(table.dtype)
