"""Images with their classes: folders, archives, idx files or the embedded digits, held in memory.

    --images photos/              photos/cat/1.jpg, photos/dog/2.png …      a folder for each class
    --images photos.tar.gz        the same in an archive
    --images train-images-idx3-ubyte.gz                                     as MNIST comes
    data.corpus = "digits"        1,797 handwritten digits of 8 x 8 pixels, from scikit-learn

All images are brought to the model's size and channels and kept as bytes. Classes are in the order
of their names, images in that of theirs, so that nothing depends on how a disk lists its files.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.images.folders import Found, ImageShape, class_of, read_archive, read_folder
from polyhead.data.images.idx import is_idx, read_images
from polyhead.data.locate import find
from polyhead.errors import ConfigError, DataError, MissingError

NAMED = 20  # bad images at most: more of them are counted
HELD_OUT_SHARE = 0.1  # a small collection gives at most this much of itself
DIGITS_TRAIN = 898  # the usual split into halves: the first are for training, 899 are left


@dataclass(frozen=True)
class ImageSet:
    """Some images and the number of the class of each."""

    pixels: UInt8[Tensor, "image channel height width"]
    labels: Int[Tensor, "image"]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: Int[Tensor, "some"]) -> "ImageSet":
        """Those with these numbers."""
        return ImageSet(self.pixels[chosen], self.labels[chosen])

    def fingerprint(self, classes: Sequence[str]) -> str:
        """A sha256 of all pixels, labels and names."""
        digest = hashlib.sha256(repr((tuple(self.pixels.shape), tuple(classes))).encode())
        digest.update(self.labels.to(torch.int64).numpy().tobytes())
        for some in self.pixels.split(4096):
            digest.update(some.contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Collection:
    """What to train on, what to validate on, what the classes are called, what there is to say."""

    train: ImageSet
    valid: ImageSet
    classes: tuple[str, ...]
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageRequest:
    """Which images to read and how; the fields are those of the tables [data] and [model]."""

    shape: ImageShape
    images: tuple[str, ...] = ()
    valid_images: tuple[str, ...] = ()
    corpus: str | None = None
    on_bad: Literal["skip", "fail"] = "skip"
    hold_out: int = 500


@dataclass
class _Named:
    """Images by the names of their classes, before the classes have numbers."""

    pixels: list[UInt8[Tensor, "image channel height width"]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def load_collection(request: ImageRequest, seed: int) -> Collection:
    """Read everything that a configuration names."""
    if request.corpus == "digits" and not request.images:
        return digits(request.shape)
    if not request.images:
        raise ConfigError(
            "data.images: give a folder with a folder for each class, an archive of one, or an "
            "idx file, as in --images PATH"
        )
    train = _read(request.images, request)
    classes = tuple(sorted(set(train.names)))
    if len(classes) < 2:
        raise DataError(
            f"{request.images[0]}: all images are of one class ({classes[0]!r}); there must be a "
            "folder for each class, and at least two"
        )
    notices = [*train.notices, *_alike(classes)]
    everything = _numbered(train, classes, request.images[0])
    if request.valid_images:
        valid = _read(request.valid_images, request)
        checked = _numbered(valid, classes, request.valid_images[0])
        return Collection(everything, checked, classes, (*notices, *valid.notices))
    kept, held_out = split(everything, request.hold_out, seed)
    notices.append(
        f"no validation images given: {len(held_out):,} of {len(everything):,} are held out for "
        "validation and not trained on"
    )
    return Collection(kept, held_out, classes, tuple(notices))


def load_set(request: ImageRequest, classes: Sequence[str]) -> tuple[ImageSet, list[str]]:
    """Images for a model that knows these classes, and what there is to say about them."""
    if request.corpus == "digits" and not request.images:
        return digits(request.shape).valid, []
    named = _read(request.images, request)
    return _numbered(named, classes, request.images[0]), named.notices


def split(images: ImageSet, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Keep back about `count` images, at most a tenth: the same share of every class.

    A class of two images or more gives at least one; one of a single image is trained on.
    """
    share = min(count / len(images), HELD_OUT_SHARE)
    draw = np.random.default_rng([seed, len(images)])
    labels, held_out = images.labels.numpy(), []
    for label in np.unique(labels):
        members = draw.permutation(np.flatnonzero(labels == label))
        wanted = min(max(1, round(share * len(members))), len(members) - 1)
        held_out.append(members[:wanted])
    back = np.sort(np.concatenate(held_out))
    if not len(back):
        raise DataError(
            f"{len(images)} images, one of each class, are not enough to train on and to hold "
            "some out; give more, or --valid-images"
        )
    kept = np.setdiff1d(np.arange(len(images)), back)
    return images.part(torch.from_numpy(kept)), images.part(torch.from_numpy(back))


