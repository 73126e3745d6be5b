"""Examples in memory, written once to a file that is then read as any other file.

    pairs, labelled    JSON lines, one object per example
    text               plain text, one item per line or, if it has line breaks, several
    images             an array of bytes of the model's size (.npy), with a list of labels beside
                       it: (array, labels), items of (image, label), or dicts; an image is a PIL
                       image, an array (height, width, channel) or a tensor (channel first)

A file is named by the SHA-256 of its content. Generators are written as they are read. Bytes of
images are taken as they are; floats must lie between 0 and 1.
"""

import hashlib
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from polyhead.atomic_file import (
    TEMPORARY,
    os_errors_as_polyhead_errors,
    remove,
    rename,
    write_text,
)
from polyhead.data.columns import NAMES, Roles
from polyhead.data.config import DataConfig
from polyhead.data.images.dataset import fitted, with_channels
from polyhead.data.images.files import PixelShape
from polyhead.data.images.image_arrays import labels_of_array
from polyhead.data.locate import find
from polyhead.data.tables import shorten
from polyhead.errors import ConfigError, DataError

OPTIONS = {  # parameter of `polyhead.train`: option of [data]
    "source": "source", "target": "target", "pairs": "pairs", "text": "text",
    "data": "labelled", "images": "images", "valid_source": "valid_source",
    "valid_target": "valid_target", "valid_pairs": "valid_pairs", "valid_text": "valid_text",
    "valid_data": "valid_labelled", "valid_images": "valid_images",
}  # fmt: skip
TEXTS = ("source", "target", "text", "valid_source", "valid_target", "valid_text")
PATH = re.compile(r"[^\s]*(/[^\s]*|\.[A-Za-z][A-Za-z0-9]{0,7})")  # such as a/b, a.txt or a.tsv.gz
LOOKED_AT = 100  # strings of a list
CHUNK = 10_000  # rows of a pandas frame
NOTHING = object()
HEADER = 128  # bytes, of the array file


@dataclass(frozen=True)
class MemoryData:
    """Examples in memory by the parameters of `polyhead.train`; see `split_data`."""

    examples: Mapping[str, object]

    def write(self, folder: Path, data: DataConfig, task: str, model: Any) -> dict[str, list[str]]:
        """Write all examples into a directory; return the files by option of [data].

        model: with the size of images, if the task is on images.
        """
        files: dict[str, list[str]] = {}
        for name, examples in self.examples.items():
            match name.removeprefix("valid_"):
                case "images":
                    if task != "image_classification":
                        raise ConfigError(
                            f"{name}: the recipe is for {task}; give one for images", "wrong_data"
                        )
                    shape = PixelShape(model.height, model.width, model.channels)
                    path = write_images(examples, name, data.label_key, shape, folder)
                case "text":
                    path = write_texts(rows(examples, name), name, data.text_key, folder)
                case "data":
                    pair = () if data.text_pair_key is None else (data.text_pair_key,)
                    keys: tuple[str | None, ...] = (data.text_key, data.label_key, *pair)
                    path = write_records(
                        rows(examples, name), name, ("text", "label"), keys, folder
                    )
                case _:
                    keys = (data.source_key, data.target_key)
                    path = write_records(
                        rows(examples, name), name, ("source", "target"), keys, folder
                    )
            files[OPTIONS[name]] = [str(path)]
        return files


def split_data(
    given: Mapping[str, object], inputs: Path
) -> tuple[dict[str, list[str]], MemoryData | None]:
    """Return the files by option of [data], and the examples that are given in memory.

    The files of the latter, in the directory `inputs`, are written when training starts.
    """
    files: dict[str, list[str]] = {}
    examples: dict[str, object] = {}
    for name, value in given.items():
        paths = None if value is None else as_paths(name, value)
        if paths is not None:
            files[OPTIONS[name]] = paths
        elif value is not None:
            examples[name] = value
    for prefix in ("", "valid_"):
        sides = (f"{prefix}source", f"{prefix}target")
        in_memory = [name for name in sides if name in examples]
        if len(in_memory) == 1 or (in_memory and given.get(f"{prefix}pairs") is not None):
            raise ConfigError(
                f"{in_memory[0]} is in memory: give {sides[0]} and {sides[1]} both in memory, and "
                f"no {prefix}pairs",
                "mixed_data",
            )
        if in_memory:
            pairs = joined(examples.pop(sides[0]), examples.pop(sides[1]), sides)
            examples[f"{prefix}pairs"] = pairs
    files |= {OPTIONS[name]: [str(inputs / name)] for name in examples}
    return files, MemoryData(examples) if examples else None


