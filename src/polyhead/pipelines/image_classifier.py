"""A trained image classifier, ready to use: `polyhead.load("runs/pets").classify(["cat.jpg"])`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from polyhead import devices
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.data.batches.images import image_logits
from polyhead.data.config import DataConfig
from polyhead.data.images.dataset import fitted, load_set
from polyhead.data.images.files import Unreadable, read_image
from polyhead.data.images.folders import PixelShape
from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.metrics.classification import ClassificationReport, report
from polyhead.models.vit import cut
from polyhead.pipelines.family_checks import check_use, family_of

AT_ONCE = 2**14  # tokens that are read at once, about
USE = "polyhead classify"

Picture = str | Path | np.ndarray  # a file, or bytes: (height, width) or (height, width, channel)


@dataclass(frozen=True)
class Label:
    """A class and how sure the model is of it."""

    name: str
    probability: float


@dataclass(frozen=True)
class ImageClassifier:
    """Says what an image shows. Images are brought to the size that the model was trained on."""

    saved: SavedModel
    name: str
    device: torch.device

    @property
    def classes(self) -> tuple[str, ...]:
        """What the classes are called; numbers, if nobody said."""
        names = self.saved.about.get("classes")
        count = self.saved.config.classes
        if names is None:
            return tuple(str(number) for number in range(count))
        if not isinstance(names, list) or [type(n) for n in names] != [str] * count:
            raise CheckpointError(f"{self.name}: config.json should name {count} classes")
        return tuple(names)

    def shape(self, size: tuple[int, int] | None = None) -> PixelShape:
        """The size of the images that it reads: its own, or another (height, width).

        For another one the position vectors are interpolated; it must be made of whole patches.
        """
        config = self.saved.config
        height, width = (config.height, config.width) if size is None else size
        try:
            cut(height, width, config.patch)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return PixelShape(height, width, config.channels)

    def classify(
        self,
        pictures: Sequence[Picture],
        *,
        top: int = 1,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[list[Label]]:
        """The likeliest `top` classes of every image, likeliest first."""
        if isinstance(pictures, str | Path | np.ndarray):
            raise ConfigError("classify takes a list of images; write classify([image])")
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1")
        shape = self.shape(size)
        at_once, answers = self.at_once(shape), []
        for start in range(0, len(pictures), at_once):
            some = pictures[start : start + at_once]
            pixels = torch.stack([self.read(picture, shape) for picture in some])
            answers += self.label(pixels, top)
            progress(len(some))
        return answers

    def label(
        self, pixels: UInt8[Tensor, "image channel height width"], top: int = 1
    ) -> list[list[Label]]:
        """The likeliest classes of images that were read before."""
        names = self.classes
        likeliest = self.probabilities(pixels).topk(min(top, len(names)))
        return [
            [Label(names[i], p) for i, p in zip(numbers.tolist(), shares.tolist(), strict=True)]
            for shares, numbers in zip(*likeliest, strict=True)
        ]

    def evaluate(
        self,
        images: Sequence[str | Path],
        *,
        corpus: str | None = None,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> tuple[ClassificationReport, list[str]]:
        """Accuracy, F1 and confusion on images whose classes are known, and notices about them."""
        shape = self.shape(size)
        config = DataConfig(images=tuple(str(path) for path in images), corpus=corpus)
        found, notices = load_set(config, shape, self.classes)
        said: list[int] = []
        for pixels in found.pixels.split(self.at_once(shape)):
            said += self.probabilities(pixels).argmax(-1).tolist()
            progress(len(pixels))
        return report(found.labels.tolist(), said, self.classes), notices

    def probabilities(
        self, pixels: UInt8[Tensor, "image channel height width"]
    ) -> Float[Tensor, "image classes"]:
        """How likely each class is, for images that have the right shape."""
        return image_logits(self.saved.model, pixels, max(1, len(pixels))).softmax(-1)

    def read(self, picture: Picture, shape: PixelShape) -> UInt8[Tensor, "channel height width"]:
        """One image in a shape that the model can read."""
        if isinstance(picture, np.ndarray):
            return _from_array(picture, shape)
        try:
            pixels = read_image(
                Path(picture), height=shape.height, width=shape.width, channels=shape.channels
            )
        except Unreadable as error:
            raise DataError(f"{picture}: {error}") from None
        return torch.from_numpy(pixels)

    def at_once(self, shape: PixelShape) -> int:
        """How many images of a shape are read together."""
        rows, columns = cut(shape.height, shape.width, self.saved.config.patch)
        return max(1, AT_ONCE // (rows * columns))


def load(*paths: str | Path, device: str = "auto") -> ImageClassifier:
    """Load an image classifier from its folder (or a run's)."""
    if len(paths) != 1:
        raise ConfigError("name one model; image classifiers make no ensembles")
    path = Path(paths[0])
    if family_of(path) != "vit":
        check_use(path, USE)
        raise CheckpointError(f"{path} classifies text, not images")
    chosen = devices.choose(device)
    saved: Any = model_folder.load_model(path, str(chosen))
    return ImageClassifier(saved, str(path), chosen)


def _from_array(picture: np.ndarray, shape: PixelShape) -> UInt8[Tensor, "channel height width"]:
    """Bytes that are in memory, brought to a shape."""
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3) or not picture.size:
        raise DataError(
            f"an image of {picture.dtype} with shape {picture.shape}: expected bytes (uint8) as "
            "(height, width) or (height, width, channel)"
        )
    channels = torch.from_numpy(np.atleast_3d(picture).copy()).permute(2, 0, 1)
    if len(channels) not in (1, 3):
        raise DataError(f"an image with {len(channels)} channels: expected 1 or 3")
    if len(channels) > shape.channels:  # grey as the eye sees it (ITU-R 601)
        share = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
        channels = (channels * share).sum(0, keepdim=True).round().to(torch.uint8)
    one = PixelShape(shape.height, shape.width, 1)
    separate = fitted(channels[:, None], one)[:, 0]  # each channel by itself
    return separate.expand(shape.channels, -1, -1).contiguous()
