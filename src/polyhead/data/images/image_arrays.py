"""Images of data in memory, as `memory.py` writes them: an array on disk, and their labels.

NAME.npy           bytes: image, channel, height, width
NAME.npy.labels    a JSON list with the name of each image's class
"""

import json
from pathlib import Path

import numpy as np

from polyhead.errors import DataError

LABELS = ".labels"


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
