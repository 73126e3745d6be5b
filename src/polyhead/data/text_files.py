"""From a file to its lines, without losing count and without trusting the file.

Two files are parallel because line n of one translates line n of the other. So a line ends at the
byte 0x0A and nowhere else: Python's text mode also ends one at a lone carriage return, `splitlines`
at eight further characters, and a corpus that holds one of those is out of step from there on. The
carriage return of a Windows line end (0x0D 0x0A) is dropped. Whether the last line has an end makes
no difference.

A bad line is reported as `file:line: why`, and still counts as a line. Memory stays bounded: a line
without end is dropped as it comes; gzip data is unpacked in pieces, and given up if it is a bomb.
"""

import difflib
import gzip
import io
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

from polyhead.data import encodings
from polyhead.errors import DataError

CHUNK = 1 << 18
MAX_LINE = 1_000_000  # bytes
MAX_UNPACKED = 8 << 30  # bytes that one gzip file may become
MAX_RATIO = (
    200  # times its size, beyond the first RATIO_FREE bytes; text shrinks to a third or a tenth
)
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
class Misread(BadLine):
    """A line that is not in the encoding asked for; `looks_like` names another, or is empty."""

    looks_like: str = field(compare=False)


@dataclass(frozen=True)
class Text:
    """The lines of a file, in order and in number; a bad one stands as an empty string."""

    name: str
    lines: list[str]
    bad: tuple[BadLine, ...]
    notices: tuple[str, ...]


class TooLong(NamedTuple):
    """Stands for a line that was dropped while it was read."""

    n_bytes: int


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    """All lines of a file ("-" is standard input); an error at the first bad one."""
    text = read_text(path, encoding=encoding)
    if text.bad:
        raise DataError(f"{text.bad[0]}; correct or remove the line")
    return text.lines


def read_text(path: Path, *, encoding: str = "utf-8") -> Text:
    """All lines of a file, and which of them are bad.

    If most lines are in another encoding, then the file is, and that is an error whatever is done
    about bad lines: skipping them would leave a corpus of the lines that happen to be plain ASCII.
    """
    name = spoken_name(path)
    lines: list[str] = []
    bad: list[BadLine] = []
    notices: list[str] = []
    with open_binary(path) as stream:
        for line in scan(stream, name, encoding=encoding, notify=notices.append):
            if isinstance(line, BadLine):
                bad.append(line)
            lines.append("" if isinstance(line, BadLine) else line)
    refuse_other_encoding(bad, sum(map(bool, lines)), encoding)
    return Text(name, lines, tuple(bad), tuple(notices))


def scan(
    stream: io.BufferedIOBase, name: str, *, encoding: str, notify: Callable[[str], None]
) -> Iterator[str | BadLine]:
    """The lines of an open file one by one, each as text or as what is wrong with it."""
    chunks = unpacked(stream, name)
    head = next(chunks, b"")
    refuse_other_formats(head, name)
    found = encodings.recognise(head[: 1 << 14], encodings.canonical(encoding), name)
    if found.notice:
        notify(found.notice)
    chunks = encodings.narrow(itertools.chain([head[found.skip :]], chunks), found.encoding, name)
    narrow = "utf-8" if encodings.WIDE.fullmatch(found.encoding) else found.encoding
    for number, raw in enumerate(split(chunks), start=1):
        if isinstance(raw, TooLong):
            why = f"longer than {MAX_LINE:,} bytes ({raw.n_bytes:,})"
            yield BadLine(name, number, why)
            continue
        try:
            yield encodings.decode(raw, narrow)
        except encodings.NotTextError as error:
            if error.looks_like is None:
                yield BadLine(name, number, str(error))
            else:
                yield Misread(name, number, str(error), error.looks_like)


def split(chunks: Iterator[bytes]) -> Iterator[bytes | TooLong]:
    r"""Cut a stream at b"\n" only. What is too long is counted instead of kept."""
    start, dropped = b"", 0  # of the line that is not ended yet: its bytes, and how many are gone
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        start += first
        for other in others:
            yield finish(start.removesuffix(b"\r"), dropped)
            start, dropped = other, 0
        if len(start) > MAX_LINE + 1:  # one more may turn out to be a carriage return
            start, dropped = b"", dropped + len(start)
    if start or dropped:
        yield finish(start, dropped)


