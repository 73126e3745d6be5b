"""Images in memory as an array file of bytes, `images-….npy`, with their labels beside it.

    (array, labels)    arrays: image, height, width (, channel); tensors: image, channel, …
    (image, label)     items of a list or dataset; an image is a PIL image, an array or a tensor
    dicts              with an image and a label

Bytes are taken as they are; floats must lie between 0 and 1.
"""

import io
import json
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyhead.atomic_file import os_errors_as_polyhead_errors, write_text
from polyhead.data.columns import NAMES
from polyhead.data.images.dataset import fitted, with_channels
from polyhead.data.images.files import PixelShape
from polyhead.data.images.image_arrays import labels_of_array
from polyhead.data.memory_examples import named_by_content, rows
from polyhead.errors import DataError

HEADER = 128  # bytes, of the array file


def write_images(
    examples: object, name: str, label_key: str | None, shape: PixelShape, folder: Path
) -> Path:
    """Write images at the size of the model; return the file."""
    labels: list[str | int] = []
    with named_by_content(folder, name, ".npy") as draft:
        draft.file.write(bytes(HEADER))
        for image, label in _labelled(examples, name, label_key):
            where = f"{name}: image {len(labels) + 1:,}"
            pixels = with_channels(_pixels(image, where)[None], shape.channels)
            draft.write(fitted(pixels, shape).numpy().tobytes())
            labels.append(_label(label, where))
        if not labels:
            raise DataError(f"{name}: no examples", "no_text")
        header = io.BytesIO()
        size = (len(labels), shape.channels, shape.height, shape.width)
        np.lib.format.write_array_header_1_0(
            header, {"descr": "|u1", "fortran_order": False, "shape": size}
        )
        assert len(header.getvalue()) == HEADER
        draft.digest.update(json.dumps([size, labels]).encode())
        with os_errors_as_polyhead_errors(draft.path):
            draft.file.seek(0)
            draft.file.write(header.getvalue())
    write_text(labels_of_array(draft.path), json.dumps([*map(str, labels)], ensure_ascii=False))
    return draft.path


def _labelled(examples: Any, name: str, key: str | None) -> Iterator[tuple[object, object]]:
    """Yield images with their labels."""
    is_pair = isinstance(examples, tuple) and len(examples) == 2
    if is_pair and isinstance(examples[0], np.ndarray | Tensor):
        images, labels = examples
        if len(images) != len(labels):
            raise DataError(
                f"{name}: {len(images):,} images but {len(labels):,} labels", "unequal_lengths"
            )
        examples = zip(images, labels, strict=True)
    for number, row in enumerate(rows(examples, name), 1):
        if isinstance(row, Mapping):
            yield _of_dict(row, f"{name}: example {number:,}", key)
        elif isinstance(row, tuple | list) and len(row) == 2:
            yield row[0], row[1]
        else:
            kind = type(row).__name__
            raise DataError(
                f"{name}: example {number:,} is {kind}, expected an image and a label",
                "not_an_image",
            )


def _of_dict(row: Mapping[Any, Any], where: str, key: str | None) -> tuple[object, object]:
    images = [value for value in row.values() if _is_image(value)]
    named = [k for k in row if str(k) == key or re.fullmatch(NAMES["label"], str(k).lower())]
    labels = [k for k in named if str(k) == key] or named
    if len(images) != 1 or len(labels) != 1:
        raise DataError(
            f"{where}: expected one image and one label in {', '.join(map(str, row))}. Name the "
            "label with label_column.",
            "unclear_columns",
        )
    return images[0], row[labels[0]]


def _is_image(value: object) -> bool:
    pillow = sys.modules.get("PIL.Image")
    is_picture = pillow is not None and isinstance(value, pillow.Image)
    return is_picture or (isinstance(value, np.ndarray | Tensor) and value.ndim >= 2)


def _pixels(image: Any, where: str) -> Tensor:
    """Return an image as bytes by channel, height and width."""
    if not _is_image(image) or (isinstance(image, np.ndarray | Tensor) and image.ndim > 3):
        raise DataError(
            f"{where} is {type(image).__name__}, expected a PIL image, or an array of height, "
            "width and channel",
            "not_an_image",
        )
    if isinstance(image, Tensor):
        pixels = image.detach().cpu()
    else:
        is_array = isinstance(image, np.ndarray)
        array = image if is_array else np.asarray(image.convert("RGB"))
        pixels = torch.from_numpy(array.copy())
        if pixels.ndim == 3 and (pixels.shape[-1] in (1, 3, 4) or pixels.shape[0] not in (1, 3, 4)):
            pixels = pixels.movedim(-1, 0)
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    if pixels.is_floating_point() and pixels.numel() and 0 <= pixels.min() and pixels.max() <= 1:
        pixels = (pixels * 255).round().to(torch.uint8)
    if pixels.dtype != torch.uint8 or pixels.shape[0] not in (1, 3, 4) or not pixels.numel():
        raise DataError(
            f"{where} has {str(pixels.dtype).removeprefix('torch.')} numbers in {pixels.shape[0]} "
            "channels; expected bytes, or floats between 0 and 1, in 1 or 3 channels",
            "not_an_image",
        )
    return pixels[:3]


def _label(label: Any, where: str) -> str | int:
    """Return a label: a text, or a number from 0 on."""
    label = label.tolist() if isinstance(label, np.generic | np.ndarray | Tensor) else label
    if isinstance(label, str) and (name := unicodedata.normalize("NFC", label.strip())):
        return name
    if isinstance(label, int) and label >= 0:
        return int(label)
    raise DataError(
        f"{where} has the label {label!r}, expected a text or a whole number", "invalid_label"
    )
