"""Encodings of text files: UTF-8, or another one that must be named.

A byte order mark decides, else the given encoding; a bad line names its first bad byte and the
encoding it looks like, often CP949. Since errors would go unnoticed, that one is only suggested.
"""

import codecs
import re
from collections.abc import Iterator

from polyhead.errors import ConfigError, DataError

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


class NotTextError(Exception):
    """A line that cannot be decoded; `looks_like` as in `text_files.BadLine`."""

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