def as_paths(name: str, value: object) -> list[str] | None:
    """Return the paths that a parameter names, or None if it holds examples.

    A str, a Path, and a list or tuple with a Path name files. A list or tuple of str names files
    if it cannot hold texts, or if each of its first 100 items is an existing file or looks like
    a path: no white space, and a slash or an ending such as .txt.
    """
    if isinstance(value, str | Path):
        return [str(value)]
    if not isinstance(value, list | tuple):
        return None
    if not value:
        raise DataError(f"{name}: no examples", "no_text")
    head = value[:LOOKED_AT]
    if not all(isinstance(item, str | Path) for item in head):
        return None
    names = [str(item) for item in head]
    are_files = [_is_file(item) for item in names]
    looks = [exists or PATH.fullmatch(item) for exists, item in zip(are_files, names, strict=True)]
    if name not in TEXTS or any(isinstance(item, Path) for item in head) or all(looks):
        return [str(item) for item in value]
    if any(are_files):
        file, other = names[are_files.index(True)], names[are_files.index(False)]
        raise ConfigError(
            f"{name}: {file!r} is an existing file and {other[:40]!r} is none. For files give "
            "pathlib.Path objects, for texts iter(texts).",
            "mixed_data",
        )
    return None


def _is_file(name: str) -> bool:
    with suppress(DataError, ValueError, OSError):
        return find(name).is_file()
    return False


def rows(examples: object, name: str) -> Iterator[object]:
    """Yield the rows of frames and datasets as dicts, or the items of an iterable."""
    pandas, polars, datasets = map(sys.modules.get, ("pandas", "polars", "datasets"))
    kind: Any = type(examples)
    if pandas is not None and issubclass(kind, pandas.DataFrame):
        return _pandas_rows(examples)
    if polars is not None and issubclass(kind, polars.LazyFrame):
        return rows(_any(examples).collect(), name)
    if polars is not None and issubclass(kind, polars.DataFrame):
        return _any(examples).iter_rows(named=True)
    if datasets is not None and issubclass(kind, datasets.Dataset | datasets.IterableDataset):
        return _hugging_face_rows(examples, datasets.ClassLabel)
    if isinstance(examples, Mapping | str | bytes):
        hint = (
            f' Give a part, such as {name}=dataset["train"].' if hasattr(examples, "keys") else ""
        )
        raise ConfigError(f"{name}: expected examples, not {kind.__name__}.{hint}", "not_examples")
    if isinstance(examples, Iterable):
        return iter(examples)
    if hasattr(examples, "__getitem__") and hasattr(examples, "__len__"):  # torch's Dataset
        indexed = _any(examples)
        return (indexed[number] for number in range(len(indexed)))
    raise ConfigError(
        f"{name}: expected a file or examples, not {kind.__name__}. Examples are a list, a frame, "
        "a dataset, or any iterable.",
        "not_examples",
    )


def _any(value: object) -> Any:
    return value


def _pandas_rows(frame: Any) -> Iterator[object]:
    names = [str(column) for column in frame.columns]
    for start in range(0, len(frame), CHUNK):
        part = frame.iloc[start : start + CHUNK]
        cells = part.astype(object).where(part.notna(), None)
        for row in cells.itertuples(index=False, name=None):
            yield dict(zip(names, row, strict=True))


def _hugging_face_rows(dataset: Any, class_label: Any) -> Iterator[object]:
    """Yield rows with the names of classes instead of their numbers."""
    features = dataset.features or {}
    names = {key: kind.names for key, kind in features.items() if isinstance(kind, class_label)}
    for row in dataset:
        yield row | {key: known[row[key]] for key, known in names.items() if row[key] is not None}


def joined(sources: object, targets: object, names: tuple[str, str]) -> Iterator[object]:
    """Yield pairs of two iterables of texts; raise DataError if one is longer."""
    sides = zip_longest(rows(sources, names[0]), rows(targets, names[1]), fillvalue=NOTHING)
    for count, pair in enumerate(sides):
        for text, name in zip(pair, names, strict=True):
            if text is NOTHING:
                raise DataError(
                    f"{' and '.join(names)} are of unequal length: {name} has {count:,} texts, the "
                    "other more. Text n of one must translate text n of the other.",
                    "unequal_lengths",
                )
            if not isinstance(text, str) and not _is_missing(text):
                _wrong(name, count + 1, text)
        yield pair


def write_records(
    examples: Iterable[object], name: str, roles: Roles, keys: Sequence[str | None], folder: Path
) -> Path:
    """Write pairs or labelled texts; return the file.

    examples: dicts, or tuples of two values.
    keys: names of the columns; without all of them every column is written.
    """
    wanted = {"translation", *filter(None, keys)} if None not in keys else None

    def lines() -> Iterator[bytes]:
        for number, row in enumerate(examples, 1):
            cells: Mapping[Any, Any]
            if isinstance(row, Mapping):
                cells = row if wanted is None else {k: row[k] for k in row if str(k) in wanted}
            elif isinstance(row, tuple | list) and len(row) == 2:
                cells = dict(zip(roles, row, strict=True))
            else:
                _wrong(name, number, row, f"a {roles[0]} and a {roles[1]}, or a dict")
            plain = {
                str(k): _cell(v, f"{name}: {k!r} of example {number}") for k, v in cells.items()
            }
            yield json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"

    return _write(lines(), name, ".jsonl", folder)


