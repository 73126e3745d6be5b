"""Directories with a subdirectory per class, on disk or in a tar archive.

The class of an image is its directory, at the level where the paths start to differ:
`cifar/train/cat/1.png` and `cifar/train/dog/7.png` are a cat and a dog. Deeper directories belong
to the class above them. Links out of the directory are not followed, and archives are only read.
Every file is read, or listed with a reason.
"""

import os
import tarfile
import unicodedata
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from polyhead.data.images.files import (
    MAX_BYTES,
    Pixels,
    Unreadable,
    decode,
    pillow,
    read_image,
)
from polyhead.errors import DataError

MAX_ARCHIVE = 2**36  # bytes that an archive may unpack to
IGNORED = ("Thumbs.db", "desktop.ini", "__MACOSX")  # and hidden files

Name = tuple[str, ...]  # the folders of a file and its own name


@dataclass(frozen=True)
class PixelShape:
    """The size of all images after reading."""

    height: int
    width: int
    channels: int

    @property
    def n_bytes(self) -> int:
        """Number of bytes of one image."""
        return self.height * self.width * self.channels


@dataclass
class FoundImages:
    """Images by path, and the unusable ones with their reasons."""

    images: dict[Name, Pixels] = field(default_factory=dict)
    bad: list[tuple[str, str]] = field(default_factory=list)


def read_folder(folder: Path, shape: PixelShape) -> FoundImages:
    """Read all files below a directory, in the order of their names."""
    pillow()
    found_images = FoundImages()
    paths = sorted(
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if not _is_ignored(Path(place, name).relative_to(folder).parts)
    )
    check_room(len(paths), shape, folder)
    for path in paths:
        name = path.relative_to(folder).parts
        try:
            found_images.images[name] = _read(path, folder, shape)
        except Unreadable as error:
            found_images.bad.append((visible("/".join(name)), str(error)))
    return found_images


def _read(path: Path, folder: Path, shape: PixelShape) -> Pixels:
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise Unreadable("a link out of the directory")
    if not path.is_file():
        raise Unreadable("not a file")
    return read_image(path, height=shape.height, width=shape.width, channels=shape.channels)


def read_archive(path: Path, shape: PixelShape) -> FoundImages:
    """Read all files of a tar archive, compressed or not, in one pass."""
    pillow()
    found_images = FoundImages()
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).parts
                if member.offset + member.size > MAX_ARCHIVE:
                    limit = f"{MAX_ARCHIVE >> 30} GB"
                    raise DataError(f"{path}: unpacks to more than {limit}", "archive_too_large")
                if member.isdir() or _is_ignored(name):
                    continue
                try:
                    found_images.images[name] = _unpack(archive, member, shape)
                except Unreadable as error:
                    found_images.bad.append((visible(member.name), str(error)))
                if len(found_images.images) % 1000 == 0:
                    check_room(len(found_images.images), shape, path)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if not found_images.images:
            message = f"{path} is neither a directory, nor a tar archive, nor an idx file ({error})"
            raise DataError(message, "unknown_format") from None
        message = f"{path}: the archive is damaged ({error}); download it again"
        raise DataError(message, "damaged_archive") from None
    return found_images


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, shape: PixelShape) -> Pixels:
    if not member.isreg():
        raise Unreadable("not a file")
    if member.size > MAX_BYTES:
        raise Unreadable(f"larger than {MAX_BYTES >> 20} MB")
    file = archive.extractfile(member)
    assert file is not None
    content = file.read(member.size)
    return decode(content, height=shape.height, width=shape.width, channels=shape.channels)


def with_classes(found_images: FoundImages) -> FoundImages:
    """Prefix every path with its class; images without a class are bad.

    Class names are normalized (NFC): the same name may come from two systems.
    """
    folders = [name[:-1] for name in found_images.images]
    depth = _shared(folders)
    if folders and all(len(folder) == depth for folder in folders):
        depth = max(0, depth - 1)  # one class only, which is reported later
    images, bad = {}, list(found_images.bad)
    for name, pixels in found_images.images.items():
        if len(name) < depth + 2:
            bad.append((visible("/".join(name)), "not in a directory of its class"))
        else:
            images[(_class_name(name[depth]), *name)] = pixels
    return FoundImages(images, bad)


def _class_name(folder: str) -> str:
    """Return a directory's name as a class name, which is printed and saved with models.

    Archives from Windows may have Korean names in CP949, which Python decodes as lone surrogates.
    """
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


def _shared(folders: Sequence[Name]) -> int:
    """Return the number of leading directories that all paths share."""
    if not folders:
        return 0
    first, last = min(folders), max(folders)  # all others lie between these two
    pairs = zip(first, last, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))


def check_room(count: int, shape: PixelShape, path: Path) -> None:
    """Reject images that would not fit into this machine's memory."""
    needed = count * shape.n_bytes
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory // 2:
        raise DataError(
            f"{path}: {count:,} images of {shape.height} x {shape.width} pixels need "
            f"{needed / 2**30:.1f} GB, more than half of this machine's memory. Reduce "
            "model.height and model.width, or the number of images.",
            "out_of_memory",
        )


def _is_ignored(name: Name) -> bool:
    return any((part.startswith(".") and part != ".") or part in IGNORED for part in name)
