"""Images and labels as NumPy arrays, on disk or in memory.

    NAME.npy and NAME.labels.npy     memory-mapped
    NAME.npz                         with the arrays `images` and `labels`
    NAME.npy and NAME.npy.labels     data in memory, as `memory.py` writes it: (image, channel,
                                     height, width), and a JSON list of labels

images: (image, height, width) or (image, height, width, channel) with 1 or 3 channels; bytes
(uint8), or floats from 0 to 1. labels: an integer or a name for each image. Arrays of Python
objects are refused, because reading them would run code.
"""

import json
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8

from polyhead.data.text_files import MAX_RATIO, RATIO_FREE
from polyhead.errors import DataError

LABELS = ".labels"
CHUNK = 1024  # images that are converted together


class ArrayImages(NamedTuple):
    """Images as they are stored, and the name of each one's class."""

    images: np.ndarray
    names: list[str]

    def chunks(self) -> Iterator[UInt8[np.ndarray, "image channel height width"]]:
        """Yield all images as bytes, some at a time."""
        for start in range(0, len(self.images), CHUNK):
            chunk = self.images[start : start + CHUNK]
            if chunk.dtype != np.uint8:
                if not (chunk.min() >= 0 and chunk.max() <= 1):  # also not a number
                    raise DataError(
                        f"images {start} to {start + len(chunk) - 1} have values from "
                        f"{chunk.min()} to {chunk.max()}; expected bytes, or floats from 0 to 1",
                        "bad_image_array",
                    )
                chunk = np.round(chunk * 255).astype(np.uint8)
            pixels = chunk[..., None] if chunk.ndim == 3 else chunk
            yield pixels.transpose(0, 3, 1, 2).copy("C")  # contiguous, and writable for torch


def is_arrays(path: Path) -> bool:
    """Return True for a file of arrays by its name."""
    return path.suffix in (".npy", ".npz") and path.is_file()


def labels_of_array(path: Path) -> Path:
    """Return the file of the labels of images that were in memory."""
    return path.with_name(path.name + LABELS)


def read_arrays(path: Path) -> ArrayImages:
    """Read images and labels; images of .npy files stay on disk."""
    try:
        if path.suffix == ".npz":
            _check_size(path)
            with np.load(path, allow_pickle=False) as file:
                if not {"images", "labels"} <= set(file.files):
                    raise DataError(
                        f"{path} has the arrays {', '.join(sorted(file.files))}; expected "
                        "'images' and 'labels'",
                        "bad_image_array",
                    )
                images, labels = file["images"], file["labels"]
        else:
            images = np.load(path, mmap_mode="r", allow_pickle=False)
            beside = path.with_name(f"{path.name.removesuffix('.npy')}.labels.npy")
            if labels_of_array(path).is_file():
                images = np.moveaxis(images, 1, -1)
                labels = np.array(json.loads(labels_of_array(path).read_text(encoding="utf-8")))
            elif beside.is_file():
                labels = np.load(beside, allow_pickle=False)
            else:
                message = f"{path}: its labels were expected in {beside.name} beside it"
                raise DataError(message, "no_labels")
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error})", "damaged_array") from None
    return checked_images(images, labels, str(path))


def checked_images(images: np.ndarray, labels: np.ndarray, where: str) -> ArrayImages:
    """Return arrays as images with class names; DataError for other shapes and types."""
    n_channels = images.shape[3] if images.ndim == 4 else 1
    is_image = images.dtype == np.uint8 or np.issubdtype(images.dtype, np.floating)
    if images.ndim not in (3, 4) or n_channels not in (1, 3) or not is_image or not images.size:
        raise DataError(
            f"{where}: images of {images.dtype} with shape {images.shape}; expected uint8, or "
            "floats from 0 to 1, as (image, height, width) or (image, height, width, 1 or 3)",
            "bad_image_array",
        )
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    is_label = np.issubdtype(labels.dtype, np.integer) or labels.dtype.kind == "U"
    if labels.ndim != 1 or not is_label:
        raise DataError(
            f"{where}: labels of {labels.dtype} with shape {labels.shape}; expected an integer or "
            "a name for each image",
            "bad_image_array",
        )
    if len(images) != len(labels):
        message = f"{where} has {len(images):,} images but {len(labels):,} labels"
        raise DataError(message, "unequal_lengths")
    names = [unicodedata.normalize("NFC", str(label).strip()) for label in labels.tolist()]
    if "" in names:
        raise DataError(f"{where}: image {names.index('')} has an empty label", "bad_image_array")
    return ArrayImages(images, names)


def _check_size(path: Path) -> None:
    """Refuse an archive that unpacks to far more than images would."""
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(item.file_size for item in archive.infolist())
    if n_bytes > max(RATIO_FREE, MAX_RATIO * path.stat().st_size):
        raise DataError(f"{path}: unpacks to {n_bytes:,} bytes, too many", "too_large")
