"""Directories with a subdirectory per class.

The class of an image is its directory at the level where the paths start to differ. Links out of
the directory are not followed. Every file is read, or listed with a reason.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path

from polyhead.data.corpus_store import map_in_order, n_processors
from polyhead.data.images.files import (
    Pixels,
    PixelShape,
    Unreadable,
    decode_all,
    read_bytes,
    require_pillow,
)
from polyhead.errors import DataError

BATCH, BATCH_BYTES = 256, 2**22  # images that are decoded together
IGNORED = ("Thumbs.db", "desktop.ini", "__MACOSX")  # and hidden files

Name = tuple[str, ...]  # the folders of a file and its own name
File = tuple[Name, bytes | Unreadable]
DecodedFile = tuple[Name, Pixels | Unreadable]


def read_folder(path: Path, shape: PixelShape) -> Iterator[list[DecodedFile]]:
    """Yield all files in a directory, decoded or with a reason, in batches."""
    require_pillow()
    if not path.is_dir():
        message = f"{path} is neither a directory nor an idx file; unpack archives first"
        raise DataError(message, "unknown_format")
    batches = _batches(_in_directory(path), shape)
    yield from map_in_order(partial(_decoded, shape), batches, n_processors())


def _decoded(shape: PixelShape, batch: Sequence[File]) -> list[DecodedFile]:
    contents = [content for _, content in batch if isinstance(content, bytes)]
    pixels = iter(decode_all(contents, shape) if contents else ())
    return [
        (name, next(pixels) if isinstance(content, bytes) else content) for name, content in batch
    ]


def _batches(files: Iterable[File], shape: PixelShape) -> Iterator[list[File]]:
    """Yield files in groups that are not too large, before and after decoding."""
    most = max(1, min(BATCH, BATCH_BYTES // shape.n_bytes))
    batch: list[File] = []
    size = 0
    for name, content in files:
        batch.append((name, content))
        size += len(content) if isinstance(content, bytes) else 0
        if len(batch) >= most or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def files_in(folder: Path) -> Iterator[Path]:
    """Yield all files below a directory that may be images, in a fixed order."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            parts = path.relative_to(folder).parts
            if not any((p.startswith(".") and p != ".") or p in IGNORED for p in parts):
                yield path


def _in_directory(folder: Path) -> Iterator[File]:
    """Yield the contents of all files below a directory."""
    for path in files_in(folder):
        name = path.relative_to(folder).parts
        try:
            if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                raise Unreadable("a link out of the directory")
            if not path.is_file():
                raise Unreadable("not a file")
            yield name, read_bytes(path)
        except Unreadable as reason:
            yield name, reason


def with_classes(rows: dict[Name, int], bad: list[str]) -> dict[Name, int]:
    """Prefix the path of every image with its class; images without a class are bad."""
    folders = [name[:-1] for name in rows]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
    depth = len(list(shared))
    if folders and all(len(folder) == depth for folder in folders):
        depth = max(0, depth - 1)  # one class only, which is reported later
    classified = {}
    for name, row in rows.items():
        if len(name) < depth + 2:
            bad.append(f"{visible('/'.join(name))}: not in a directory of its class")
        else:
            classified[(_class_name(name[depth]), *name)] = row
    return classified


def _class_name(folder: str) -> str:
    """Return a directory's name as a class name: in NFC, and CP949 of Windows archives decoded."""
    if visible(folder) == folder:
        return unicodedata.normalize("NFC", folder)
    try:
        korean = os.fsencode(folder).decode("cp949")
        hint = "" if visible(korean) != korean else f" (in CP949 it would be {korean})"
    except UnicodeError:
        hint = ""
    raise DataError(
        f"the directory name '{visible(folder)}' is not UTF-8{hint}; rename it",
        "invalid_class_name",
    )


def visible(name: str) -> str:
    """Return a name with control characters and lone surrogates escaped."""
    return "".join(
        repr(letter)[1:-1] if unicodedata.category(letter) in ("Cc", "Cs") else letter
        for letter in name
    )
