"""Vision Transformer (Dosovitskiy et al. 2021): an image as a sequence of 16 x 16 patches.

    z_0 = [class ; patch_1 E ; … ; patch_N E] + P                (1)
    y   = LayerNorm(z_L)[class] W                                (4)

DeiT (Touvron et al. 2021) has a second token beside the class token; W reads both, concatenated.
In between is the same stack as for text. E is one linear map for every patch, written as a
convolution whose kernel and stride are the patch size. Patches are ordered row by row.

With a `stem` the patches are those of a feature map made by a few convolutions (the hybrid of
section 3.1, as in Xiao et al. 2021); each halves the image, and a patch covers as many pixels as
before. This helps with small data sets.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.dropout import Dropout
from polyhead.layers.embeddings import POSITIONS, PositionKind, make_positions
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.transformer_stack import StackConfig, TransformerStack, first_positions

Images = Float[Tensor, "batch channel height width"]
Grid = tuple[int, int]  # rows and columns of patches


def cut(height: int, width: int, patch: int) -> Grid:
    """Return the grid of patches of an image, whose size must be a multiple of the patch."""
    if patch < 1 or height < patch or width < patch or height % patch or width % patch:
        raise ValueError(
            f"an image of {height} x {width} pixels cannot be cut into patches of {patch} x {patch}"
            f"; both sides must be multiples of {patch}: resize it or choose another patch"
        )
    return height // patch, width // patch


def _stack(n_layers: int, d_model: int, n_heads: int) -> StackConfig:
    """Return the pre-norm stack of ViT, without dropout by default."""
    return StackConfig(
        n_layers, d_model, n_heads, 4 * d_model,
        dropout=0.0, norm="pre", norm_eps=1e-6, activation="gelu",
    )  # fmt: skip


@dataclass(frozen=True)
class ViTConfig:
    """The defaults are ViT-B/16 for 224 x 224 pixels and ImageNet's thousand classes."""

    classes: int = 1000
    height: int = 224
    width: int = 224
    channels: int = 3
    patch: int = 16
    pooling: Literal["class", "mean"] = "class"  # an extra token, or the mean of the patches
    stack: StackConfig = _stack(12, 768, 12)
    positions: PositionKind = "learned"  # the others number the patches row by row
    stem: tuple[int, ...] = ()  # channels of convolutions before them, each halving the image
    class_tokens: int = 1  # extra tokens with pooling = "class"; DeiT has 2

    def __post_init__(self) -> None:
        cut(self.height, self.width, self.patch)
        if self.class_tokens not in (1, 2):
            raise ValueError(f"class_tokens = {self.class_tokens}: expected 1, or 2 as in DeiT")
        if any(channels < 1 for channels in self.stem):
            raise ValueError(f"stem = {list(self.stem)}: expected numbers of channels above 0")
        if self.patch % 2 ** len(self.stem):
            raise ValueError(
                f"stem = {list(self.stem)} makes an image {2 ** len(self.stem)} times as small, "
                f"and patches of {self.patch} x {self.patch} pixels cannot be cut from that: "
                "expected fewer convolutions or larger patches"
            )

    @property
    def grid(self) -> Grid:
        return cut(self.height, self.width, self.patch)

    @property
    def n_extra(self) -> int:
        """Number of tokens before the patches."""
        return self.class_tokens if self.pooling == "class" else 0

    @property
    def n_tokens(self) -> int:
        """Number of tokens of an image."""
        return self.grid[0] * self.grid[1] + self.n_extra


PUBLISHED = {
    "vit-ti-16": ViTConfig(stack=_stack(12, 192, 3)),
    "vit-s-16": ViTConfig(stack=_stack(12, 384, 6)),
    "vit-b-16": ViTConfig(),
    "vit-b-32": ViTConfig(patch=32),
    "vit-l-16": ViTConfig(stack=_stack(24, 1024, 16)),
    "vit-h-14": ViTConfig(patch=14, stack=_stack(32, 1280, 16)),
}


class Halving(nn.Module):
    """Stem layer relu(norm(conv(x))) that halves rows and columns."""

    def __init__(self, channels: int, wider: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, wider, kernel_size=3, stride=2, padding=1)
        self.norm = nn.LayerNorm(wider)

    def forward(self, x: Images) -> Float[Tensor, "batch wider rows columns"]:
        x = self.convolution(x).movedim(1, -1)  # the norm is over the channels of each pixel
        return F.relu(self.norm(x)).movedim(-1, 1)


