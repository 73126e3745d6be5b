"""Single files of a .tar.gz or .zip archive, read by their names.

Nothing is extracted by the archive's own paths. Of a tar archive only headers of 512 bytes are
interpreted; long names and extended headers are skipped, whatever their size.
"""

import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath

from polyhead.data.text_files import CHUNK, unpacked
from polyhead.errors import DataError

BLOCK = 512  # bytes of tar
Member = tuple[str, Iterator[bytes]]


def read_members(path: Path, names: Collection[str]) -> Iterator[Member]:
    """Yield (name, contents in chunks) of the files with these last parts of their paths.

    The chunks must be used before the next member is requested.
    """
    with path.open("rb") as stream, _named_errors(path):
        is_zip = stream.read(4) == b"PK\x03\x04"
        stream.seek(0)
        members = _zip_members(path) if is_zip else _tar_members(unpacked(stream, str(path)))
        remaining = set(names)
        for name, chunks in members:
            if (last := PurePosixPath(name).name) in remaining:
                remaining.remove(last)
                yield last, _checked(chunks, path)
                if not remaining:
                    return
    missing = ", ".join(sorted(remaining))
    raise DataError(f"{path}: the archive has no {missing}", "missing_member")


def _checked(chunks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    with _named_errors(path):
        yield from chunks


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: damaged archive ({error})", "damaged_archive") from None


def _zip_members(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for item in archive.infolist():
            if not item.is_dir():
                with archive.open(item) as file:
                    yield item.filename, iter(partial(file.read, CHUNK), b"")


def _tar_members(chunks: Iterator[bytes]) -> Iterator[Member]:
    reader = _Reader(chunks)
    while header := b"".join(reader.take(BLOCK)).rstrip(b"\0"):
        n_bytes = int(header[124:136].strip(b"\0 ") or b"0", 8)
        contents = reader.take(n_bytes)
        if header[156:157] in (b"0", b""):  # a regular file
            yield header[:100].split(b"\0")[0].decode(errors="replace"), contents
        for _ in contents:  # unused
            pass
        for _ in reader.take(-n_bytes % BLOCK):
            pass


class _Reader:
    """Chunks of bytes, taken in portions of any size."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.rest = chunks, b""

    def take(self, n_bytes: int) -> Iterator[bytes]:
        """Yield the next bytes; ValueError if there are too few."""
        while n_bytes > 0:
            self.rest = self.rest or next(self.chunks, b"")
            if not self.rest:
                raise ValueError("it ends too early")
            part, self.rest = self.rest[:n_bytes], self.rest[n_bytes:]
            n_bytes -= len(part)
            yield part
