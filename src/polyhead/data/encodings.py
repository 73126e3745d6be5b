"""What the bytes of a text file mean: UTF-8, or something that must be named.

Nothing is guessed silently. A byte order mark settles the question, so it is obeyed. Everything
else is read in the encoding that was asked for (UTF-8 by default), and what does not fit is a bad
line whose reason says which byte, where, and what it looks like instead. Korean files from Windows
are often CP949, the superset of EUC-KR. To guess that from the bytes is right nearly always, and
wrong just where nobody looks; so it is proposed and not done.
"""

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from polyhead.errors import ConfigError, DataError

BYTE_ORDER_MARKS = (  # the longer first: UTF-32's begins like UTF-16's
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
SPOKEN = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16 (little-endian)",
    "utf-16-be": "UTF-16 (big-endian)",
    "utf-32-le": "UTF-32 (little-endian)",
    "utf-32-be": "UTF-32 (big-endian)",
    "cp949": "CP949 (EUC-KR)",
}
WIDE = re.compile(r"utf-(16|32)(-le|-be)?")  # encodings in which b"\n" is not a line's end
HANGUL = re.compile("[\uac00-\ud7a3]")
ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


class Recognised(NamedTuple):
    """How to read a file: the encoding, how many bytes its mark has, what to tell the user."""

    encoding: str
    skip: int
    notice: str | None


class NotTextError(Exception):
    """One line that cannot be read; `looks_like` is the encoding it seems to be in ("": unknown).

    It is None if the encoding is not what is wrong with the line.
    """

    def __init__(self, why: str, looks_like: str | None = None) -> None:
        super().__init__(why)
        self.looks_like = looks_like


def canonical(encoding: str) -> str:
    """The one name of an encoding ("UTF8" → "utf-8"); an error if there is none of that name."""
    try:
        bytes(4).decode(encoding)  # four zeros are text in every encoding that is one for files
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise ConfigError(
            f"encoding = {encoding!r}: no such text encoding; usual ones are utf-8, cp949, cp1252"
        ) from None
    return "utf-8" if name == "utf-8-sig" else name


def spoken(encoding: str) -> str:
    """The name of an encoding as people write it."""
    return SPOKEN.get(encoding, encoding)


def recognise(head: bytes, given: str, name: str) -> Recognised:
    """Decide by the first bytes of the file `name`, of which the user said it is in `given`."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            expected = encoding == given or (encoding.startswith(given) and WIDE.fullmatch(given))
            notice = f"{name} is {spoken(encoding)} by its byte order mark, and was read as that"
            return Recognised(encoding, len(mark), None if expected else notice)
    if given == "utf-8" and (wide := wide_without_mark(head)):
        raise DataError(
            f"{name}: {spoken(wide)} without a byte order mark, not UTF-8; {way_out(wide)}"
        )
    if given in ("utf-16", "utf-32") and head:
        raise DataError(
            f"{name}: no byte order mark; say its order with --encoding {given}-le or {given}-be "
            f'(data.encoding = "{given}-le")'
        )
    return Recognised(given, 0, None)


def wide_without_mark(head: bytes) -> str | None:
    """UTF-16 shows by its spaces and line ends: each has a zero byte on the same side.

    A zero byte that strayed into other text does not sit beside nearly all of them.
    """
    if b"\0" not in head:
        return None
    blanks = sum(head.count(blank) for blank in (b" ", b"\n"))
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


def way_out(encoding: str) -> str:
    """What the user can do about a file in this encoding."""
    read = f'read it with --encoding {encoding} (data.encoding = "{encoding}")'
    return read if encoding == "utf-8" else f"{read} or run iconv -f {encoding} -t utf-8"


def narrow(chunks: Iterator[bytes], encoding: str, name: str) -> Iterator[bytes]:
    """Turn UTF-16 and UTF-32 into UTF-8, in which a line's end is one byte; leave others alone.

    A surrogate without its partner is handed on as it is: it spoils its own line and no other.
    """
    if not WIDE.fullmatch(encoding):
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: not {spoken(encoding)} to its end ({error.reason}); "
            "the file is cut off, or in another encoding"
        ) from None


def decode(raw: bytes, encoding: str) -> str:
    """One line as text, or NotTextError with the reason."""
    try:
        line = raw.decode(encoding)
        if encoding != "utf-8":
            line.encode()  # some encodings can spell a lone surrogate
    except UnicodeDecodeError as error:
        raise misread(raw, error.start, encoding) from None
    except UnicodeEncodeError as error:
        raise NotTextError(
            lone_surrogate(ord(error.object[error.start]), error.start + 1)
        ) from None
    except UnicodeError as error:
        raise NotTextError(f"not {spoken(encoding)} ({error})", looks_like="") from None
    if "\0" in line:
        raise NotTextError(f"a NUL character at column {line.index(chr(0)) + 1}")
    return line


def misread(raw: bytes, start: int, encoding: str) -> NotTextError:
    """Say which byte did not fit, and what the line would be in the likely other encoding."""
    column = len(raw[:start].decode(encoding, "replace")) + 1
    if encoding == "utf-8" and (match := ENCODED_SURROGATE.match(raw, start)):
        code = ord(match[0].decode("utf-8", "surrogatepass"))
        return NotTextError(lone_surrogate(code, column))
    why = f"not {spoken(encoding)} (byte 0x{raw[start]:02X} at column {column})"
    other = "cp949" if encoding == "utf-8" and is_korean(raw) else ""
    if encoding != "utf-8" and is_utf8(raw):
        other = "utf-8"
    return NotTextError(why + (f"; it looks like {spoken(other)}" if other else ""), other)


def lone_surrogate(code: int, column: int) -> str:
    """The reason for half a character."""
    return f"half a character (the lone surrogate U+{code:04X}) at column {column}"


def is_utf8(raw: bytes) -> bool:
    """Whether these bytes are UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_korean(raw: bytes) -> bool:
    """Whether these bytes, read as CP949, are mainly Hangul as far as they are not ASCII.

    Western text in Latin-1 nearly always fails to decode (an umlaut before a plain letter), or
    gives Chinese characters.
    """
    try:
        line = raw.decode("cp949")
    except UnicodeDecodeError:
        return False
    foreign = sum(1 for character in line if not character.isascii())
    return foreign > 0 and len(HANGUL.findall(line)) > 0.7 * foreign
