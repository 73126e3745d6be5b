"""Reading of text files line by line.

Parallel files need equal line counts. So a line ends at the byte 0x0A and nowhere else: Python's
text mode also ends one at a lone carriage return, `splitlines` at eight further characters, and a
corpus that holds one of those is misaligned from there on. The carriage return of a Windows line
end (0x0D 0x0A) is dropped. The end of the last line is optional.

A bad line is reported as `file:line: reason`, and still counts as a line. Memory stays bounded: an
overlong line is dropped while it is read; packed data is unpacked in chunks, up to a limit.

Files are UTF-8, or in another encoding that must be named; a byte order mark decides. A bad line
names its first bad byte and the encoding it looks like, often CP949. Since errors would go
unnoticed, that one is only suggested.
"""

import codecs
import gzip
import io
import itertools
import lzma
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

from polyhead.data.locate import find
from polyhead.errors import ConfigError, DataError, MissingError, install_command

CHUNK = 1 << 18
MAX_LINE = 1_000_000  # bytes
MAX_KEPT = 100_000  # bad lines that are listed
MAX_UNPACKED = 8 << 30  # bytes that one packed file may become
MAX_RATIO = 200  # unpacked to packed bytes, beyond RATIO_FREE; that of text is 3 to 10
RATIO_FREE = 64 << 20

OnBadLine = Literal["skip", "fail"]

GZIP = b"\x1f\x8b"
XZ = b"\xfd7zXZ\x00"
ZSTD = b"\x28\xb5\x2f\xfd"
NOT_TEXT = {
    GZIP: "packed by gzip twice",
    b"PK\x03\x04": "a zip archive (as .docx and .xlsx are)",
    b"BZh": "packed by bzip2",
    XZ: "packed by xz twice",
    ZSTD: "packed by zstd twice",
    b"%PDF-": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\xd0\xcf\x11\xe0": "an old Office document",
}
BYTE_ORDER_MARKS = (  # the longer first: UTF-32's starts like UTF-16's
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
DISPLAY_NAMES = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16 (little-endian)",
    "utf-16-be": "UTF-16 (big-endian)",
    "utf-32-le": "UTF-32 (little-endian)",
    "utf-32-be": "UTF-32 (big-endian)",
    "cp949": "CP949 (EUC-KR)",
}
WIDE = re.compile(r"utf-(16|32)(-le|-be)?")  # encodings in which b"\n" does not end a line
HANGUL = re.compile("[\uac00-\ud7a3]")
ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, and why.

    `looks_like` is the likely encoding of an undecodable line, "" if that is unknown, and None if
    the encoding is not the problem.
    """

    file: str
    line: int
    why: str
    looks_like: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}"


def read_lines(path: str | Path, encoding: str = "utf-8") -> list[str]:
    """Return all lines of a file (`locate.find`); raise an error at a bad line."""
    lines = [*open_text(path, encoding=encoding)]  # all, as the file may be in another encoding
    bad = BadLines()
    for line in lines:
        if isinstance(line, BadLine):
            bad.add(line)
    bad.check("fail")
    return [str(line) for line in lines]


class BadLines:
    """Bad lines of files: their number, and the first of them."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[BadLine] = []

    def add(self, bad: BadLine) -> None:
        self.count += 1
        if self.count <= MAX_KEPT:
            self.first.append(bad)

    def check(self, on_bad_line: OnBadLine) -> None:
        """Raise an error at the first bad line if so configured."""
        if self.count and on_bad_line == "fail":
            raise DataError(f"{self.first[0]}. Correct or remove the line.", "bad_line")


def skipped_notices(
    bad: Sequence[object], kind: str = "line", n_shown: int = 3, count: int | None = None
) -> list[str]:
    """Return the message that bad lines were skipped, if there are any.

    count: of all of them, if `bad` are only the first.
    """
    if not bad:
        return []
    n_bad = len(bad) if count is None else count
    total = f"1 bad {kind}" if n_bad == 1 else f"{n_bad:,} bad {kind}s"
    more = f"; and {n_bad - n_shown:,} more" if n_bad > n_shown else ""
    return [f"{total} skipped: {'; '.join(map(str, bad[:n_shown]))}{more}"]