def digits(shape: ImageShape) -> Collection:
    """The digits that come with scikit-learn: 898 to train on, 899 to validate on, in order."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingError(
            "the digits come with scikit-learn: pip install 'polyhead[vision]'; or give images of "
            "your own with --images"
        ) from None
    found = load_digits()
    pixels = np.round(found.images * (255 / 16)).astype(np.uint8)  # they count from 0 to 16
    everything = ImageSet(
        fitted(torch.from_numpy(pixels)[:, None], shape),
        torch.from_numpy(found.target.astype(np.int64)),
    )
    classes = tuple(str(name) for name in found.target_names)
    first, rest = torch.arange(DIGITS_TRAIN), torch.arange(DIGITS_TRAIN, len(everything))
    return Collection(everything.part(first), everything.part(rest), classes)


def fitted(
    pixels: UInt8[Tensor, "image channel height width"], shape: ImageShape
) -> UInt8[Tensor, "image new_channel new_height new_width"]:
    """Grey images of one size in another size and with the channels that a model wants.

    As with files, the largest piece of the right shape is cut from the middle, then resized.
    """
    height, width = pixels.shape[-2:]
    if (height, width) != (shape.height, shape.width):
        tall = min(height, max(1, round(width * shape.height / shape.width)))
        wide = min(width, max(1, round(height * shape.width / shape.height)))
        top, left = (height - tall) // 2, (width - wide) // 2
        piece = pixels[..., top : top + tall, left : left + wide]
        resized = [
            F.interpolate(
                some.float(), (shape.height, shape.width), mode="bicubic", antialias=True
            ).round().clamp(0, 255).to(torch.uint8)
            for some in piece.split(1024)
        ]  # fmt: skip
        pixels = torch.cat(resized)
    return pixels.expand(-1, shape.channels, -1, -1).contiguous()


def _read(names: Sequence[str], request: ImageRequest) -> _Named:
    named = _Named()
    for name in names:
        path = find(Path(name))
        if path.is_dir():
            _add(named, read_folder(path, request.shape), path, request)
        elif is_idx(path):
            images, labels = read_images(path)
            named.pixels.append(fitted(torch.from_numpy(images.copy())[:, None], request.shape))
            width = len(str(labels.max()))  # so that the order of the names is that of the numbers
            named.names += [f"{label:0{width}d}" for label in labels]
        else:
            _add(named, read_archive(path, request.shape), path, request)
    return named


def _add(named: _Named, found: Found, path: Path, request: ImageRequest) -> None:
    """Put the images of a folder or archive to those that were read before."""
    found = class_of(found)
    if found.bad and request.on_bad == "fail":
        name, why = found.bad[0]
        raise DataError(f"{path}: {name}: {why}; repair or remove it, or skip bad images")
    if not found.images:
        first = f"; the first that cannot be used is {': '.join(found.bad[0])}" if found.bad else ""
        raise DataError(f"{path} holds no image in a folder of its class{first}")
    ordered = sorted(found.images)
    named.pixels.append(torch.from_numpy(np.stack([found.images[name] for name in ordered])))
    named.names += [name[0] for name in ordered]
    named.notices += _told(found.bad, path)


def _told(bad: Sequence[tuple[str, str]], path: Path) -> list[str]:
    if not bad:
        return []
    count = "1 bad image" if len(bad) == 1 else f"{len(bad):,} bad images"
    first = "; ".join(f"{name}: {why}" for name, why in bad[:NAMED])
    more = f"; and {len(bad) - NAMED:,} more" if len(bad) > NAMED else ""
    return [f"{path}: {count} skipped: {first}{more}"]


def _numbered(named: _Named, classes: Sequence[str], where: str) -> ImageSet:
    numbers = {name: number for number, name in enumerate(classes)}
    for name in named.names:
        if name not in numbers:
            raise DataError(
                f"{where}: there is no class {name!r} among the {len(classes)} that the model "
                f"knows ({', '.join(classes[:5])}{' …' if len(classes) > 5 else ''})"
            )
    labels = torch.tensor([numbers[name] for name in named.names])
    return ImageSet(torch.cat(named.pixels), labels)


def _alike(classes: Sequence[str]) -> list[str]:
    """Classes that may be the same, spelt in two ways."""
    seen: dict[str, str] = {}
    notices = []
    for name in classes:
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            notices.append(
                f"the classes {other!r} and {name!r} differ only in upper and lower case"
            )
    return notices
