"""idx files, the format of MNIST and Fashion-MNIST, packed by gzip or not.

    00 00 08 n     the type (08: bytes) and the number of axes
    n x 4 bytes    the length of every axis, big-endian
    then           the bytes themselves

A file of images (three axes) has a sister of labels (one axis), found by its name. How much a
header promises is checked before memory is taken, and the file must hold exactly that.
"""

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy as np

from polyhead.errors import DataError

MAX_BYTES = 2**34
UNPACKING = 1100  # gzip makes nothing smaller than by this factor
NAMES = (("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1"), ("images", "labels"))


def is_idx(path: Path) -> bool:
    """Whether a file begins as an idx file does, packed or not."""
    try:
        with _opened(path) as file:
            start = file.read(4)
    except (OSError, EOFError, zlib.error):
        return False
    return start[:3] == b"\x00\x00\x08" and len(start) == 4 and 1 <= start[3] <= 4


def read_images(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, height, width) and the label of each."""
    images = read_array(path, 3)
    sister = labels_of(path)
    labels = read_array(sister, 1)
    if len(images) != len(labels):
        raise DataError(
            f"{path} has {len(images):,} images but {sister} has {len(labels):,} labels; "
            "they do not belong together"
        )
    if not images.size:
        raise DataError(f"{path} holds no image")
    return images, labels


def labels_of(path: Path) -> Path:
    """The file of labels that belongs to a file of images."""
    for images, labels in NAMES:
        if images in path.name:
            plain = path.with_name(path.name.replace(images, labels).removesuffix(".gz"))
            for candidate in (path.with_name(path.name.replace(images, labels)), plain,
                              plain.with_name(plain.name + ".gz")):  # fmt: skip
                if candidate.exists():
                    return candidate
            raise DataError(f"{path}: its labels should be in {plain.name} beside it (or .gz)")
    raise DataError(
        f"{path}: a file of images must be called like train-images-idx3-ubyte, so that its "
        "labels can be found beside it"
    )


def read_array(path: Path, n_axes: int) -> np.ndarray:
    """All bytes of a file in its shape."""
    try:
        with _opened(path) as file:
            start = file.read(4)
            if start != bytes((0, 0, 8, n_axes)):
                raise DataError(
                    f"{path} is not an idx file of bytes with {n_axes} axes (it begins with "
                    f"{start.hex() or 'nothing'})"
                )
            header = file.read(4 * n_axes).ljust(4 * n_axes, b"\xff")  # a cut one promises too much
            shape = np.frombuffer(header, dtype=">u4").tolist()
            size = math.prod(shape)
            if size > min(MAX_BYTES, UNPACKING * path.stat().st_size):
                raise DataError(f"{path}: the header promises {size:,} bytes, which cannot be")
            content = file.read(size + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged or not readable ({error}); fetch it again") from None
    if len(content) != size:
        more = "more" if len(content) > size else f"{len(content):,}"
        raise DataError(f"{path}: the header promises {size:,} bytes, but there are {more}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _opened(path: Path) -> gzip.GzipFile | io.BufferedReader:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")
