"""Images with their classes, as bytes of the model's size and channels, sorted by name.

--images photos/              photos/cat/1.jpg, photos/dog/2.png …      a directory per class
--images train-images-idx3-ubyte.gz                                     as MNIST comes
--images data_batch_1.bin                                               as CIFAR-10 comes
data.corpus = "digits"        1,797 handwritten digits of 8 x 8 pixels, from scikit-learn
"""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus, Digests, draw_per_class, held_out_notice
from polyhead.data.images.cifar import is_cifar, read_cifar
from polyhead.data.images.files import Pixels, PixelShape, Unreadable
from polyhead.data.images.folders import Name, check_room, read_folder, visible, with_classes
from polyhead.data.images.idx import is_idx, read_images
from polyhead.data.images.image_arrays import labels_of_array, read_arrays
from polyhead.data.labels import class_numbers, in_order
from polyhead.data.locate import find
from polyhead.data.text_files import skipped_notices
from polyhead.data.token_store import TokenSequences
from polyhead.errors import ConfigError, DataError, MissingError, install_command

MAX_LISTED = 20  # bad images in a message
DIGITS_TRAIN = 898  # the usual split into halves
HASHED_BYTES = 2**24  # of the images that are hashed at once
FITTED = 1_024  # images that are resized at once


@dataclass(frozen=True)
class ImageSet:
    """Images and the number of each image's class.

    rows: the numbers of the images in `pixels`, if these are mapped from a file; else None.
    file: which has the bytes of an image in each of its sequences.
    """

    pixels: UInt8[Tensor, "row channel height width"]
    labels: Int[Tensor, "image"]
    rows: Int[Tensor, "image"] | None = None
    file: TokenSequences | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what another process needs: of mapped images the name of the file."""
        if self.rows is None or self.file is None:
            return ImageSet, (self.pixels, self.labels)
        channels, height, width = self.pixels.shape[1:]
        return map_images, (self.file, PixelShape(height, width, channels), self.rows, self.labels)

    def part(self, chosen: Int[Tensor, "some"]) -> "ImageSet":
        """Return some of the images in memory."""
        rows = chosen if self.rows is None else self.rows[chosen]
        if self.file is not None:
            starts = rows.numpy() * self.pixels.shape[1:].numel()
            self.file.check(starts, starts + self.pixels.shape[1:].numel())
        return ImageSet(self.pixels[rows], self.labels[chosen])

    def select(self, chosen: Int[Tensor, "some"] | list[int], /) -> "ImageSet":
        """Return some of the images, mapped if these are."""
        chosen = torch.as_tensor(chosen)
        if self.rows is None:
            return self.part(chosen)
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen])

    def fingerprint(self, classes: Sequence[str]) -> str:
        """Return the SHA-256 of all pixels, labels and class names."""
        shape = self.pixels.shape[1:]
        digest = hashlib.sha256(repr(((len(self), *shape), tuple(classes))).encode())
        digest.update(self.labels.to(torch.int64).numpy().tobytes())
        for numbers in torch.arange(len(self)).split(max(1, HASHED_BYTES // shape.numel())):
            digest.update(self.part(numbers).pixels.numpy().data)
        return digest.hexdigest()


def map_images(
    file: TokenSequences,
    shape: PixelShape,
    rows: Int[Tensor, "image"],
    labels: Int[Tensor, "image"],
) -> ImageSet:
    """Return images in a file, without reading it."""
    pixels = file.ids.reshape(-1, shape.channels, shape.height, shape.width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cannot be written to, which `part` does not
        return ImageSet(torch.from_numpy(pixels), labels, rows, file)


ImageCorpus = Corpus[ImageSet, ImageSet]


class ReadImages(NamedTuple):
    """Images as read; their labels are the numbers of `classes`."""

    images: ImageSet
    classes: tuple[str, ...]
    notices: list[str]
    contents: Digests | None = None  # of each image; see `content_digests`

    def for_classes(self, classes: Sequence[str], where: str) -> tuple[ImageSet, list[str]]:
        """Return the images with the numbers of a model's classes, and the messages."""
        numbers = torch.tensor(class_numbers(self.classes, classes, where))
        return replace(self.images, labels=numbers[self.images.labels]), self.notices


