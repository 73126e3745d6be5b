"""A folder for each class, on disk or in a tar archive: every file is read, or named with a reason.

The class of an image is the folder it lies in, counted from where the paths begin to differ:
`cifar/train/cat/1.png` and `cifar/train/dog/7.png` are a cat and a dog. Deeper folders belong to
the class above them. Links are not followed out of the folder, and an archive is only ever read.
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
LITTER = (
    "Thumbs.db",
    "desktop.ini",
    "__MACOSX",
)  # what systems leave behind; also what begins with .

Name = tuple[str, ...]  # the folders of a file and its own name


@dataclass(frozen=True)
class ImageShape:
    """What all images are brought to."""

    height: int
    width: int
    channels: int

    @property
    def n_bytes(self) -> int:
        """Of one image."""
        return self.height * self.width * self.channels


@dataclass
class Found:
    """Images by their names, and those that cannot be used, each with the reason."""

    images: dict[Name, Pixels] = field(default_factory=dict)
    bad: list[tuple[str, str]] = field(default_factory=list)


def read_folder(folder: Path, shape: ImageShape) -> Found:
    """All files below a folder, in the order of their names."""
    pillow()
    found = Found()
    paths = sorted(
        Path(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if not _is_litter(Path(place, name).relative_to(folder).parts)
    )
    check_room(len(paths), shape, folder)
    for path in paths:
        name = path.relative_to(folder).parts
        try:
            found.images[name] = _read(path, folder, shape)
        except Unreadable as error:
            found.bad.append((visible("/".join(name)), str(error)))
    return found


def _read(path: Path, folder: Path, shape: ImageShape) -> Pixels:
    if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
        raise Unreadable("a link that leads out of the folder")
    if not path.is_file():
        raise Unreadable("not a file")
    return read_image(path, height=shape.height, width=shape.width, channels=shape.channels)


def read_archive(path: Path, shape: ImageShape) -> Found:
    """All files of a tar archive, packed or not, read once from the first to the last."""
    pillow()
    found = Found()
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                name = PurePosixPath(member.name).parts
                if member.offset + member.size > MAX_ARCHIVE:
                    raise DataError(f"{path}: unpacks to more than {MAX_ARCHIVE >> 30} GB")
                if member.isdir() or _is_litter(name):
                    continue
                try:
                    found.images[name] = _unpack(archive, member, shape)
                except Unreadable as error:
                    found.bad.append((visible(member.name), str(error)))
                if len(found.images) % 1000 == 0:
                    check_room(len(found.images), shape, path)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if not found.images:
            raise DataError(
                f"{path} is neither a folder, nor a tar archive, nor an idx file ({error})"
            ) from None
        raise DataError(f"{path}: the archive is damaged ({error}); fetch it again") from None
    return found


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, shape: ImageShape) -> Pixels:
    if not member.isreg():
        raise Unreadable("not a file")
    if member.size > MAX_BYTES:
        raise Unreadable(f"larger than {MAX_BYTES >> 20} MB")
    file = archive.extractfile(member)
    assert file is not None
    content = file.read(member.size)
    return decode(content, height=shape.height, width=shape.width, channels=shape.channels)


def class_of(found: Found) -> Found:
    """The same, with names of which the first part is the class; what has none is bad.

    Class names are written in one way (NFC): the same word may have come from two systems.
    """
    folders = [name[:-1] for name in found.images]
    depth = _shared(folders)
    if folders and all(len(folder) == depth for folder in folders):
        depth = max(0, depth - 1)  # one class only: whoever asked will say that it is not enough
    images, bad = {}, list(found.bad)
    for name, pixels in found.images.items():
        if len(name) < depth + 2:
            bad.append((visible("/".join(name)), "not in a folder of its class"))
        else:
            images[(_class_name(name[depth]), *name)] = pixels
    return Found(images, bad)


def _class_name(folder: str) -> str:
    """A folder's name as that of a class, unless it is none: it is printed, and saved with models.

    Archives of Windows may have Korean names in CP949, which Python hands on as lone surrogates.
    """
    if visible(folder) == folder:
        return unicodedata.normalize("NFC", folder)
    try:
        korean = os.fsencode(folder).decode("cp949")
        hint = "" if visible(korean) != korean else f" (in CP949 it would be {korean})"
    except UnicodeError:
        hint = ""
    raise DataError(
        f"the folder '{visible(folder)}' has a name that is no UTF-8 text{hint}; rename it"
    )


def visible(name: str) -> str:
    """A name without what would not print, or would steer a terminal: such characters escaped."""
    return "".join(
        repr(letter)[1:-1] if unicodedata.category(letter) in ("Cc", "Cs") else letter
        for letter in name
    )


def _shared(folders: Sequence[Name]) -> int:
    """How many folders all paths have in common at their beginning."""
    if not folders:
        return 0
    first, last = min(folders), max(folders)  # whatever these two share, all between them share
    pairs = zip(first, last, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))


def check_room(count: int, shape: ImageShape, path: Path) -> None:
    """Refuse what would not fit into this machine's memory."""
    needed = count * shape.n_bytes
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there // 2:
        raise DataError(
            f"{path}: {count:,} images of {shape.height} x {shape.width} pixels need "
            f"{needed / 2**30:.1f} GB, more than half of this machine's memory; make model.height "
            "and model.width smaller, or give fewer images"
        )


def _is_litter(name: Name) -> bool:
    return any((part.startswith(".") and part != ".") or part in LITTER for part in name)
