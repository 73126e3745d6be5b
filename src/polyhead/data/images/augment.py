"""Augmentation: every epoch shows every image a little changed.

    flip      mirrored with probability 1/2                        not for digits or letters
    shift     moved by up to so many pixels; the border's pixels are repeated
    turn      turned by up to so many degrees, and made larger or smaller by up to `zoom`
    warp      bent smoothly: points move by so many pixels         Simard et al. 2003
    erase     a rectangle of 2 to 33 % becomes noise               Zhong et al. 2020
    mixup     λ x + (1 - λ) x'                                     Zhang et al. 2018
    cutmix    a rectangle of x' in x, λ the part that stays        Yun et al. 2019

In the last two, labels are mixed as the images are: λ y + (1 - λ) y', with λ from Beta(α, α). If
both are on, a coin decides for every batch. All images of a batch are changed at once, and what
is drawn depends on (seed, epoch, step) alone: a run that goes on sees what it would have seen.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

Images = Float[Tensor, "batch channel height width"]
Grid = Float[Tensor, "batch height width 2"]
POINTS = (3, 3)  # that are moved by `warp`; all others lie between them
SMALLEST_AREA, LARGEST_AREA, LONGEST = 0.02, 0.33, 3.3  # of an erased rectangle


@dataclass(frozen=True)
class AugmentConfig:
    """The table [data.augment]. Everything is off unless a recipe says otherwise."""

    flip: bool = False
    shift: int = 0  # pixels
    turn: float = 0.0  # degrees
    zoom: float = 0.0  # 0.1: between 1 / 1.1 and 1.1 times as large
    warp: float = 0.0  # pixels, the standard deviation of a point's way
    erase: float = 0.0  # the probability for each image
    mixup: float = 0.0  # α; 0 for none
    cutmix: float = 0.0  # α; 0 for none

    def __post_init__(self) -> None:
        for name in ("shift", "turn", "zoom", "warp", "mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} = {getattr(self, name)}: expected 0 or more")
        if not 0 <= self.erase <= 1:
            raise ValueError(f"erase = {self.erase}: expected a probability between 0 and 1")


def augment(
    images: Float[Tensor, "batch channel height width"],
    targets: Float[Tensor, "batch classes"],
    config: AugmentConfig,
    draw: np.random.Generator,
) -> tuple[Float[Tensor, "batch channel height width"], Float[Tensor, "batch classes"]]:
    """Changed copies of some images (between -1 and 1) and of the shares of their classes."""
    if config.flip:
        images = flip(images, draw)
    if config.shift:
        images = shift(images, config.shift, draw)
    if config.turn or config.zoom or config.warp:
        images = bend(images, config, draw)
    if config.erase:
        images = erase(images, config.erase, draw)
    if config.mixup and (not config.cutmix or draw.random() < 0.5):
        return mixup(images, targets, config.mixup, draw)
    if config.cutmix:
        return cutmix(images, targets, config.cutmix, draw)
    return images, targets


def flip(images: Images, draw: np.random.Generator) -> Images:
    """Half of them mirrored, left to right."""
    chosen = torch.from_numpy(draw.random(len(images)) < 0.5)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def shift(images: Images, most: int, draw: np.random.Generator) -> Images:
    """Each moved by its own number of pixels, down or up, right or left."""
    moves = torch.from_numpy(draw.integers(-most, most + 1, size=(2, len(images), 1)))
    height, width = images.shape[-2:]
    rows = (torch.arange(height) + moves[0]).clamp(0, height - 1)  # (batch, height)
    columns = (torch.arange(width) + moves[1]).clamp(0, width - 1)
    images = images.gather(2, rows[:, None, :, None].expand_as(images))
    return images.gather(3, columns[:, None, None, :].expand_as(images))


def bend(images: Images, config: AugmentConfig, draw: np.random.Generator) -> Images:
    """Each turned, resized and warped in its own way, and drawn anew once.

    The grid says for every new pixel where to look in the old image, from -1 to 1 on both axes.
    """
    grid = turned(images, config.turn, config.zoom, draw)
    if config.warp:
        grid = grid + warped(images, config.warp, draw)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def turned(images: Images, degrees: float, zoom: float, draw: np.random.Generator) -> Grid:
    """Turned about the middle and resized, by an angle and a factor for each image."""
    n, (height, width) = len(images), images.shape[-2:]
    angle = np.deg2rad(draw.uniform(-degrees, degrees, n))
    factor = (1 + zoom) ** draw.uniform(-1, 1, n)
    cosine, sine = factor * np.cos(angle), factor * np.sin(angle)
    nothing = np.zeros(n)
    rows = [[cosine, -sine * height / width, nothing], [sine * width / height, cosine, nothing]]
    where = torch.from_numpy(np.array(rows)).permute(2, 0, 1).float()  # (batch, 2, 3)
    return F.affine_grid(where, list(images.shape), align_corners=False)


def warped(images: Images, pixels: float, draw: np.random.Generator) -> Grid:
    """How far each place moves: nine points are drawn, and what lies between them follows."""
    n, (height, width) = len(images), images.shape[-2:]
    ways = draw.normal(0, pixels, (n, 2, *POINTS)) * np.array([[[2 / width]], [[2 / height]]])
    field = torch.from_numpy(ways).float()
    smooth = F.interpolate(field, size=(height, width), mode="bicubic", align_corners=True)
    return smooth.permute(0, 2, 3, 1)  # (batch, height, width, 2)


def erase(images: Images, probability: float, draw: np.random.Generator) -> Images:
    """In some of them, a rectangle becomes noise."""
    n, (height, width) = len(images), images.shape[-2:]
    area = draw.uniform(SMALLEST_AREA, LARGEST_AREA, n) * height * width
    aspect = np.exp(draw.uniform(-np.log(LONGEST), np.log(LONGEST), n))
    tall = np.clip(np.round(np.sqrt(area * aspect)), 1, height)
    wide = np.clip(np.round(np.sqrt(area / aspect)), 1, width)
    top = np.floor(draw.random(n) * (height - tall + 1))
    left = np.floor(draw.random(n) * (width - wide + 1))
    chosen = draw.random(n) < probability
    inside = rectangles(top, left, np.where(chosen, tall, 0), wide, height, width)
    noise = torch.from_numpy(draw.random(tuple(images.shape), dtype=np.float32)) * 2 - 1
    return torch.where(inside[:, None], noise, images)


def mixup(
    images: Images, targets: Tensor, alpha: float, draw: np.random.Generator
) -> tuple[Images, Tensor]:
    """Every image faintly has another one in it."""
    kept = float(draw.beta(alpha, alpha))
    other = torch.from_numpy(draw.permutation(len(images)))
    return torch.lerp(images[other], images, kept), torch.lerp(targets[other], targets, kept)


def cutmix(
    images: Images, targets: Tensor, alpha: float, draw: np.random.Generator
) -> tuple[Images, Tensor]:
    """Every image has a rectangle of another one in it, at the same place for the whole batch.

    The rectangle may be cut by the border: labels are mixed by what is left of it.
    """
    height, width = images.shape[-2:]
    side = np.sqrt(1 - draw.beta(alpha, alpha))
    middle = draw.random(2) * (height, width)
    half = side * np.array([height, width]) / 2
    first = np.clip(np.round(middle - half), 0, (height, width))
    size = np.clip(np.round(middle + half), 0, (height, width)) - first
    inside = rectangles(first[:1], first[1:], size[:1], size[1:], height, width)
    other = torch.from_numpy(draw.permutation(len(images)))
    kept = 1 - inside.float().mean().item()
    mixed = torch.where(inside[:, None], images[other], images)
    return mixed, torch.lerp(targets[other], targets, kept)


def rectangles(
    top: np.ndarray, left: np.ndarray, tall: np.ndarray, wide: np.ndarray, height: int, width: int
) -> Bool[Tensor, "batch height width"]:
    """True inside each rectangle."""
    rows, columns = np.arange(height), np.arange(width)
    down = (rows >= top[:, None]) & (rows < (top + tall)[:, None])
    across = (columns >= left[:, None]) & (columns < (left + wide)[:, None])
    return torch.from_numpy(down[:, :, None] & across[:, None, :])
