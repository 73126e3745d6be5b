"""Array files (.npy) of images, bytes by image, channel, height and width, with their labels.

The labels are a JSON list in a file of the same name with the ending .labels behind it.
"""

import json
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from polyhead.errors import DataError

LABELS = ".labels"


def is_array(path: Path) -> bool:
    """Return whether a file is an array with its labels beside it."""
    return path.suffix == ".npy" and labels_of_array(path).is_file()


def labels_of_array(path: Path) -> Path:
    """Return the file of the labels of an array."""
    return path.with_name(path.name + LABELS)


def read_array_file(
    path: Path,
) -> tuple[UInt8[np.ndarray, "image channel height width"], list[str]]:
    """Return images, which stay on disk until they are used, and the name of each one's class."""
    try:
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        labels = json.loads(labels_of_array(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error})", "damaged_array") from None
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise DataError(
            f"{path}: {pixels.dtype} of shape {pixels.shape}; expected bytes by image, channel, "
            "height and width",
            "damaged_array",
        )
    if not isinstance(labels, list) or len(labels) != len(pixels):
        raise DataError(f"{path}: not one label per image", "unequal_lengths")
    return pixels, [str(label) for label in labels]
