"""Directories with a subdirectory per class, on disk or in a tar archive.

The class of an image is its directory at the level where the paths start to differ. Links out of
the directory are not followed. Every file is read, or listed with a reason.
"""

import os
import tarfile
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path, PurePosixPath

from polyhead.data.images.files import (
    MAX_BYTES,
    Pixels,
    PixelShape,
    Unreadable,
    decode,
    pillow,
    read_bytes,
)
from polyhead.errors import DataError

MAX_ARCHIVE = 2**36  # bytes that an archive may unpack to
IGNORED = ("Thumbs.db", "desktop.ini", "__MACOSX")  # and hidden files

Name = tuple[str, ...]  # the folders of a file and its own name
FileReader = Callable[[], bytes]  # may raise Unreadable


def read_folder(path: Path, shape: PixelShape) -> tuple[dict[Name, Pixels], list[str]]:
    """Return all images in a directory or tar archive, and unusable ones as `name: reason`."""
    pillow()
    images: dict[Name, Pixels] = {}
    bad: list[str] = []
    try:
        for name, read in _in_directory(path, shape) if path.is_dir() else _in_archive(path):
            try:
                images[name] = decode(read(), shape)
            except Unreadable as error:
                bad.append(f"{visible('/'.join(name))}: {error}")
            if len(images) % 1000 == 0:
                check_room(len(images), shape, path)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if not images:
            message = f"{path} is neither a directory, nor a tar archive, nor an idx file ({error})"
            raise DataError(message, "unknown_format") from None
        message = f"{path}: the archive is damaged ({error}); download it again"
        raise DataError(message, "damaged_archive") from None
    return _with_classes(images, bad), bad


def _in_directory(folder: Path, shape: PixelShape) -> Iterator[tuple[Name, FileReader]]:
    """Yield all files below a directory, in the order of their names."""
    paths = sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)
    paths = [path for path in paths if not _is_ignored(path.relative_to(folder).parts)]
    check_room(len(paths), shape, folder)

    def read(path: Path) -> bytes:
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise Unreadable("a link out of the directory")
        if not path.is_file():
            raise Unreadable("not a file")
        return read_bytes(path)

    for path in paths:
        yield path.relative_to(folder).parts, partial(read, path)


def _in_archive(path: Path) -> Iterator[tuple[Name, FileReader]]:
    """Yield all files of a tar archive, compressed or not, in one pass."""

    def read(member: tarfile.TarInfo) -> bytes:
        if not member.isreg():
            raise Unreadable("not a file")
        if member.size > MAX_BYTES:
            raise Unreadable(f"larger than {MAX_BYTES >> 20} MB")
        file = archive.extractfile(member)
        assert file is not None
        return file.read(member.size)

    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            name = PurePosixPath(member.name).parts
            if member.offset + member.size > MAX_ARCHIVE:
                limit = f"{MAX_ARCHIVE >> 30} GB"
                raise DataError(f"{path}: unpacks to more than {limit}", "archive_too_large")
            if not member.isdir() and not _is_ignored(name):
                yield name, partial(read, member)


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