def excerpt(text: str, width: int = 40) -> str:
    """Return the start of a line, quoted and with unprintable characters escaped."""
    return repr(text[:width] + ("…" if len(text) > width else ""))


def open_text(path: str | Path, *, encoding: str = "utf-8") -> "TextLines":
    """Find a file (`locate.find`) and open it as lines; "-" is standard input."""
    place = find(path)
    if str(place) == "-":  # closed by the interpreter
        return TextLines(cast(io.BufferedIOBase, sys.stdin.buffer), "stdin", encoding)
    try:
        stream = place.open("rb")
    except IsADirectoryError:
        raise DataError(f"{place}: a directory; give a file", "not_a_file") from None
    except OSError as error:
        raise DataError(f"{place}: cannot be opened ({error.strerror})", "cannot_read") from None
    return TextLines(stream, str(place), encoding, close=stream.close)


class TextLines:
    """The lines of an open file, one at a time: a text, or why a line is bad.

    If most lines are in another encoding, the file is, and that is always an error, at the end:
    skipping them would leave a corpus of the lines that happen to be plain ASCII.
    """

    def __init__(
        self,
        stream: io.BufferedIOBase,
        name: str,
        encoding: str = "utf-8",
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self.notices = name, tuple[str, ...]()
        self.n_lines = 0  # so far
        self._lines = self._read(stream, encoding, close)
        next(self._lines)  # the first bytes say what the file is

    def __iter__(self) -> Iterator[str | BadLine]:
        return self._lines

    def _read(
        self, stream: io.BufferedIOBase, encoding: str, close: Callable[[], None]
    ) -> Iterator[str | BadLine]:
        """Yield once when the first bytes have been read, then every line."""
        try:
            chunks = unpacked(stream, self.name)
            head = next(chunks, b"")
            for magic, kind in NOT_TEXT.items():
                if head.startswith(magic):
                    raise DataError(
                        f"{self.name}: {kind}, not text; give a plain text file (it may be .gz, "
                        ".xz or .zst)",
                        "not_text",
                    )
            detected, skip, notice = recognise(head[: 1 << 14], canonical(encoding), self.name)
            self.notices = () if notice is None else (notice,)
            yield ""
            chunks = itertools.chain([head[skip:]], chunks)
            if WIDE.fullmatch(detected):
                chunks, detected = narrow(chunks, detected, self.name), "utf-8"
            yield from self._decoded(split(chunks), detected, encoding)
        finally:
            close()

    def _decoded(
        self, lines: Iterator[bytes | int], detected: str, encoding: str
    ) -> Iterator[str | BadLine]:
        first: BadLine | None = None
        misread: Counter[str] = Counter()
        n_written = 0  # lines that are not empty
        for raw in lines:
            self.n_lines += 1
            try:
                if isinstance(raw, int):
                    raise NotTextError(f"longer than {MAX_LINE:,} bytes ({raw:,})")
                line = decode(raw, detected)
                n_written += line != ""
                yield line
            except NotTextError as error:
                n_written += 1
                bad = BadLine(self.name, self.n_lines, str(error), error.looks_like)
                if error.looks_like is not None:
                    first = first or bad
                    misread[error.looks_like] += 1
                yield bad
        if first is not None and 2 * misread.total() > n_written:
            raise _wrong_encoding(first, misread, n_written, encoding)


def split(chunks: Iterator[bytes]) -> Iterator[bytes | int]:
    """Cut a stream at the byte 0x0A only; of an overlong line, yield the length instead."""
    start, dropped = b"", 0  # of the unfinished line: its bytes, and the number of dropped ones
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        start += first
        for other in others:
            start = start.removesuffix(b"\r")
            n_bytes = dropped + len(start)
            yield start if n_bytes <= MAX_LINE else n_bytes
            start, dropped = other, 0
        if len(start) > MAX_LINE + 1:  # one more may be a carriage return
            start, dropped = b"", dropped + len(start)
    if start or dropped:
        n_bytes = dropped + len(start)
        yield start if n_bytes <= MAX_LINE else n_bytes


def unpacked(stream: io.BufferedIOBase, name: str) -> Iterator[bytes]:
    """Yield the contents in chunks, unpacked if their first bytes are those of gzip, xz or zstd.

    The first chunk is long enough to recognize the format, also if a pipe delivers single bytes.
    """
    kind, damage = "gzip", [gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError]
    try:
        head = stream.read1(CHUNK)
        while len(head) < 8 and b"\n" not in head and (more := stream.read1(CHUNK)):
            head += more
        if not head.startswith((GZIP, XZ, ZSTD)):
            yield head
            while chunk := stream.read1(CHUNK):
                yield chunk
            return
        packed = CountingReader(head, stream)
        n_bytes = 0
        reader = io.BufferedReader(packed, CHUNK)
        unpack: Any = gzip.open
        if head.startswith(XZ):
            kind, unpack = "xz", lzma.open
        elif head.startswith(ZSTD):
            zstd = _zstd(name)
            kind, unpack = "zstd", zstd.open
            damage.append(zstd.ZstdError)
        with unpack(reader) as plain:
            while chunk := plain.read(CHUNK):
                n_bytes += len(chunk)
                _check_ratio(n_bytes, packed.n_bytes, name)
                yield chunk
    except tuple(damage) as error:
        message = f"{name}: damaged {kind} data ({error}); copy or download the file again"
        raise DataError(message, "damaged_gzip") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror})", "cannot_read") from None