def write_texts(examples: Iterable[object], name: str, key: str | None, folder: Path) -> Path:
    """Write texts, or a column of dicts; return the file."""

    def lines() -> Iterator[bytes]:
        for number, row in enumerate(examples, 1):
            text = _text_column(row, name, key) if isinstance(row, Mapping) else row
            if not isinstance(text, str) and not _is_missing(text):
                _wrong(name, number, text)
            content = text if isinstance(text, str) else ""
            yield content.encode("utf-8", "surrogatepass") + b"\n"

    return _write(lines(), name, ".txt", folder)


def _text_column(row: Mapping[Any, Any], name: str, key: str | None) -> object:
    """Return the text of a row: its column of this name or number, or its only text."""
    columns = [str(column) for column in row]
    named = [c for c in columns if re.fullmatch(NAMES["text"], c.lower())]
    if key is not None and key not in columns and key.isdecimal():
        key = columns[int(key) - 1] if 1 <= int(key) <= len(columns) else key
    chosen = key if key is not None else (named if len(named) == 1 else columns)[0]
    if chosen not in columns or (key is None and len(named) != 1 and len(columns) > 1):
        problem = (
            f"no column {key!r}" if key is not None else "cannot tell which column is the text"
        )
        raise DataError(
            f"{name}: {problem}; it has {shorten(columns)}. Name one with text_column.",
            "unknown_column" if key is not None else "unclear_columns",
        )
    return list(row.values())[columns.index(chosen)]


def _cell(value: Any, where: str) -> Any:
    """Return a value as JSON can hold it; missing ones are None, which readers report."""
    if hasattr(value, "tolist"):  # NumPy's and torch's numbers and arrays
        value = value.tolist()
    if isinstance(value, str) or _is_missing(value):
        return value if isinstance(value, str) else None
    if isinstance(value, Mapping):
        return {str(key): _cell(inner, where) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cell(inner, where) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool | date | time | Decimal):
        return str(value)
    if isinstance(value, int | float):
        return value
    raise DataError(
        f"{where} is {type(value).__name__}, not text. Name the columns, such as text_column, or "
        "remove this one.",
        "not_text",
    )


def _is_missing(value: object) -> bool:
    """Return True for None, NaN, and the missing values of pandas."""
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _wrong(name: str, number: int, value: object, expected: str = "a text") -> NoReturn:
    shown = repr(value)
    shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
    kind = type(value).__name__
    raise DataError(
        f"{name}: example {number:,} is {kind} ({shown}), expected {expected}", "not_text"
    )


def _write(lines: Iterable[bytes], name: str, ending: str, folder: Path) -> Path:
    with named_by_content(folder, name, ending) as draft:
        count = 0
        for line in lines:
            draft.write(line)
            count += 1
        if not count:
            raise DataError(f"{name}: no examples", "no_text")
    return draft.path


class ContentDraft:
    """A file that is being written; `path` is its name when it is complete."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path, self.digest = file, path, hashlib.sha256()

    def write(self, content: bytes) -> None:
        with os_errors_as_polyhead_errors(self.path):
            self.file.write(content)
        self.digest.update(content)


@contextmanager
def named_by_content(folder: Path, name: str, ending: str) -> Iterator[ContentDraft]:
    """Write a file `NAME-DIGEST` and its ending; an error leaves none."""
    temporary = folder / f"{TEMPORARY}{os.getpid()}-{name}"
    with os_errors_as_polyhead_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = temporary.open("wb")
    try:
        with file:
            draft = ContentDraft(file, temporary)
            yield draft
        draft.path = folder / f"{name}-{draft.digest.hexdigest()[:16]}{ending}"
        with os_errors_as_polyhead_errors(folder):
            rename(temporary, draft.path)
    finally:
        remove(temporary)


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
            labels.append(_class_of(label, where))
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


def _class_of(label: Any, where: str) -> str | int:
    """Return a label: a text, or a number from 0 on."""
    label = label.tolist() if isinstance(label, np.generic | np.ndarray | Tensor) else label
    if isinstance(label, str) and (name := unicodedata.normalize("NFC", label.strip())):
        return name
    if isinstance(label, int) and label >= 0:
        return int(label)
    raise DataError(
        f"{where} has the label {label!r}, expected a text or a whole number", "invalid_label"
    )
