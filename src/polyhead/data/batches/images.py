"""Batches of images of nearly equal size: shuffled, in [-1, 1], augmented, with soft labels."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.batches.base import Batch, IndexedBatches
from polyhead.data.batches.epoch_plan import BlockPlan, Numbers
from polyhead.data.config import AugmentConfig
from polyhead.data.images.augment import augment
from polyhead.data.images.dataset import ImageSet


@dataclass(frozen=True)
class ImageBatch(Batch):
    """Images, and the shares of their classes, which sum to 1; mixed images have several."""

    images: Float[Tensor, "batch channel height width"]
    targets: Float[Tensor, "batch classes"]
    tokens: int  # patches of one image, and its class token

    @property
    def n_tokens(self) -> int:
        return len(self.images) * self.tokens


def scaled(
    pixels: UInt8[Tensor, "batch channel height width"],
) -> Float[Tensor, "batch channel height width"]:
    """Scale bytes to numbers between -1 and 1."""
    return pixels.float().div_(127.5).sub_(1.0)


class ImageBatches(IndexedBatches[ImageBatch]):
    """Batches of augmented images of `tokens` each, at most `max_tokens` but at least one image."""

    def __init__(
        self,
        images: ImageSet,
        classes: int,
        change: AugmentConfig,
        *,
        tokens: int,
        max_tokens: int,
        seed: int,
    ) -> None:
        super().__init__(seed)
        self.images, self.classes, self.change, self.tokens = images, classes, change, tokens
        self.batch_size = max(1, max_tokens // tokens)

    def plan(self, epoch: int, block: int, /) -> BlockPlan:
        rng = np.random.default_rng(self.block_seed(epoch, block))
        order = rng.permutation(len(self.images)).astype(np.int32)
        n_batches = -(-len(order) // self.batch_size)
        ends = np.cumsum([len(part) for part in np.array_split(order, n_batches)])
        return BlockPlan(order, np.concatenate([[0], ends[:-1]]), ends)

    def make(self, numbers: Numbers, epoch: int, step: int, /) -> ImageBatch:
        chosen = torch.from_numpy(numbers)
        targets = F.one_hot(self.images.labels[chosen], self.classes).float()
        rng = np.random.default_rng([self.seed, epoch, step])
        changed = augment(scaled(self.images.pixels_of(chosen)), targets, self.change, rng)
        return ImageBatch(*changed, self.tokens)
