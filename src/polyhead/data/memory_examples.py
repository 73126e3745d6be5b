"""Examples in memory, written once to a file that is then read as any other file.

    pairs, labelled    JSON lines, one object per example
    text               plain text, one item per line or, if it has line breaks, several
    images             an array of bytes (.npy) with a list of labels beside it

A file is named by the SHA-256 of its content. Generators are written as they are read.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, time
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, NoReturn

from polyhead.atomic_file import TEMPORARY, os_errors_as_polyhead_errors, remove, rename
from polyhead.data.columns import NAMES, Roles
from polyhead.data.tables import shorten
from polyhead.errors import ConfigError, DataError

CHUNK = 10_000  # rows of a pandas frame
NOTHING = object()


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