def finish(line: bytes, dropped: int) -> bytes | TooLong:
    """A whole line, unless it is too long."""
    n_bytes = len(line) + dropped
    return TooLong(n_bytes) if n_bytes > MAX_LINE else line


def unpacked(stream: io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """The contents in chunks, unpacked if they are gzip's (by the first bytes, not by the name).

    The first chunk is long enough to know the file by, also if a pipe hands out single bytes.
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
        packed = Counted(head, stream)
        n_bytes = 0
        with gzip.GzipFile(fileobj=io.BufferedReader(packed, CHUNK)) as plain:
            while chunk := plain.read(CHUNK):
                n_bytes += len(chunk)
                refuse_bomb(n_bytes, packed.n_bytes, name)
                yield chunk
    except EOFError:
        raise DataError(
            f"{name}: gzip data that is cut off; copy or fetch the file again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{name}: damaged gzip data ({error}); copy or fetch the file again"
        ) from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror})") from None


class Counted(io.RawIOBase):
    """A stream whose head was read already, and that knows how much was taken from it."""

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


def refuse_bomb(n_unpacked: int, n_packed: int, name: str) -> None:
    """Give up on a gzip file that becomes far larger than text can."""
    if n_unpacked > MAX_UNPACKED:
        limit = f"{MAX_UNPACKED >> 30} GiB"
    elif n_unpacked > RATIO_FREE and n_unpacked > MAX_RATIO * n_packed:
        limit = f"{MAX_RATIO} times its size"
    else:
        return
    raise DataError(
        f"{name}: gzip data that unpacks to more than {limit}, which text does not; "
        "if you trust it, unpack it yourself"
    )


def refuse_other_formats(head: bytes, name: str) -> None:
    """Name the usual things that are given in place of a text file."""
    if head.startswith(GZIP):
        raise DataError(f"{name}: packed by gzip twice; unpack it once")
    for magic, what in NOT_TEXT.items():
        if head.startswith(magic):
            raise DataError(f"{name}: {what}, not text; give a plain text file (it may be .gz)")


def refuse_other_encoding(bad: list[BadLine], n_good: int, encoding: str) -> None:
    """If more than half of the lines were misread, say which encoding the file is in."""
    misread = [line for line in bad if isinstance(line, Misread)]
    n_lines = n_good + len(bad)
    if 2 * len(misread) <= n_lines:
        return
    first, given = misread[0], encodings.spoken(encodings.canonical(encoding))
    for likely in ("cp949", "utf-8"):
        if 2 * sum(line.looks_like == likely for line in misread) > len(misread):
            raise DataError(
                f"{first.file}:{first.line}: not {given} but {encodings.spoken(likely)}, "
                f"like {len(misread):,} of {n_lines:,} lines; {encodings.way_out(likely)}"
            )
    raise DataError(
        f"{first}, like {len(misread):,} of {n_lines:,} lines; name the file's encoding, "
        'for instance --encoding cp1252 (data.encoding = "cp1252"), or convert it to UTF-8'
    )


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedIOBase]:
    """Open for reading; what can go wrong with a path becomes one line that says so."""
    if str(path) == "-":
        yield cast(io.BufferedIOBase, sys.stdin.buffer)  # not ours to close
        return
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file{suggestion(path)}") from None
    except IsADirectoryError:
        raise DataError(f"{path}: a folder; give a file") from None
    except PermissionError:
        raise DataError(f"{path}: no permission to read it") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{str(path)!r}: cannot be opened ({error})") from None
    with stream:
        yield stream


def suggestion(path: Path) -> str:
    """What the user may have meant, as the end of a sentence."""
    try:
        names = [found.name for found in itertools.islice(path.parent.iterdir(), 10_000)]
    except OSError:
        return f"; there is no folder {path.parent} either"
    close = difflib.get_close_matches(path.name, names, n=3)
    if path.name + ".gz" in names:
        close = [path.name + ".gz"]
    return f"; did you mean {' or '.join(close)}?" if close else f" in {path.parent}"


def spoken_name(path: Path) -> str:
    """The name of a file in messages."""
    return "stdin" if str(path) == "-" else str(path)
