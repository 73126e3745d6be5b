"""Images with their classes, in memory as bytes of the model's size and channels, sorted by name.

--images photos/              photos/cat/1.jpg, photos/dog/2.png …      a directory per class
--images photos.tar.gz        the same in an archive
--images train-images-idx3-ubyte.gz                                     as MNIST comes
--images data_batch_1.bin                                               as CIFAR-10 comes
data.corpus = "digits"        1,797 handwritten digits of 8 x 8 pixels, from scikit-learn
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus, draw_per_class, held_out_notice
from polyhead.data.images.cifar import is_cifar, read_cifar
from polyhead.data.images.files import PixelShape
from polyhead.data.images.folders import read_folder
from polyhead.data.images.idx import is_idx, read_images
from polyhead.data.labelled_text import class_numbers
from polyhead.data.locate import find
from polyhead.data.text_files import skipped_notices
from polyhead.errors import ConfigError, DataError, MissingError, install_command

MAX_LISTED = 20  # bad images in a message
DIGITS_TRAIN = 898  # the usual split into halves


@dataclass(frozen=True)
class ImageSet:
    """Images and the number of each image's class."""

    pixels: UInt8[Tensor, "image channel height width"]
    labels: Int[Tensor, "image"]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: Int[Tensor, "some"]) -> "ImageSet":
        return ImageSet(self.pixels[chosen], self.labels[chosen])

    def fingerprint(self, classes: Sequence[str]) -> str:
        """Return the SHA-256 of all pixels, labels and class names."""
        digest = hashlib.sha256(repr((tuple(self.pixels.shape), tuple(classes))).encode())
        digest.update(self.labels.to(torch.int64).numpy().tobytes())
        for part in self.pixels.split(4096):
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()


ImageCorpus = Corpus[ImageSet, ImageSet]


def load_images(config: DataConfig, shape: PixelShape, seed: int) -> ImageCorpus:
    """Read the images of a configuration."""
    if config.corpus == "digits" and not config.images:
        return digits(shape)
    if not config.images:
        raise ConfigError(
            "data.images: give a directory with a subdirectory per class, an archive of one, or an "
            "idx file, as in --images PATH",
            "no_data",
        )
    pixels, names, notices = _read(config, shape)
    classes = tuple(sorted(set(names)))
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
    train = ImageSet(pixels, torch.tensor(class_numbers(names, classes, config.images[0])))
    if config.valid_images:
        valid, more = load_set(replace(config, images=config.valid_images), shape, classes)
        return ImageCorpus(train, valid, (*notices, *more), classes)
    kept, held_out = split(train, config.hold_out, seed)
    notices.append(held_out_notice(len(held_out), len(train), "images"))
    return ImageCorpus(kept, held_out, tuple(notices), classes)


def load_set(
    config: DataConfig, shape: PixelShape, classes: Sequence[str]
) -> tuple[ImageSet, list[str]]:
    """Read images for a model with these classes; return them with messages."""
    if config.corpus == "digits" and not config.images:
        return digits(shape).valid, []
    pixels, labels, notices = _read(config, shape)
    numbers = class_numbers(labels, classes, config.images[0])
    return ImageSet(pixels, torch.tensor(numbers)), notices


def split(images: ImageSet, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Hold out about `count` images, at most a tenth: the same share of every class."""
    held_out = draw_per_class(images.labels.numpy(), count, seed)
    if not len(held_out):
        raise DataError(
            f"{len(images)} images, one of each class, are too few to hold some out. Give more, or "
            "--valid-images.",
            "too_few_examples",
        )
    kept = np.setdiff1d(np.arange(len(images)), held_out)
    return images.part(torch.from_numpy(kept)), images.part(torch.from_numpy(held_out))


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


def _with_channels(
    pixels: UInt8[Tensor, "image 3 height width"], n_channels: int
) -> UInt8[Tensor, "image channel height width"]:
    """Convert to grey, by the weights of ITU-R 601, if the model has one channel."""
    if n_channels == 3:
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
            for part in piece.split(1024)
        ]  # fmt: skip
        pixels = torch.cat(resized)
    return pixels.expand(-1, shape.channels, -1, -1).contiguous()


def _read(
    config: DataConfig, shape: PixelShape
) -> tuple[UInt8[Tensor, "image channel height width"], list[str], list[str]]:
    """Return all images, the name of each one's class, and messages."""
    pixels, classes, notices = [], [], []
    for path in map(find, config.images):
        if not path.is_dir() and is_idx(path):
            arrays, labels = read_images(path)
            pixels.append(fitted(torch.from_numpy(arrays.copy())[:, None], shape))
            width = len(str(labels.max()))  # so that names and numbers have the same order
            classes += [f"{label:0{width}d}" for label in labels]
            continue
        if is_cifar(path):
            arrays, names = read_cifar(path)
            pixels.append(fitted(_with_channels(torch.from_numpy(arrays), shape.channels), shape))
            classes += names
            continue
        images, bad = read_folder(path, shape)
        if bad and config.on_bad_line == "fail":
            raise DataError(f"{path}: {bad[0]}; repair or remove it", "bad_image")
        if not images:
            first = f"; the first bad one is {bad[0]}" if bad else ""
            raise DataError(f"{path} has no image in a directory of its class{first}", "no_images")
        ordered = sorted(images)
        pixels.append(torch.from_numpy(np.stack([images[name] for name in ordered])))
        classes += [name[0] for name in ordered]
        notices += [f"{path}: {notice}" for notice in skipped_notices(bad, "image", MAX_LISTED)]
    return torch.cat(pixels), classes, notices
