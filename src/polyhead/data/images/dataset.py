"""Images with their classes, as bytes of the model's size and channels, sorted by name.

--images photos/              photos/cat/1.jpg, photos/dog/2.png …      a directory per class
--images train-images-idx3-ubyte.gz                                     as MNIST comes
--images data_batch_1.bin                                               as CIFAR-10 comes
data.corpus = "digits"        1,797 handwritten digits of 8 x 8 pixels, from scikit-learn

They are decoded once, into a store with the key of their files and of the size of an image, which
has four token stores: `image`, the bytes of every image in the order of reading; `digest`, 8 bytes
of each, equal for equal images; `row`, the numbers of those that are used, sorted by name; `label`,
the class of each of these.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from polyhead.atomic_file import os_errors_as_polyhead_errors
from polyhead.data.config import DataConfig
from polyhead.data.corpus_cache import Reporting, folder, make_store, use_store
from polyhead.data.corpus_store import PROGRESS_SECONDS
from polyhead.data.file_sums import digest, file_sums, read_facts, write_facts
from polyhead.data.holdout import (
    Corpus,
    Digests,
    draw_per_class,
    drawn_for_training,
    held_out_notice,
)
from polyhead.data.images.files import Pixels, PixelShape, Unreadable
from polyhead.data.images.folders import Name, read_folder, visible, with_classes
from polyhead.data.images.image_arrays import (
    META,
    is_cifar,
    is_idx,
    labels_of,
    labels_of_array,
    read_arrays,
    read_cifar,
    read_images,
)
from polyhead.data.labels import class_numbers, in_order
from polyhead.data.locate import find
from polyhead.data.text_files import skipped_notices
from polyhead.data.token_store import CODES, TokenSequences, TokenWriter
from polyhead.errors import ConfigError, DataError, MissingError, install_command

MAX_LISTED = 20  # bad images in a message
DIGITS_TRAIN = 898  # the usual split into halves
HASHED_BYTES = 2**24  # of the images that are hashed at once
FITTED = 1_024  # images that are resized at once
FORMAT = 2
LARGE = 100_000_000  # bytes of all pixels
TYPES = {"image": CODES[1], "digest": CODES[1], "row": CODES[4], "label": CODES[4]}


@dataclass(frozen=True)
class ImageSet:
    """Images and the number of each image's class.

    file: has the bytes of an image in each of its sequences. rows: the numbers of the images there.
    """

    file: TokenSequences
    shape: PixelShape
    rows: Int[Tensor, "image"]
    labels: Int[Tensor, "image"]

    @classmethod
    def of(
        cls, pixels: UInt8[Tensor, "image channel height width"], labels: Int[Tensor, "image"]
    ) -> "ImageSet":
        """Return images in memory."""
        n, channels, height, width = pixels.shape
        shape = PixelShape(height, width, channels)
        lengths = np.full(n, shape.n_bytes, np.int32)
        file = TokenSequences(pixels.contiguous().numpy().reshape(-1), lengths)
        return cls(file, shape, torch.arange(n), labels)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def pixels(self) -> UInt8[Tensor, "image channel height width"]:
        """All images, in memory."""
        return self.pixels_of(torch.arange(len(self)))

    def pixels_of(self, chosen: Int[Tensor, "some"]) -> UInt8[Tensor, "some channel height width"]:
        """Return some of the images, in memory."""
        rows, (height, width, channels) = self.rows[chosen].numpy(), self.shape
        starts = rows * self.shape.n_bytes
        self.file.check(starts, starts + self.shape.n_bytes)
        return torch.from_numpy(self.file.ids.reshape(-1, channels, height, width)[rows])

    def select(self, chosen: Int[Tensor, "some"] | npt.NDArray[np.int64], /) -> "ImageSet":
        """Return some of the images, where they are."""
        chosen = torch.as_tensor(chosen)
        return replace(self, rows=self.rows[chosen], labels=self.labels[chosen])

    def fingerprint(self, classes: Sequence[str]) -> str:
        """Return the SHA-256 of all pixels, labels and class names."""
        height, width, channels = self.shape
        shape = (len(self), channels, height, width)
        total = hashlib.sha256(repr((shape, tuple(classes))).encode())
        total.update(self.labels.to(torch.int64).numpy().tobytes())
        for numbers in torch.arange(len(self)).split(max(1, HASHED_BYTES // self.shape.n_bytes)):
            total.update(self.pixels_of(numbers).numpy().data)
        return total.hexdigest()


ImageCorpus = Corpus[ImageSet, ImageSet]


class ReadImages(NamedTuple):
    """Images as read; their labels are the numbers of `classes`.

    contents: a number for each image, equal for equal ones.
    """

    images: ImageSet
    classes: tuple[str, ...]
    notices: list[str]
    contents: Digests

    def for_classes(self, classes: Sequence[str], where: str) -> tuple[ImageSet, list[str]]:
        """Return the images with the numbers of a model's classes, and the messages."""
        numbers = torch.tensor(class_numbers(self.classes, classes, where))
        return replace(self.images, labels=numbers[self.images.labels]), self.notices