def _zstd(name: str) -> Any:
    """Return the zstd module of Python 3.14, or its backport."""
    for package in ("compression", "backports"):
        with suppress(ImportError):
            return import_module(f"{package}.zstd")
    raise MissingError(
        f"{name}: packed by zstd, which needs backports.zstd: {install_command('tables')}. Or "
        "unpack it yourself: zstd -d FILE",
        "missing_package",
    )


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
    """Reject a packed file that unpacks to far more than text does."""
    if n_unpacked > MAX_UNPACKED:
        limit = f"{MAX_UNPACKED >> 30} GiB"
    elif n_unpacked > RATIO_FREE and n_unpacked > MAX_RATIO * n_packed:
        limit = f"{MAX_RATIO} times its size"
    else:
        return
    raise DataError(
        f"{name}: packed data that unpacks to more than {limit}, unlike text. If you trust it, "
        "unpack it yourself.",
        "gzip_bomb",
    )


def _wrong_encoding(
    first: BadLine, misread: Counter[str], n_lines: int, encoding: str
) -> DataError:
    """Return the error about a file of which most lines are in another encoding."""
    given = display_encoding(canonical(encoding))
    share = f"like {misread.total():,} of {n_lines:,} lines"
    for likely in ("cp949", "utf-8"):
        if 2 * misread[likely] > misread.total():
            return DataError(
                f"{first.file}:{first.line}: not {given} but {display_encoding(likely)}, "
                f"{share}; {remedy(likely)}",
                "wrong_encoding",
            )
    return DataError(
        f"{first}, {share}; name the file's encoding, for instance --encoding cp1252 "
        '(data.encoding = "cp1252"), or convert it to UTF-8',
        "wrong_encoding",
    )


class NotTextError(Exception):
    """A line that cannot be decoded; `looks_like` as in `BadLine`."""

    def __init__(self, why: str, looks_like: str | None = None) -> None:
        super().__init__(why)
        self.looks_like = looks_like


def canonical(encoding: str) -> str:
    """Return the canonical name of an encoding ("UTF8" → "utf-8")."""
    try:
        bytes(4).decode(encoding)  # four zeros are valid in every text encoding
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise ConfigError(
            f"encoding = {encoding!r}: unknown text encoding; common ones are utf-8, cp949, cp1252",
            "unknown_encoding",
        ) from None
    return "utf-8" if name == "utf-8-sig" else name


def display_encoding(encoding: str) -> str:
    """Return the name of an encoding in messages."""
    return DISPLAY_NAMES.get(encoding, encoding)


