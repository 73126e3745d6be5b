"""Directories with a subdirectory per class, on disk or in a tar archive.

The class of an image is its directory at the level where the paths start to differ. Links out of
the directory are not followed. Every file is read, or listed with a reason.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

from polyhead.data.images.files import (
    MAX_BYTES,
    Pixels,
    PixelShape,
    Unreadable,
    decode_all,
    end_decoder,
    read_bytes,
    require_pillow,
)
from polyhead.data.text_files import MAX_RATIO, RATIO_FREE
from polyhead.errors import DataError
from polyhead.sandbox import Limits, Sandbox

MAX_ARCHIVE = 2**36  # bytes that an archive may unpack to
ARCHIVE_LIMITS = Limits(megabytes=240, seconds=4)
BATCH, BATCH_BYTES = 256, 2**22  # images that are decoded together
IGNORED = ("Thumbs.db", "desktop.ini", "__MACOSX")  # and hidden files

Name = tuple[str, ...]  # the folders of a file and its own name
File = tuple[Name, bytes | Unreadable]


def read_folder(path: Path, shape: PixelShape) -> tuple[dict[Name, Pixels], list[str]]:
    """Return all images in a directory or tar archive, and unusable ones as `name: reason`."""
    require_pillow()
    images: dict[Name, Pixels] = {}
    bad: list[str] = []
    files = _in_directory(path, shape) if path.is_dir() else _in_archive(path)
    try:
        for batch in _batches(files, shape):
            contents = [content for _, content in batch if isinstance(content, bytes)]
            decoded = iter(decode_all(contents, shape) if contents else ())
            for name, content in batch:
                pixels = next(decoded) if isinstance(content, bytes) else content
                if isinstance(pixels, Unreadable):
                    bad.append(f"{visible('/'.join(name))}: {pixels}")
                else:
                    images[name] = pixels
            check_room(len(images), shape, path)
    except (Unreadable, OSError) as error:
        if not images:
            message = f"{path} is neither a directory, nor a tar archive, nor an idx file ({error})"
            raise DataError(message, "unknown_format") from None
        message = f"{path}: the archive is damaged ({error}); download it again"
        raise DataError(message, "damaged_archive") from None
    finally:
        end_decoder()
    return _with_classes(images, bad), bad


def _batches(files: Iterable[File], shape: PixelShape) -> Iterator[list[File]]:
    """Yield files in groups that are not too large, before and after decoding."""
    most = max(1, min(BATCH, BATCH_BYTES // (shape.height * shape.width * shape.channels)))
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


def _in_directory(folder: Path, shape: PixelShape) -> Iterator[File]:
    """Yield all files below a directory, in the order of their names."""
    paths = sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)
    paths = [path for path in paths if not _is_ignored(path.relative_to(folder).parts)]
    check_room(len(paths), shape, folder)
    for path in paths:
        name = path.relative_to(folder).parts
        try:
            if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
                raise Unreadable("a link out of the directory")
            if not path.is_file():
                raise Unreadable("not a file")
            yield name, read_bytes(path)
        except Unreadable as reason:
            yield name, reason


def _in_archive(path: Path) -> Iterator[File]:
    """Yield all files of a tar archive, which a child process reads (`archive.py`)."""
    most = min(MAX_ARCHIVE, max(RATIO_FREE, MAX_RATIO * path.stat().st_size))
    sandbox = Sandbox("polyhead.data.images.archive", Unreadable, ARCHIVE_LIMITS)
    try:
        sandbox.call("open_archive", str(path.absolute()), most, MAX_BYTES)
        while files := sandbox.call("next_files", BATCH, BATCH_BYTES):
            if not files[0]:
                return
            for (parts, reason), content in zip(*files, strict=True):
                if not _is_ignored(name := tuple(parts)):
                    yield name, Unreadable(reason) if reason else content
    finally:
        sandbox.close()


def _is_ignored(name: Name) -> bool:
    return any((part.startswith(".") and part != ".") or part in IGNORED for part in name)


def _with_classes(images: dict[Name, Pixels], bad: list[str]) -> dict[Name, Pixels]:
    """Prefix every path with its class; images without a class are bad."""
    folders = [name[:-1] for name in images]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*folders, strict=False))
    depth = len(list(shared))
    if folders and all(len(folder) == depth for folder in folders):
        depth = max(0, depth - 1)  # one class only, which is reported later
    classified = {}
    for name, pixels in images.items():
        if len(name) < depth + 2:
            bad.append(f"{visible('/'.join(name))}: not in a directory of its class")
        else:
            classified[(_class_name(name[depth]), *name)] = pixels
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


def check_room(count: int, shape: PixelShape, path: Path) -> None:
    """Reject images that would not fit into this machine's memory."""
    needed = count * shape.height * shape.width * shape.channels
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory // 2:
        raise DataError(
            f"{path}: {count:,} images of {shape.height} x {shape.width} pixels need "
            f"{needed / 2**30:.1f} GB, more than half of this machine's memory. Reduce "
            "model.height and model.width, or the number of images.",
            "out_of_memory",
        )