def read_image_corpus(
    data: DataConfig, shape: PixelShape, seed: int, report: Reporting
) -> tuple[ImageCorpus, dict[str, str]]:
    """Return the images of a configuration, and fingerprints of all of them (`max_examples`)."""
    corpus = load_images(data, shape, seed, report)
    parts = {"training": corpus.train, "validation": corpus.valid}
    sums = {name: _fingerprint(part, corpus.classes) for name, part in parts.items()}
    used = drawn_for_training(len(corpus.train), data.max_examples, seed)
    if used is not None:
        corpus = replace(corpus, train=corpus.train.select(used))
    return corpus, sums


def _fingerprint(images: ImageSet, classes: tuple[str, ...]) -> str:
    """Return the fingerprint of images, which is computed once for each part of a store."""
    if images.file.name is None:
        return images.fingerprint(classes)
    numbers = torch.stack([images.rows, images.labels]).numpy().tobytes()
    key = [images.file.name.parent.name, hashlib.sha256(numbers).hexdigest(), classes]
    path = folder() / f"{digest(key)}.json"
    known = read_facts(path)
    if known is None:
        known = {"fingerprint": images.fingerprint(classes)}
        write_facts(path, known)
    return str(known["fingerprint"])


def load_images(
    config: DataConfig, shape: PixelShape, seed: int, report: Reporting | None = None
) -> ImageCorpus:
    """Read the images of a configuration."""
    if config.corpus == "digits" and not config.images:
        return digits(shape)
    if not config.images:
        raise ConfigError(
            "data.images: give a directory with a subdirectory per class, or an idx file, as in "
            "--images PATH",
            "no_data",
        )
    train, classes, notices, contents = ImageReader(config, shape).read(report)
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
        valid, more = reader.read(report).for_classes(classes, config.valid_images[0])
        return ImageCorpus(train, valid, (*notices, *more), classes)
    numbers, n_grouped = draw_per_class(train.labels.numpy(), config.hold_out, seed, contents)
    if not numbers:
        raise DataError(
            f"{len(train)} images, of each class one or equal ones, are too few to hold some out. "
            "Give more, or --valid-images.",
            "too_few_examples",
        )
    notices.append(held_out_notice(len(numbers), len(train), "images", n_grouped))
    kept, held_out = np.setdiff1d(np.arange(len(train)), numbers), np.array(numbers)
    return ImageCorpus(train.select(kept), train.select(held_out), tuple(notices), classes)


def load_set(
    config: DataConfig, shape: PixelShape, classes: Sequence[str]
) -> tuple[ImageSet, list[str]]:
    """Read images for a model with these classes; return them with messages."""
    if config.corpus == "digits" and not config.images:
        return digits(shape).valid, []
    return ImageReader(config, shape).read().for_classes(classes, config.images[0])