def load_images(
    config: DataConfig,
    shape: PixelShape,
    seed: int,
    read: "Callable[[ImageReader], ReadImages] | None" = None,
) -> ImageCorpus:
    """Read the images of a configuration, into memory unless `read` keeps them elsewhere."""
    if config.corpus == "digits" and not config.images:
        return digits(shape)
    if not config.images:
        raise ConfigError(
            "data.images: give a directory with a subdirectory per class, or an idx file, as in "
            "--images PATH",
            "no_data",
        )
    read = ImageReader.collect if read is None else read
    train, classes, notices, contents = read(ImageReader(config, shape))
    if len(classes) < 2:
        raise DataError(
            f"{config.images[0]}: all images are of one class ({classes[0]!r}); at least two "
            "classes are needed, each in its own directory",
            "too_few_classes",
        )
    seen: dict[str, str] = {}
    for name in classes:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            alike = f"the classes {other!r} and {name!r} differ only in upper and lower case"
            notices.append(alike)
    if config.valid_images:
        reader = ImageReader(replace(config, images=config.valid_images), shape)
        valid, more = read(reader).for_classes(classes, config.valid_images[0])
        return ImageCorpus(train, valid, (*notices, *more), classes)
    if contents is None:
        contents = content_digests(train.pixels.numpy())
    kept, held_out, n_grouped = split(train, config.hold_out, seed, contents)
    notices.append(held_out_notice(len(held_out), len(train), "images", n_grouped))
    return ImageCorpus(kept, held_out, tuple(notices), classes)


def load_set(
    config: DataConfig, shape: PixelShape, classes: Sequence[str]
) -> tuple[ImageSet, list[str]]:
    """Read images for a model with these classes; return them with messages."""
    if config.corpus == "digits" and not config.images:
        return digits(shape).valid, []
    return ImageReader(config, shape).collect().for_classes(classes, config.images[0])


def content_digests(pixels: UInt8[np.ndarray, "image channel height width"]) -> Digests:
    """Return a number for each image, equal for equal pixels."""
    digests = (hashlib.blake2b(image.data, digest_size=8).digest() for image in pixels)
    return np.frombuffer(b"".join(digests), np.uint64)


def split(
    images: ImageSet, count: int, seed: int, contents: Digests
) -> tuple[ImageSet, ImageSet, int]:
    """Hold out about `count` images, at most a tenth: the same share of every class.

    Equal images stay together; the last value is how many of those held out have an equal one.
    """
    held_out, n_grouped = draw_per_class(images.labels.numpy(), count, seed, contents)
    if not held_out:
        raise DataError(
            f"{len(images)} images, of each class one or equal ones, are too few to hold some out. "
            "Give more, or --valid-images.",
            "too_few_examples",
        )
    kept = np.setdiff1d(np.arange(len(images)), held_out)
    return images.select(torch.from_numpy(kept)), images.select(held_out), n_grouped