class PatchEmbed(nn.Module):
    """Projection of the patches of an image, or of its stem's output, to vectors."""

    def __init__(self, patch: int, channels: int, d_model: int, stem: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.patch = patch
        widths = (channels, *stem)
        self.stem = nn.Sequential(*(Halving(*pair) for pair in pairwise(widths)))
        side = patch >> len(stem)
        self.project = nn.Conv2d(widths[-1], d_model, kernel_size=side, stride=side)

    def forward(self, images: Images) -> Float[Tensor, "batch patch d_model"]:
        cut(images.size(-2), images.size(-1), self.patch)
        if len(self.stem):  # channels last in memory, for the norms
            images = images.contiguous(memory_format=torch.channels_last)
        return self.project(self.stem(images)).flatten(2).transpose(1, 2)


class ViT(nn.Module):
    """Image classifier. Its output layer is initialized to zero: the first loss is ln(classes)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        d_model, self.grid = config.stack.d_model, config.grid
        self.embed = PatchEmbed(config.patch, config.channels, d_model, config.stem)
        self.n_extra, self.n_tokens = config.n_extra, config.n_tokens
        shape = (d_model,) if self.n_extra == 1 else (self.n_extra, d_model)
        self.class_token = nn.Parameter(torch.zeros(shape)) if self.n_extra else None
        self.positions = make_positions(config.positions, d_model, self.n_tokens)
        self.dropout = Dropout(config.stack.dropout)
        self.stack = TransformerStack(config.stack, rotation=POSITIONS[config.positions].rotation)
        self.to_logits = nn.Linear(max(1, self.n_extra) * d_model, config.classes)
        vision(self)
        nn.init.zeros_(self.to_logits.weight)

    def tokens(self, images: Images) -> Float[Tensor, "batch token d_model"]:
        """Return z_0: the patches as vectors, after the class tokens if there are any."""
        x = self.embed(images)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), self.n_extra, -1), x], dim=1)
        return self.dropout(x + self.places(self.grid_of(images)))

    def hidden(self, images: Images) -> Float[Tensor, "batch token d_model"]:
        """Return z_L with its norm."""
        return self.stack(self.tokens(images), places=self.turns(self.grid_of(images)))

    def forward(self, images: Images) -> Float[Tensor, "batch classes"]:
        if self.class_token is None:
            return self.to_logits(self.hidden(images).mean(1))
        x, turns = self.tokens(images), self.turns(self.grid_of(images))
        extra = torch.arange(self.n_extra, device=x.device)
        only = (first_positions(x)[:, None] + extra).flatten()
        return self.to_logits(self.stack(x, places=turns, only=only).view(len(x), -1))

    def grid_of(self, images: Images) -> Grid:
        """Return the rows and columns of patches of these images."""
        return cut(images.size(-2), images.size(-1), self.embed.patch)

    def places(self, grid: Grid) -> Float[Tensor, "token d_model"]:
        """Return the position vectors for a grid: as learned, or interpolated."""
        table = self.positions(self.n_tokens)
        if grid == self.grid:
            return table
        first = self.n_extra
        return torch.cat([table[:first], interpolate(table[first:], self.grid, grid)])

    def turns(self, grid: Grid) -> Float[Tensor, "token"] | None:
        """Return rotary positions of another grid's tokens in the learned one.

        Positions are those of the patches' centres, so that patches of twice the resolution have
        half the distance. None means 0, 1, 2, …
        """
        if grid == self.grid:
            return None
        device = self.to_logits.weight.device
        row, column = (
            (torch.arange(n, device=device) + 0.5) * old / n - 0.5
            for n, old in zip(grid, self.grid, strict=True)
        )
        patches = (row[:, None] * self.grid[1] + column).flatten()
        extra = torch.arange(self.n_extra, device=device)
        return torch.cat([extra.to(patches), patches + self.n_extra])


def interpolate(
    table: Float[Tensor, "old d_model"], old: Grid, new: Grid
) -> Float[Tensor, "new d_model"]:
    """Interpolate position vectors from one grid of patches to another (section 3.2)."""
    assert len(table) == old[0] * old[1], f"{len(table)} vectors are not a grid of {old}"
    picture = table.float().t().unflatten(1, old)[None]  # (1, d_model, rows, columns)
    stretched = F.interpolate(picture, size=new, mode="bicubic", antialias=True)
    return stretched[0].flatten(1).t().to(table.dtype)


def vision(model: nn.Module) -> None:
    """Initialize a Vision Transformer: Glorot for matrices, N(0, 0.02²) for positions.

    Patch projection and stem convolutions get N(0, 1/fan_in), which keeps the variance of
    standardised pixels; feed-forward biases N(0, 10⁻⁶ squared), all others zero.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d) and module.bias is not None:
            nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    for module in model.modules():
        if isinstance(module, FeedForward):
            nn.init.normal_(module.w_1.bias, std=1e-6)
            nn.init.normal_(module.w_2.bias, std=1e-6)
