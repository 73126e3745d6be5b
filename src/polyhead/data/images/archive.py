"""Reading of untrusted tar archives; runs in a sandbox (`polyhead.sandbox`).

Headers may claim names of gigabytes, and compressed zeros take no space: both end at a limit.
"""

import lzma
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

DAMAGES = (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError)
Entry = tuple[tuple[str, ...], str, bytes]  # path, reason, content
_ENTRIES: list[Iterator[Entry]] = []  # of the archive that this process reads


def open_archive(
    _: Sequence[bytes], path: str, max_unpacked: int, max_file: int
) -> tuple[None, tuple[bytes, ...]]:
    """Open an archive, compressed or not, for reading in one pass."""
    _ENTRIES[:] = [_entries(path, max_unpacked, max_file)]
    return None, ()


def next_files(
    _: Sequence[bytes], max_files: int, max_bytes: int
) -> tuple[list[tuple[tuple[str, ...], str]], list[bytes]]:
    """Return the next paths, each with "" or a reason, and contents; nothing at the end."""
    files: list[tuple[tuple[str, ...], str]] = []
    contents: list[bytes] = []
    size = 0
    while len(files) < max_files and size < max_bytes:
        try:
            entry = next(_ENTRIES[0], None)
        except DAMAGES as error:
            raise ValueError(f"damaged: {error}") from None
        if entry is None:
            break
        name, reason, content = entry
        files.append((name, reason))
        contents.append(content)
        size += len(content)
    return files, contents


def _entries(path: str, max_unpacked: int, max_file: int) -> Iterator[Entry]:
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # which it would collect
            if member.offset_data + member.size > max_unpacked:
                raise ValueError(f"unpacks to more than {max_unpacked >> 20:,} MB")
            if member.isdir():
                continue
            name, reason, content = PurePosixPath(member.name).parts, "", b""
            if not member.isreg():
                reason = "not a file"
            elif member.size > max_file:
                reason = f"larger than {max_file >> 20} MB"
            else:
                file = archive.extractfile(member)
                assert file is not None
                content = file.read(member.size)
            yield name, reason, content
