"""Reading of text files line by line.

Parallel files need equal line counts. So a line ends at the byte 0x0A and nowhere else: Python's
text mode also ends one at a lone carriage return, `splitlines` at eight further characters, and a
corpus that holds one of those is misaligned from there on. The carriage return of a Windows line
end (0x0D 0x0A) is dropped. The end of the last line is optional.

A bad line is reported as `file:line: reason`, and still counts as a line. Memory stays bounded: an
overlong line is dropped while it is read; gzip data is unpacked in chunks, up to a limit.
"""

import difflib
import gzip
import io
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from polyhead.data.encodings import (
    WIDE,
    NotTextError,
    canonical,
    decode,
    display_encoding,
    narrow,
    recognise,
    remedy,
)
from polyhead.errors import DataError

CHUNK = 1 << 18
MAX_LINE = 1_000_000  # bytes
MAX_UNPACKED = 8 << 30  # bytes that one gzip file may become
MAX_RATIO = 200  # unpacked to packed bytes, beyond RATIO_FREE; that of text is 3 to 10
RATIO_FREE = 64 << 20

NOT_TEXT = {
    b"PK\x03\x04": "a zip archive (as .docx and .xlsx are)",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ\x00": "packed by xz",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"%PDF-": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\xd0\xcf\x11\xe0": "an old Office document",
}
GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why."""

    file: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


@dataclass(frozen=True)
class MisreadLine(BadLine):
    """A line that is not in the given encoding; `looks_like` names another, or is empty."""

    looks_like: str = field(compare=False)


@dataclass(frozen=True)
class TextFile:
    """The lines of a file; a bad line is an empty string."""

    name: str
    lines: list[str]
    bad: tuple[BadLine, ...]
    notices: tuple[str, ...]


class OverlongLine(NamedTuple):
    """Replaces a line that was dropped while it was read."""

    n_bytes: int


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    """Return all lines of a file ("-" is standard input); raise an error at a bad line."""
    text = read_text(path, encoding=encoding)
    check_bad_lines(text.bad, "fail")
    return text.lines


def check_bad_lines(bad: Sequence[BadLine], on_bad_line: str) -> None:
    """Raise an error at the first bad line if so configured."""
    if bad and on_bad_line == "fail":
        raise DataError(f"{bad[0]}. Correct or remove the line.", "bad_line")


def skipped_notices(bad: Sequence[BadLine]) -> list[str]:
    """Return the message that bad lines were skipped, if there are any."""
    if not bad:
        return []
    lines = "1 bad line" if len(bad) == 1 else f"{len(bad):,} bad lines"
    more = f"; and {len(bad) - 3} more" if len(bad) > 3 else ""
    return [f"{lines} skipped: {'; '.join(map(str, bad[:3]))}{more}"]


def read_text(path: Path, *, encoding: str = "utf-8") -> TextFile:
    """Read all lines of a file, good and bad.

    If most lines are in another encoding, the file is, and that is always an error:
    skipping them would leave a corpus of the lines that happen to be plain ASCII.
    """
    name = display_name(path)
    lines: list[str] = []
    bad: list[BadLine] = []
    notices: list[str] = []
    with open_binary(path) as stream:
        for line in scan(stream, name, encoding=encoding, notify=notices.append):
            if isinstance(line, BadLine):
                bad.append(line)
            lines.append("" if isinstance(line, BadLine) else line)
    _check_encoding(bad, sum(map(bool, lines)), encoding)
    return TextFile(name, lines, tuple(bad), tuple(notices))


def scan(
    stream: io.BufferedIOBase, name: str, *, encoding: str, notify: Callable[[str], None]
) -> Iterator[str | BadLine]:
    """Yield the lines of an open file, each as text or as a bad line."""
    chunks = unpacked(stream, name)
    head = next(chunks, b"")
    _check_format(head, name)
    detected = recognise(head[: 1 << 14], canonical(encoding), name)
    if detected.notice:
        notify(detected.notice)
    chunks = narrow(itertools.chain([head[detected.skip :]], chunks), detected.encoding, name)
    line_encoding = "utf-8" if WIDE.fullmatch(detected.encoding) else detected.encoding
    for number, raw in enumerate(split(chunks), start=1):
        if isinstance(raw, OverlongLine):
            yield BadLine(name, number, f"longer than {MAX_LINE:,} bytes ({raw.n_bytes:,})")
            continue
        try:
            yield decode(raw, line_encoding)
        except NotTextError as error:
            if error.looks_like is None:
                yield BadLine(name, number, str(error))
            else:
                yield MisreadLine(name, number, str(error), error.looks_like)


def split(chunks: Iterator[bytes]) -> Iterator[bytes | OverlongLine]:
    """Cut a stream at the byte 0x0A only; overlong lines are counted instead of kept."""
    start, dropped = b"", 0  # of the unfinished line: its bytes, and the number of dropped ones
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        start += first
        for other in others:
            yield _finish(start.removesuffix(b"\r"), dropped)
            start, dropped = other, 0
        if len(start) > MAX_LINE + 1:  # one more may be a carriage return
            start, dropped = b"", dropped + len(start)
    if start or dropped:
        yield _finish(start, dropped)


def _finish(line: bytes, dropped: int) -> bytes | OverlongLine:
    n_bytes = len(line) + dropped
    return OverlongLine(n_bytes) if n_bytes > MAX_LINE else line


def unpacked(stream: io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """Yield the contents in chunks, unpacked if they are gzip data by their first bytes.

    The first chunk is long enough to recognize the format, also if a pipe delivers single bytes.
    """
    try:
        head = stream.read1(CHUNK)
        while len(head) < 8 and b"\n" not in head and (more := stream.read1(CHUNK)):
            head += more
        if not head.startswith(GZIP):
            yield head
            while chunk := stream.read1(CHUNK):
                yield chunk
            return
        packed = CountingReader(head, stream)
        n_bytes = 0
        with gzip.GzipFile(fileobj=io.BufferedReader(packed, CHUNK)) as plain:
            while chunk := plain.read(CHUNK):
                n_bytes += len(chunk)
                _check_ratio(n_bytes, packed.n_bytes, name)
                yield chunk
    except EOFError:
        message = f"{name}: truncated gzip data; copy or download the file again"
        raise DataError(message, "damaged_gzip") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        message = f"{name}: damaged gzip data ({error}); copy or download the file again"
        raise DataError(message, "damaged_gzip") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror})", "cannot_read") from None


class CountingReader(io.RawIOBase):
    """A stream whose first bytes were already read; counts the bytes taken from it."""

    def __init__(self, head: bytes, stream: io.BufferedIOBase) -> None:
        self.head = head
        self.stream = stream
        self.n_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        chunk = self.head[: len(buffer)] or self.stream.read1(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(chunk)] = chunk
        self.n_bytes += len(chunk)
        return len(chunk)


def _check_ratio(n_unpacked: int, n_packed: int, name: str) -> None:
    """Reject a gzip file that unpacks to far more than text does."""
    if n_unpacked > MAX_UNPACKED:
        limit = f"{MAX_UNPACKED >> 30} GiB"
    elif n_unpacked > RATIO_FREE and n_unpacked > MAX_RATIO * n_packed:
        limit = f"{MAX_RATIO} times its size"
    else:
        return
    raise DataError(
        f"{name}: gzip data that unpacks to more than {limit}, unlike text. If you trust it, "
        "unpack it yourself.",
        "gzip_bomb",
    )


def _check_format(head: bytes, name: str) -> None:
    """Reject common formats that are not text."""
    if head.startswith(GZIP):
        raise DataError(f"{name}: packed by gzip twice; unpack it once", "not_text")
    for magic, kind in NOT_TEXT.items():
        if head.startswith(magic):
            message = f"{name}: {kind}, not text; give a plain text file (it may be .gz)"
            raise DataError(message, "not_text")


def _check_encoding(bad: list[BadLine], n_good: int, encoding: str) -> None:
    """Reject a file of which more than half of the lines are in another encoding."""
    misread = [line for line in bad if isinstance(line, MisreadLine)]
    n_lines = n_good + len(bad)
    if 2 * len(misread) <= n_lines:
        return
    first, given = misread[0], display_encoding(canonical(encoding))
    for likely in ("cp949", "utf-8"):
        if 2 * sum(line.looks_like == likely for line in misread) > len(misread):
            raise DataError(
                f"{first.file}:{first.line}: not {given} but {display_encoding(likely)}, "
                f"like {len(misread):,} of {n_lines:,} lines; {remedy(likely)}",
                "wrong_encoding",
            )
    raise DataError(
        f"{first}, like {len(misread):,} of {n_lines:,} lines; name the file's encoding, "
        'for instance --encoding cp1252 (data.encoding = "cp1252"), or convert it to UTF-8',
        "wrong_encoding",
    )


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file for reading; report problems with the path as DataError."""
    if str(path) == "-":
        yield cast(io.BufferedIOBase, sys.stdin.buffer)  # closed by the interpreter
        return
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file{_suggestion(path)}", "not_found") from None
    except IsADirectoryError:
        raise DataError(f"{path}: a directory; give a file", "not_a_file") from None
    except PermissionError:
        raise DataError(f"{path}: no permission to read it", "cannot_read") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r}: cannot be opened ({error})", "cannot_read") from None
    with stream:
        yield stream


def _suggestion(path: Path) -> str:
    """Return similar file names, as the end of a sentence."""
    try:
        names = [entry.name for entry in itertools.islice(path.parent.iterdir(), 10_000)]
    except OSError:
        return f"; the directory {path.parent} does not exist either"
    close = difflib.get_close_matches(path.name, names, n=3)
    if path.name + ".gz" in names:
        close = [path.name + ".gz"]
    return f"; did you mean {' or '.join(close)}?" if close else f" in {path.parent}"


def display_name(path: Path) -> str:
    """Return the name of a file in messages."""
    return "stdin" if str(path) == "-" else str(path)