def recognise(head: bytes, given: str, name: str) -> tuple[str, int, str | None]:
    """Return the encoding by a file's first bytes, the length of its mark, and any message."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            expected = encoding == given or (encoding.startswith(given) and WIDE.fullmatch(given))
            notice = f"{name}: read as {display_encoding(encoding)}, by its byte order mark"
            return encoding, len(mark), None if expected else notice
    if given == "utf-8" and b"\0" in head and (wide := wide_without_mark(head)):
        raise DataError(
            f"{name}: {display_encoding(wide)} without byte order mark, not UTF-8; {remedy(wide)}",
            "wrong_encoding",
        )
    if given in ("utf-16", "utf-32") and head:
        raise DataError(
            f"{name}: no byte order mark; give the byte order with --encoding {given}-le or "
            f'{given}-be (data.encoding = "{given}-le")',
            "no_byte_order",
        )
    return given, 0, None


def wide_without_mark(head: bytes) -> str | None:
    """Detect UTF-16: nearly all spaces and line ends have a zero byte on the same side."""
    blanks = head.count(b" ") + head.count(b"\n")
    if not blanks:  # a single line of a single word: every other byte is zero
        even, odd = head[0::2], head[1::2]
        if odd and not any(odd) and all(even):
            return "utf-16-le"
        return "utf-16-be" if odd and not any(even) and all(odd) else None
    for encoding, pattern in (("utf-16-le", rb"[ \n]\0"), ("utf-16-be", rb"\0[ \n]")):
        fits = [m for m in re.finditer(pattern, head) if m.start() % 2 == 0]
        if len(fits) > 0.8 * blanks:
            return encoding
    return None


def remedy(encoding: str) -> str:
    """Return what the user can do about a file in this encoding."""
    read = f'read it with --encoding {encoding} (data.encoding = "{encoding}")'
    return read if encoding == "utf-8" else f"{read} or run iconv -f {encoding} -t utf-8"


def narrow(chunks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """Convert UTF-16 or UTF-32 to UTF-8; lone surrogates stay, and make only their own line bad."""
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: invalid {display_encoding(encoding)} ({error.reason}); the file is "
            "truncated, or in another encoding",
            "wrong_encoding",
        ) from None


def decode(raw: bytes, encoding: str) -> str:
    """Decode one line, or raise NotTextError with the reason."""
    try:
        line = raw.decode(encoding)
        if encoding != "utf-8":
            line.encode()  # some encodings have lone surrogates
    except UnicodeDecodeError as error:
        raise misread(raw, error.start, encoding) from None
    except UnicodeEncodeError as error:
        raise NotTextError(
            lone_surrogate(ord(error.object[error.start]), error.start + 1)
        ) from None
    except UnicodeError as error:
        raise NotTextError(f"not {display_encoding(encoding)} ({error})", looks_like="") from None
    if "\0" in line:
        raise NotTextError(f"a NUL character at column {line.index(chr(0)) + 1}")
    return line


def misread(raw: bytes, start: int, encoding: str) -> NotTextError:
    """Return the error that names the invalid byte and the likely encoding."""
    column = len(raw[:start].decode(encoding, "replace")) + 1
    if encoding == "utf-8" and (match := ENCODED_SURROGATE.match(raw, start)):
        code = ord(match[0].decode("utf-8", "surrogatepass"))
        return NotTextError(lone_surrogate(code, column))
    why = f"not {display_encoding(encoding)} (byte 0x{raw[start]:02X} at column {column})"
    if encoding == "utf-8":
        likely = "cp949" if is_korean(raw) else ""
    else:
        likely = "" if decoded(raw, "utf-8") is None else "utf-8"
    return NotTextError(
        f"{why}; it looks like {display_encoding(likely)}" if likely else why, likely
    )


def lone_surrogate(code: int, column: int) -> str:
    """Return the reason for a lone surrogate."""
    return f"half a character (the lone surrogate U+{code:04X}) at column {column}"


def decoded(raw: bytes, encoding: str) -> str | None:
    """Return the text of these bytes, or None if they are not in this encoding."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        return None


def is_korean(raw: bytes) -> bool:
    """Return whether these bytes, decoded as CP949, are mainly Hangul besides ASCII."""
    # Western text in Latin-1 nearly always fails to decode, or gives Chinese characters.
    line = decoded(raw, "cp949") or ""
    foreign = sum(not character.isascii() for character in line)
    return foreign > 0 and len(HANGUL.findall(line)) > 0.7 * foreign
