"""Batches of images: drawn anew for every epoch, scaled to [-1, 1], augmented, labels as shares.

A budget of tokens is a budget of images: every image has the same number of patches. The batches of
an epoch are as equal as they can be, so that no last one is made of two images.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.batches.translation import IndexedBatches, mix
from polyhead.data.images.augment import AugmentConfig, augment
from polyhead.data.images.dataset import ImageSet


class ImageBatch(NamedTuple):
    """`targets` are shares of classes, which sum to one: mixed images have more than one class."""

    images: Float[Tensor, "batch channel height width"]
    targets: Float[Tensor, "batch classes"]
    tokens: int  # that a model makes of one image

    def to(self, device: torch.device) -> "ImageBatch":
        """Move both tensors."""
        images, targets = (t.to(device, non_blocking=True) for t in self[:2])
        return ImageBatch(images, targets, self.tokens)

    @property
    def n_tokens(self) -> int:
        """All tokens of all images."""
        return len(self.images) * self.tokens

    def halves(self) -> tuple["ImageBatch", "ImageBatch"]:
        """The same images in two batches, for when one does not fit into memory."""
        middle = len(self.images) // 2
        return (
            ImageBatch(self.images[:middle], self.targets[:middle], self.tokens),
            ImageBatch(self.images[middle:], self.targets[middle:], self.tokens),
        )


@dataclass(frozen=True)
class TokenBudget:
    """How many images make a batch: `max_tokens` over the tokens of one image."""

    max_tokens: int
    tokens: int

    @property
    def images(self) -> int:
        """At least one."""
        return max(1, self.max_tokens // self.tokens)


def scaled(
    pixels: UInt8[Tensor, "batch channel height width"],
) -> Float[Tensor, "batch channel height width"]:
    """Bytes as numbers between -1 and 1."""
    return pixels.float().div_(127.5).sub_(1.0)


class ImageBatches(IndexedBatches):
    """All batches of all epochs."""

    def __init__(
        self, images: ImageSet, classes: int, budget: TokenBudget, change: AugmentConfig, seed: int
    ) -> None:
        self.images = images
        self.classes = classes
        self.budget = budget
        self.change = change
        self.seed = seed

    def n_batches(self, epoch: int) -> int:
        """The same in every epoch."""
        del epoch
        return -(-len(self.images) // self.budget.images)

    def __getitem__(self, place: tuple[int, int]) -> ImageBatch:
        epoch, step = place
        order = np.random.default_rng(mix(self.seed, epoch)).permutation(len(self.images))
        chosen = np.array_split(order, self.n_batches(epoch))[step]
        batch = plain(self.images.part(torch.from_numpy(chosen)), self.classes, self.budget.tokens)
        draw = np.random.default_rng([self.seed, epoch, step])
        return ImageBatch(*augment(batch.images, batch.targets, self.change, draw), batch.tokens)


def plain(images: ImageSet, classes: int, tokens: int) -> ImageBatch:
    """Images as they are, each of exactly one class."""
    targets = F.one_hot(images.labels, classes).float()
    return ImageBatch(scaled(images.pixels), targets, tokens)