def digits(shape: PixelShape) -> ImageCorpus:
    """Load the digits of scikit-learn: the first 898 for training, 899 for validation."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingError(
            f"the digits require scikit-learn: {install_command('vision')}. Or give your own "
            "images with --images.",
            "missing_package",
        ) from None
    bunch = load_digits()
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)  # from 0 to 16
    everything = ImageSet(
        fitted(torch.from_numpy(pixels)[:, None], shape),
        torch.from_numpy(bunch.target.astype(np.int64)),
    )
    classes = tuple(str(name) for name in bunch.target_names)
    first, rest = torch.arange(DIGITS_TRAIN), torch.arange(DIGITS_TRAIN, len(everything))
    return ImageCorpus(everything.part(first), everything.part(rest), (), classes)


def with_channels(
    pixels: UInt8[Tensor, "image given_channel height width"], n_channels: int
) -> UInt8[Tensor, "image channel height width"]:
    """Convert to grey, by the weights of ITU-R 601, if the model has one channel."""
    if n_channels == 3 or pixels.shape[1] == 1:
        return pixels
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    return (pixels * weights).sum(1, keepdim=True).round().to(torch.uint8)


def fitted(
    pixels: UInt8[Tensor, "image channel height width"], shape: PixelShape
) -> UInt8[Tensor, "image new_channel new_height new_width"]:
    """Convert images to another size, cropped to the aspect ratio, and grey ones to RGB."""
    height, width = pixels.shape[-2:]
    if (height, width) != (shape.height, shape.width):
        tall = min(height, max(1, round(width * shape.height / shape.width)))
        wide = min(width, max(1, round(height * shape.width / shape.height)))
        top, left = (height - tall) // 2, (width - wide) // 2
        piece = pixels[..., top : top + tall, left : left + wide]
        resized = [
            F.interpolate(
                part.float(), (shape.height, shape.width), mode="bicubic", antialias=True
            ).round().clamp(0, 255).to(torch.uint8)
            for part in piece.split(FITTED)
        ]  # fmt: skip
        pixels = torch.cat(resized)
    return pixels.expand(-1, shape.channels, -1, -1).contiguous()


class ImageReader:
    """Images of a configuration in batches, in the order of their files.

    At the end `rows` are the numbers of the images that are used, sorted by name, and `names` the
    class of each.
    """

    def __init__(self, config: DataConfig, shape: PixelShape) -> None:
        self.config, self.shape = config, shape
        self.rows: list[int] = []
        self.names: list[str] = []
        self.notices: list[str] = []
        self.n_images = 0

    def __iter__(self) -> Iterator[UInt8[np.ndarray, "image channel height width"]]:
        for path in map(find, self.config.images):
            if not path.is_dir() and is_idx(path):
                arrays, labels = read_images(path)
                width = len(str(labels.max()))  # so that names and numbers have the same order
                yield from self._arrays(arrays[:, None], [f"{n:0{width}d}" for n in labels])
            elif is_cifar(path):
                yield from self._arrays(*read_cifar(path))
            elif labels_of_array(path).is_file():
                yield from self._arrays(*read_arrays(path))
            else:
                yield from self._folder(path)

    def _arrays(self, arrays: np.ndarray, names: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield arrays of other sizes in batches."""
        self.rows += range(self.n_images, self.n_images + len(names))
        self.names += names
        for start in range(0, len(arrays), FITTED):
            part = torch.from_numpy(arrays[start : start + FITTED].copy())
            self.n_images += len(part)
            yield fitted(with_channels(part, self.shape.channels), self.shape).numpy()

    def _folder(self, path: Path) -> Iterator[np.ndarray]:
        rows: dict[Name, int] = {}
        bad: list[str] = []
        for batch in read_folder(path, self.shape):
            images: list[Pixels] = []
            for name, pixels in batch:
                if isinstance(pixels, Unreadable):
                    bad.append(f"{visible('/'.join(name))}: {pixels}")
                else:
                    rows[name] = self.n_images + len(images)
                    images.append(pixels)
            self.n_images += len(images)
            if images:
                yield np.stack(images)
        classified = with_classes(rows, bad)
        if bad and self.config.on_bad_line == "fail":
            raise DataError(f"{path}: {bad[0]}; repair or remove it", "bad_image")
        if not classified:
            first = f"; the first bad one is {bad[0]}" if bad else ""
            raise DataError(f"{path} has no image in a directory of its class{first}", "no_images")
        ordered = sorted(classified)
        self.rows += [classified[name] for name in ordered]
        self.names += [name[0] for name in ordered]
        self.notices += [f"{path}: {n}" for n in skipped_notices(bad, "image", MAX_LISTED)]

    def collect(
        self, batches: Iterable[UInt8[np.ndarray, "image channel height width"]] | None = None
    ) -> ReadImages:
        """Return all images in memory, given all batches if they have been read."""
        parts = []
        for batch in self if batches is None else batches:
            parts.append(torch.from_numpy(batch))
            check_room(self.n_images, self.shape, Path(self.config.images[0]))
        pixels = torch.cat(parts)
        parts.clear()
        if self.rows != list(range(len(pixels))):
            pixels = pixels[torch.tensor(self.rows)]
        classes, labels = self.classes()
        return ReadImages(ImageSet(pixels, labels), classes, self.notices)

    def classes(self) -> tuple[tuple[str, ...], Int[Tensor, "image"]]:
        """Return the names of the classes, and the label of each image that is used."""
        classes = in_order(set(self.names))
        return classes, torch.tensor(class_numbers(self.names, classes, self.config.images[0]))
