"""CIFAR-10 as its authors ship it: files of records, each a label and 32 x 32 pixels in RGB.

`data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`; `batches.meta.txt` beside them names
the classes.
"""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from polyhead.data.images.files import MAX_BYTES
from polyhead.errors import DataError

SHAPE = (3, 32, 32)
N_CLASSES = 10
META = "batches.meta.txt"  # names of the classes
RECORD = 1 + 3 * 32 * 32  # bytes


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
    if labels.max() >= N_CLASSES:
        raise DataError(f"{path}: label {labels.max()}, expected 0 to 9", "not_cifar")
    names = [str(number) for number in range(N_CLASSES)]
    listed = path.with_name(META)
    if listed.is_file():
        with listed.open(encoding="utf-8", errors="replace") as lines:
            names = lines.read(4096).split()[:N_CLASSES] or names
    if len(names) != N_CLASSES:
        raise DataError(f"{listed}: {len(names)} classes, expected {N_CLASSES}", "not_cifar")
    return records[:, 1:].reshape(-1, *SHAPE), [names[label] for label in labels]
