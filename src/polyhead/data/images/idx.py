"""Files in the idx format of MNIST and Fashion-MNIST, compressed by gzip or not.

00 00 08 n     the type (08: bytes) and the number of axes
n x 4 bytes    the length of every axis, big-endian
then           the bytes themselves
"""

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np

from polyhead.data.text_files import GZIP, MAX_RATIO, RATIO_FREE
from polyhead.errors import DataError

MAX_BYTES = 2**34
NAMES = (("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1"), ("images", "labels"))


def is_idx(path: Path) -> bool:
    """Return whether a file starts as an idx file does, compressed or not."""
    try:
        with _opened(path) as file:
            start = file.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return start[:3] == b"\x00\x00\x08" and len(start) == 4 and 1 <= start[3] <= 4


def read_images(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read images (n, height, width) and the label of each."""
    images = read_array(path, 3)
    labels_path = labels_of(path)
    labels = read_array(labels_path, 1)
    if len(images) != len(labels):
        raise DataError(
            f"{path} has {len(images):,} images but {labels_path} has {len(labels):,} labels",
            "unequal_lengths",
        )
    if not images.size:
        raise DataError(f"{path} has no images", "no_images")
    return images, labels


def labels_of(path: Path) -> Path:
    """Return the file of labels that belongs to a file of images."""
    for images, labels in NAMES:
        if images in path.name:
            plain = path.with_name(path.name.replace(images, labels).removesuffix(".gz"))
            packed = plain.with_name(plain.name + ".gz")
            for candidate in (packed, plain) if path.name.endswith(".gz") else (plain, packed):
                if candidate.exists():
                    return candidate
            message = f"{path}: its labels were expected in {plain.name} (or .gz) beside it"
            raise DataError(message, "no_labels")
    message = f"{path}: expected a name like train-images-idx3-ubyte, which names its labels"
    raise DataError(message, "no_labels")


def read_array(path: Path, n_axes: int) -> np.ndarray:
    """Read all bytes of a file in its shape."""
    try:
        with _opened(path) as file:
            start = file.read(4)
            if start != bytes((0, 0, 8, n_axes)):
                raise DataError(
                    f"{path} is not an idx file of bytes with {n_axes} axes (it starts with "
                    f"{start.hex() or 'nothing'})",
                    "not_idx",
                )
            header = file.read(4 * n_axes)
            header = header.ljust(4 * n_axes, b"\xff")  # a truncated one becomes too large
            shape = np.frombuffer(header, dtype=">u4").tolist()
            size = math.prod(shape)
            if size > min(MAX_BYTES, max(RATIO_FREE, MAX_RATIO * path.stat().st_size)):
                raise DataError(f"{path}: impossible size of {size:,} bytes", "damaged_idx")
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        message = f"{path}: damaged or not readable ({error}); download it again"
        raise DataError(message, "damaged_idx") from None
    if len(content) != size:
        more = "more" if len(content) > size else f"{len(content):,}"
        raise DataError(f"{path}: expected {size:,} bytes, found {more}", "damaged_idx")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    with path.open("rb") as file:
        packed = file.read(2) == GZIP
    return gzip.open(path, "rb") if packed else path.open("rb")
