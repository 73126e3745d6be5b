"""Files of many images of one size, with the class of each.

train-images-idx3-ubyte     MNIST's idx: 00 00 08 n (8: bytes, n axes), the length of every axis
(4 bytes, big-endian), the bytes; labels in a file of their own;
compressed by gzip or not
data_batch_1.bin            CIFAR-10's records: a label, and 32 x 32 pixels in RGB; the file
`batches.meta.txt` beside them names the classes
NAME.npy, NAME.npy.labels   images of data in memory, as `memory.py` writes them: bytes by
image, channel, height, width; a JSON list of the names of classes
"""

import gzip
import io
import json
import math
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from polyhead.data.images.files import MAX_BYTES
from polyhead.data.text_files import GZIP, MAX_RATIO, RATIO_FREE
from polyhead.errors import DataError

MAX_IDX_BYTES = 2**34
IDX_NAMES = (("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1"), ("images", "labels"))
CIFAR_SHAPE, CIFAR_CLASSES = (3, 32, 32), 10
META = "batches.meta.txt"  # names of the classes of CIFAR-10
RECORD = 1 + 3 * 32 * 32  # bytes
LABELS = ".labels"


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
    for images, labels in IDX_NAMES:
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
            if size > min(MAX_IDX_BYTES, max(RATIO_FREE, MAX_RATIO * path.stat().st_size)):
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


def is_cifar(path: Path) -> bool:
    """Return whether a file is named as those of CIFAR-10 are."""
    return path.suffix == ".bin" and path.is_file()


def read_cifar(path: Path) -> tuple[UInt8[np.ndarray, "image 3 32 32"], list[str]]:
    """Return the images of a file, and the name of each one's class."""
    n_bytes = path.stat().st_size
    if not n_bytes or n_bytes % RECORD or n_bytes > MAX_BYTES:
        raise DataError(
            f"{path}: {n_bytes:,} bytes are no records of CIFAR-10, which have {RECORD:,} each",
            "not_cifar",
        )
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, RECORD)
    labels = records[:, 0]
    if labels.max() >= CIFAR_CLASSES:
        raise DataError(f"{path}: label {labels.max()}, expected 0 to 9", "not_cifar")
    names = [str(number) for number in range(CIFAR_CLASSES)]
    listed = path.with_name(META)
    if listed.is_file():
        with listed.open(encoding="utf-8", errors="replace") as lines:
            names = lines.read(4096).split()[:CIFAR_CLASSES] or names
    if len(names) != CIFAR_CLASSES:
        raise DataError(f"{listed}: {len(names)} classes, expected {CIFAR_CLASSES}", "not_cifar")
    return records[:, 1:].reshape(-1, *CIFAR_SHAPE), [names[label] for label in labels]


def labels_of_array(path: Path) -> Path:
    """Return the file of the labels of an array."""
    return path.with_name(path.name + LABELS)


def read_arrays(path: Path) -> tuple[np.ndarray, list[str]]:
    """Return images, which stay on disk, and the class of each."""
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
        names = json.loads(labels_of_array(path).read_text(encoding="utf-8"))
    except (ValueError, OSError, EOFError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error})", "damaged_array") from None
    if (images.dtype, images.ndim) != (np.uint8, 4) or len(images) != len(names):
        message = f"{path}: images of {images.dtype} with shape {images.shape} and "
        raise DataError(f"{message}{len(names)} labels; train again from memory", "damaged_array")
    return images, [str(name) for name in names]
