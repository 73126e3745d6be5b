"""Image classification: `ImageClassifier.from_dir("runs/pets").classify(["cat.jpg"])`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar, overload

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from polyhead.data.batches.images import image_logits
from polyhead.data.config import DataConfig
from polyhead.data.dataset_dir import evaluation_files
from polyhead.data.images.dataset import ImageSet, fitted, load_set
from polyhead.data.images.files import PixelShape, Unreadable, decode, read_bytes
from polyhead.data.labels import class_numbers
from polyhead.decoding.hypotheses import log_normaliser
from polyhead.errors import ConfigError, DataError
from polyhead.metrics.bleu import check_lengths
from polyhead.metrics.perplexity import MapBatches, map_here
from polyhead.models.registry import TaskName
from polyhead.models.vit import cut
from polyhead.pipelines.base import ClassifierPipeline
from polyhead.pipelines.result_list import ResultList
from polyhead.tasks.text_classification import Classification, ClassificationEvaluation

MAX_TOKENS = 2**14  # of one batch, about

Picture = str | Path | np.ndarray  # a file, or bytes: (height, width) or (height, width, channel)


@dataclass(frozen=True, repr=False)
class ImageClassifier(ClassifierPipeline):
    """A model that assigns images to classes; images are resized to the size of its training."""

    tasks: ClassVar[tuple[TaskName, ...]] = ("image_classification",)
    use: ClassVar[str] = "classify-image"

    def shape(self, size: tuple[int, int] | None = None) -> PixelShape:
        """Return the shape of the images that the model reads, or of `size`, in whole patches."""
        config = self.saved.config
        height, width = (config.height, config.width) if size is None else size
        try:
            cut(height, width, config.patch)
        except ValueError as error:
            raise ConfigError(str(error), "bad_image_size") from None
        return PixelShape(height, width, config.channels)

    @overload
    def classify(  # type: ignore[overload-overlap]  # the name of a file is a sequence of texts
        self, pictures: Picture, *, top: int = 1, size: tuple[int, int] | None = None
    ) -> Classification: ...
    @overload
    def classify(
        self,
        pictures: Sequence[Picture],
        *,
        top: int = 1,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = ...,
    ) -> ResultList[Classification]: ...
    def classify(
        self,
        pictures: Picture | Sequence[Picture],
        *,
        top: int = 1,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Classification | ResultList[Classification]:
        """Return the classification of an image, or of every image of a list.

        pictures: files, or uint8 arrays (height, width) or (height, width, channel).
        top: the number of classes in `probabilities`, likeliest first.
        size: resize to this (height, width) instead of the size of the training.
        progress: called with the number of images of each batch.

        Example: `classifier.classify("cat.jpg", top=3).label`
        """
        images = as_pictures(pictures, "classify")
        if top < 1:
            raise ConfigError(f"top = {top}: expected at least 1", "out_of_range")
        shape = self.shape(size)
        batch_size, labels = self.batch_size(shape), ResultList[Classification]()
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size]
            labels += self.label(torch.stack([self.read(p, shape) for p in batch]), top)
            progress(len(batch))
        return labels[0] if is_picture(pictures) else labels

    def label(
        self, pixels: UInt8[Tensor, "image channel height width"], top: int = 1
    ) -> list[Classification]:
        """Return the likeliest classes of images that were read before."""
        names = self.classes
        likeliest = self.probabilities(pixels).topk(min(top, len(names)))
        rows = zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
        return [
            Classification(
                names[numbers[0]], {names[i]: p for i, p in zip(numbers, shares, strict=True)}
            )
            for numbers, shares in rows
        ]

    def evaluate(
        self,
        images: Picture | Sequence[Picture] = (),
        labels: Sequence[str | int] | None = None,
        *,
        corpus: str | None = None,
        size: tuple[int, int] | None = None,
        progress: Callable[[int], None] = lambda _: None,
        map_batches: MapBatches = map_here,
    ) -> ClassificationEvaluation:
        """Return accuracy, F1 and confusion on labelled images.

        images: folders with one folder for each class, or other labelled image files; with
            `labels`, images as in `classify`.
        labels: the class of each image.
        corpus: the name of a built-in set, such as "digits", instead of `images`.
        size: resize to this (height, width) instead of the size of the training.
        progress: called with the number of images of each batch.
        map_batches: applies the model to all batches; several processes may share them.
        """
        shape = self.shape(size)
        pictures = as_pictures(images, "evaluate")
        notices: list[str] = []
        if labels is None:
            paths = [str(path) for path in pictures]
            config = DataConfig(images=tuple(evaluation_files(paths, "images")), corpus=corpus)
            dataset, notices = load_set(config, shape, self.classes)
        else:
            check_lengths(pictures, labels)
            numbers = class_numbers([str(label) for label in labels], self.classes, "labels")
            pixels = torch.stack([self.read(picture, shape) for picture in pictures])
            dataset = ImageSet.of(pixels, torch.tensor(numbers))

        def likeliest(pixels: Tensor) -> list[int]:
            progress(len(pixels))
            best: list[int] = self.probabilities(pixels).argmax(-1).tolist()
            return best

        batches = dataset.pixels.split(self.batch_size(shape))
        predicted = list(chain.from_iterable(map_batches(likeliest, batches)))
        expected: list[int] = dataset.labels.tolist()
        return ClassificationEvaluation.of(expected, predicted, self.classes, notices)

    def probabilities(
        self, pixels: UInt8[Tensor, "image channel height width"]
    ) -> Float[Tensor, "image classes"]:
        """Return the probabilities of all classes for images of the right shape."""
        logits = image_logits(self.model, pixels, max(1, len(pixels)))
        log_normaliser(logits)  # raises if they are not finite
        return logits.softmax(-1)

    def read(self, picture: Picture, shape: PixelShape) -> UInt8[Tensor, "channel height width"]:
        """Return the pixels of an image, resized to a shape."""
        if isinstance(picture, np.ndarray):
            return _from_array(picture, shape)
        try:
            pixels = decode(read_bytes(Path(picture)), shape)
        except Unreadable as error:
            raise DataError(f"{picture}: {error}", "unreadable_image") from None
        return torch.from_numpy(pixels)

    def batch_size(self, shape: PixelShape) -> int:
        """Return how many images of a shape are read together."""
        rows, columns = cut(shape.height, shape.width, self.saved.config.patch)
        return max(1, MAX_TOKENS // (rows * columns))


def is_picture(given: object) -> bool:
    """Return True for one image; an array of several has four axes."""
    return isinstance(given, str | Path) or (isinstance(given, np.ndarray) and given.ndim < 4)


def as_pictures(given: object, method: str) -> list[Picture]:
    """Return an image, or many, as a list; ConfigError for anything else."""
    if isinstance(given, str | Path | np.ndarray) and is_picture(given):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, bytes | Mapping):
        pictures: list[Picture] = list(given)
        if all(map(is_picture, pictures)):
            return pictures
    raise ConfigError(
        f"{method} takes an image or a list of images, not {type(given).__name__}; an image is a "
        "file or an array",
        "not_an_image",
    )


def _from_array(picture: np.ndarray, shape: PixelShape) -> UInt8[Tensor, "channel height width"]:
    """Return bytes in memory, resized to a shape."""
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3) or not picture.size:
        raise DataError(
            f"an image of {picture.dtype} with shape {picture.shape}: expected bytes (uint8) as "
            "(height, width) or (height, width, channel)",
            "bad_image_array",
        )
    channels = torch.from_numpy(np.atleast_3d(picture).copy()).permute(2, 0, 1)
    if len(channels) not in (1, 3):
        raise DataError(
            f"an image with {len(channels)} channels: expected 1 or 3", "bad_image_array"
        )
    if len(channels) > shape.channels:  # luma of ITU-R BT.601
        share = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
        channels = (channels * share).sum(0, keepdim=True).round().to(torch.uint8)
    grey = PixelShape(shape.height, shape.width, 1)
    separate = fitted(channels[:, None], grey)[:, 0]  # each channel by itself
    return separate.expand(shape.channels, -1, -1).contiguous()