def content_digests(pixels: UInt8[np.ndarray, "image channel height width"]) -> Digests:
    """Return a number for each image, equal for equal pixels."""
    digests = (hashlib.blake2b(image.data, digest_size=8).digest() for image in pixels)
    return np.frombuffer(b"".join(digests), np.uint64)


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
    everything = ImageSet.of(
        fitted(torch.from_numpy(pixels)[:, None], shape),
        torch.from_numpy(bunch.target.astype(np.int64)),
    )
    classes = tuple(str(name) for name in bunch.target_names)
    first, rest = torch.arange(DIGITS_TRAIN), torch.arange(DIGITS_TRAIN, len(everything))
    return ImageCorpus(everything.select(first), everything.select(rest), (), classes)


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

    def read(self, report: Reporting | None = None) -> ReadImages:
        """Return all images, of a temporary store; of a run that reports, many are in the cache."""
        data, shape = self.config, self.shape
        if report is None or data.store == "never":
            return self._images(*self._write(None, self))
        sums = file_sums(_files(data.images))
        place = folder() / digest([FORMAT, "images", shape, data.on_bad_line, sums])
        if (known := use_store(place)) is None:
            batches, first = self._reported(report), list[np.ndarray]()
            is_large = data.store == "always"
            for batch in () if is_large else batches:
                first.append(batch)
                if is_large := self.n_images * shape.n_bytes > LARGE:
                    break
            if not is_large:
                return self._images(*self._write(None, first))

            def write(draft: Path) -> dict[str, Any]:
                _, info = self._write(draft, chain(first, batches))
                others = "for other runs (polyhead data cache)"
                report.on_notice(f"{info['contents']} are kept in {place} {others}")
                return info

            known = make_store(place, write, report.on_notice)
        return self._images({name: TokenSequences.open(place / name) for name in TYPES}, known)

    def _images(self, stores: dict[str, TokenSequences], info: dict[str, Any]) -> ReadImages:
        rows, labels = (
            torch.from_numpy(stores[name].ids.astype(np.int64)) for name in ("row", "label")
        )
        images = ImageSet(stores["image"], self.shape, rows, labels)
        contents = stores["digest"].ids.view(np.uint64)[rows.numpy()]
        return ReadImages(images, tuple(info["classes"]), list(info["notices"]), contents)

    def _reported(self, report: Reporting) -> Iterator[np.ndarray]:
        """Yield all batches, and report the progress from time to time."""
        started = reported = time.monotonic()
        for batch in self:
            now = time.monotonic()
            if now > reported + PROGRESS_SECONDS:
                reported = now
                speed = self.n_images / (now - started)
                done = f"{self.n_images:,} images, {speed:,.0f} per second"
                report.on_stage(f"decoding the images: {done}")
            yield batch

    def _write(
        self, draft: Path | None, batches: Iterable[np.ndarray]
    ) -> tuple[dict[str, TokenSequences], dict[str, Any]]:
        """Write the token stores of all images; return temporary ones, and what else is known."""
        with os_errors_as_polyhead_errors(draft or Path(gettempdir())):
            writers = {n: TokenWriter(draft and draft / n, kind) for n, kind in TYPES.items()}
            for batch in batches:
                n = len(batch)
                writers["image"].add(batch.reshape(-1), np.full(n, self.shape.n_bytes))
                writers["digest"].add(content_digests(batch).view(np.uint8), np.full(n, 8))
            classes = in_order(set(self.names))
            labels = class_numbers(self.names, classes, self.config.images[0])
            for name, numbers in (("row", self.rows), ("label", labels)):
                writers[name].add(np.array(numbers), np.ones(len(numbers)))
            closed = {name: writer.close() for name, writer in writers.items()}
        stores = {name: store for name, store in closed.items() if store is not None}
        height, width, _ = self.shape
        return stores, {
            "files": list(self.config.images),
            "contents": f"{len(labels):,} images of {height} x {width} pixels",
            "n_examples": len(labels),
            "n_tokens": 0,
            "classes": classes,
            "notices": self.notices,
        }


def _files(names: Iterable[str]) -> list[Path]:
    """Return all files and directories that images with these names are read from."""
    paths = []
    for path in map(find, names):
        paths.append(path)
        if not path.is_dir() and is_idx(path):
            paths.append(labels_of(path))
        elif path.with_name(META).is_file():
            paths.append(path.with_name(META))
    return paths
