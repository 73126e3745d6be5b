"""Augmentation of images, different in every epoch; the draws depend on (seed, epoch, step) alone.

    flip      mirrored with probability 1/2                        not for digits or letters
    shift     moved by up to so many pixels; border pixels are repeated
    turn      rotated by up to so many degrees, and scaled by up to `zoom`
    warp      elastic distortion: points move by so many pixels    Simard et al. 2003
    erase     a rectangle of 2 to 33 % becomes noise               Zhong et al. 2020
    mixup     λ x + (1 - λ) x'                                     Zhang et al. 2018
    cutmix    a rectangle of x' in x, λ the part that stays        Yun et al. 2019

The last two mix labels as the images: λ y + (1 - λ) y', with λ from Beta(α, α); if both are on, one
is drawn for every batch.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.config import AugmentConfig

Images = Float[Tensor, "batch channel height width"]
Grid = Float[Tensor, "batch height width 2"]
Shares = Float[Tensor, "batch classes"]  # of the classes of an image
POINTS = (3, 3)  # moved by `warp`; the others are interpolated
SMALLEST_AREA, LARGEST_AREA, LONGEST = 0.02, 0.33, 3.3  # of an erased rectangle


def augment(
    images: Images, targets: Shares, config: AugmentConfig, rng: np.random.Generator
) -> tuple[Images, Shares]:
    """Return changed copies of images (between -1 and 1) and of the shares of their classes."""
    if config.flip:
        images = flip(images, rng)
    if config.shift:
        images = shift(images, config.shift, rng)
    if config.turn or config.zoom or config.warp:
        images = bend(images, config, rng)
    if config.erase:
        images = erase(images, config.erase, rng)
    if config.mixup and (not config.cutmix or rng.random() < 0.5):
        return mixup(images, targets, config.mixup, rng)
    if config.cutmix:
        return cutmix(images, targets, config.cutmix, rng)
    return images, targets


def flip(images: Images, rng: np.random.Generator) -> Images:
    """Mirror half of the images, left to right."""
    chosen = torch.from_numpy(rng.random(len(images)) < 0.5)
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)


def shift(images: Images, most: int, rng: np.random.Generator) -> Images:
    """Move each image by its own number of pixels in both directions."""
    moves = torch.from_numpy(rng.integers(-most, most + 1, size=(2, len(images), 1)))
    height, width = images.shape[-2:]
    rows = (torch.arange(height) + moves[0]).clamp(0, height - 1)  # (batch, height)
    columns = (torch.arange(width) + moves[1]).clamp(0, width - 1)
    images = images.gather(2, rows[:, None, :, None].expand_as(images))
    return images.gather(3, columns[:, None, None, :].expand_as(images))


def bend(images: Images, config: AugmentConfig, rng: np.random.Generator) -> Images:
    """Rotate, scale and warp each image, resampling once."""
    # The grid holds for every new pixel its place in the old image, from -1 to 1 on both axes.
    grid = turned(images, config.turn, config.zoom, rng)
    if config.warp:
        grid = grid + warped(images, config.warp, rng)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def turned(images: Images, degrees: float, zoom: float, rng: np.random.Generator) -> Grid:
    """Return the grid of a rotation and scaling of each image about its centre."""
    n, (height, width) = len(images), images.shape[-2:]
    angle = np.deg2rad(rng.uniform(-degrees, degrees, n))
    factor = (1 + zoom) ** rng.uniform(-1, 1, n)
    cosine, sine = factor * np.cos(angle), factor * np.sin(angle)
    zero = np.zeros(n)
    rows = [[cosine, -sine * height / width, zero], [sine * width / height, cosine, zero]]
    where = torch.from_numpy(np.array(rows)).permute(2, 0, 1).float()  # (batch, 2, 3)
    return F.affine_grid(where, list(images.shape), align_corners=False)


def warped(images: Images, pixels: float, rng: np.random.Generator) -> Grid:
    """Return the displacements of each image: nine are drawn, the others interpolated."""
    n, (height, width) = len(images), images.shape[-2:]
    moves = rng.normal(0, pixels, (n, 2, *POINTS)) * np.array([[[2 / width]], [[2 / height]]])
    field = torch.from_numpy(moves).float()
    smooth = F.interpolate(field, size=(height, width), mode="bicubic", align_corners=True)
    return smooth.permute(0, 2, 3, 1)  # (batch, height, width, 2)


def erase(images: Images, probability: float, rng: np.random.Generator) -> Images:
    """Replace a rectangle of some images by noise."""
    n, (height, width) = len(images), images.shape[-2:]
    area = rng.uniform(SMALLEST_AREA, LARGEST_AREA, n) * height * width
    aspect = np.exp(rng.uniform(-np.log(LONGEST), np.log(LONGEST), n))
    tall = np.clip(np.round(np.sqrt(area * aspect)), 1, height)
    wide = np.clip(np.round(np.sqrt(area / aspect)), 1, width)
    top = np.floor(rng.random(n) * (height - tall + 1))
    left = np.floor(rng.random(n) * (width - wide + 1))
    chosen = rng.random(n) < probability
    inside = rectangles(top, left, np.where(chosen, tall, 0), wide, height, width)
    noise = torch.from_numpy(rng.random(tuple(images.shape), dtype=np.float32)) * 2 - 1
    return torch.where(inside[:, None], noise, images)


def mixup(
    images: Images, targets: Shares, alpha: float, rng: np.random.Generator
) -> tuple[Images, Shares]:
    """Blend every image with another one."""
    kept = float(rng.beta(alpha, alpha))
    other = torch.from_numpy(rng.permutation(len(images)))
    return torch.lerp(images[other], images, kept), torch.lerp(targets[other], targets, kept)


def cutmix(
    images: Images, targets: Shares, alpha: float, rng: np.random.Generator
) -> tuple[Images, Shares]:
    """Paste a rectangle of another image into every image; its visible area mixes the labels."""
    height, width = images.shape[-2:]
    side = np.sqrt(1 - rng.beta(alpha, alpha))
    middle = rng.random(2) * (height, width)
    half = side * np.array([height, width]) / 2
    first = np.clip(np.round(middle - half), 0, (height, width))
    size = np.clip(np.round(middle + half), 0, (height, width)) - first
    inside = rectangles(first[:1], first[1:], size[:1], size[1:], height, width)
    other = torch.from_numpy(rng.permutation(len(images)))
    kept = 1 - inside.float().mean().item()
    mixed = torch.where(inside[:, None], images[other], images)
    return mixed, torch.lerp(targets[other], targets, kept)


def rectangles(
    top: np.ndarray, left: np.ndarray, tall: np.ndarray, wide: np.ndarray, height: int, width: int
) -> Bool[Tensor, "batch height width"]:
    """Return masks that are True inside each rectangle."""
    rows, columns = np.arange(height), np.arange(width)
    down = (rows >= top[:, None]) & (rows < (top + tall)[:, None])
    across = (columns >= left[:, None]) & (columns < (left + wide)[:, None])
    return torch.from_numpy(down[:, :, None] & across[:, None, :])
