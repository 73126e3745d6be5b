"""Tables of two columns in one file: sentence pairs, or texts with labels.

    guten Tag<TAB>good day                              .tsv, further columns are ignored
    {"source": "guten Tag", "target": "good day"}       .jsonl: one object a line; .json: or a list
    {"translation": {"de": "guten Tag", "en": "good day"}}      … with the keys "de" and "en"

Columns are divided by tabs and nothing else: there is no quoting, a quotation mark is a quotation
mark. A key names a column by its header in the first line, or by its number from 1.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from polyhead.data.text_files import BadLine, TextFile
from polyhead.errors import ConfigError, DataError

PAIR = ("source", "target")
LABELLED = ("text", "label")
PAIR_HEADERS = (["source", "target"], ["src", "tgt"], ["src", "trg"])


class Columns(NamedTuple):
    """The two columns of a table: their usual names, and configured keys (None: by default)."""

    names: tuple[str, str]
    keys: tuple[str | None, str | None] = (None, None)


class Record(NamedTuple):
    """A line of a table: its two cells, or the reason why it is not usable."""

    line: int
    first: str
    second: str
    bad: BadLine | None = None


def records_of(text: TextFile, columns: Columns) -> Iterator[Record]:
    """Return the records of a file, in the format given by its ending."""
    name = text.name.lower().removesuffix(".gz")
    for ending, reader in READERS.items():
        if name.endswith(ending):
            return reader(text, columns)
    known = ", ".join(READERS)
    message = f"{text.name}: unknown format; a table ends with {known} (or .gz)"
    raise DataError(message, "unknown_format")


def from_lines(text: TextFile, columns: Columns) -> Iterator[Record]:
    """Yield the records of tab-separated columns."""
    header = text.lines[0].split("\t") if text.lines else []
    keys = _keys_by_header(columns, header)
    first, second = (place_of(key, n, header, text.name) for n, key in enumerate(keys))
    width = max(first, second) + 1
    has_header = any(key is not None and not key.isdecimal() for key in keys)
    wrong = {bad.line: bad for bad in text.bad}
    for line, content in enumerate(text.lines[has_header:], start=1 + has_header):
        cells = content.split("\t")
        bad = wrong.get(line)
        if bad is None and content.strip() and len(cells) < width:
            n_cells = f"{len(cells)} column" + "s" * (len(cells) > 1)
            bad = BadLine(
                text.name, line, f"{n_cells} where {width} were expected; tabs divide them"
            )
        cells += [""] * (width - len(cells))
        yield Record(line, cells[first], cells[second], bad)


def _keys_by_header(columns: Columns, header: list[str]) -> list[str | None]:
    """Return the keys, with usual names where none is configured and the first line has them.

    The header of pairs must be the two first cells; "text" and "label" may be anywhere.
    """
    keys = list(columns.keys)
    if columns.names == PAIR:
        is_usual = [cell.strip().lower() for cell in header[:2]] in PAIR_HEADERS
        return [*header[:2]] if is_usual and keys == [None, None] else keys
    for n, name in enumerate(columns.names):
        has_number = any(key is not None and key.isdecimal() for key in keys[:n])
        if keys[n] is None and name in header and not has_number:
            keys[n] = name
    return keys


def place_of(key: str | None, usual: int, header: list[str], name: str) -> int:
    """Return the column of a key, counted from 0."""
    if key is None:
        return usual
    if key.isdecimal():
        if int(key) < 1:
            raise ConfigError(f"column {key}: columns are counted from 1", "invalid_column")
        return int(key) - 1
    if key not in header:
        message = f"{name}: no column {key!r} in the header; it has {shorten(header)}"
        raise DataError(message, "unknown_column")
    return header.index(key)


def from_objects(text: TextFile, columns: Columns) -> Iterator[Record]:
    """Yield the records of JSON lines."""
    wrong = {bad.line: bad for bad in text.bad}
    for line, content in enumerate(text.lines, start=1):
        if line in wrong or not content.strip():
            yield Record(line, "", "", wrong.get(line))
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            yield Record(line, "", "", BadLine(text.name, line, f"not JSON ({_reason(error)})"))
            continue
        yield from_value(value, columns, text.name, line)


def from_list(text: TextFile, columns: Columns) -> Iterator[Record]:
    """Yield the records of a JSON list, whose items count as lines, or of JSON lines."""
    first = next((line for line in text.lines if line.strip()), "")
    if not first.lstrip().startswith("["):
        yield from from_objects(text, columns)
        return
    if text.bad:
        raise DataError(f"{text.bad[0]}; a JSON list with a bad line cannot be read", "bad_line")
    try:
        values = json.loads("\n".join(text.lines))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{text.name}: not JSON ({_reason(error)})", "not_json") from None
    for number, value in enumerate(values, start=1):
        yield from_value(value, columns, text.name, number)


def from_value(value: Any, columns: Columns, name: str, line: int) -> Record:
    """Return the record of one JSON object."""
    try:
        first, second = (
            cell_of(value, key or usual, is_label=usual == LABELLED[1])
            for key, usual in zip(columns.keys, columns.names, strict=True)
        )
    except ValueError as error:
        return Record(line, "", "", BadLine(name, line, str(error)))
    return Record(line, first, second)


def cell_of(value: Any, key: str, *, is_label: bool) -> str:
    """Return the text of a key, also below "translation"; ValueError gives the problem.

    A line break within it becomes a space, because a sentence is one line everywhere else. A label
    may be a whole number.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, not {type(value).__name__}")
    inner = value.get("translation")
    where = inner if key not in value and isinstance(inner, dict) else value
    if key not in where:
        raise ValueError(f"no {key!r}; name the keys, it has {shorten(list(where))}")
    text = str(where[key]) if is_label and isinstance(where[key], int) else where[key]
    if not isinstance(text, str):
        raise ValueError(f"{key!r} is not text but {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        raise ValueError(f"{key!r} holds half a character (the lone surrogate {half})") from None
    if "\0" in text:
        raise ValueError(f"{key!r} holds a NUL character")
    return text.replace("\r\n", " ").replace("\n", " ")


def _reason(error: Exception) -> str:
    """Return why JSON is invalid, without quoting the file."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at column {error.colno}"
    is_nested = isinstance(error, RecursionError)
    return "nested too deeply" if is_nested else "a number with too many digits"


def shorten(names: Sequence[str]) -> str:
    """List the first few of many names."""
    return ", ".join(map(repr, names[:8])) + (" …" if len(names) > 8 else "")


READERS: dict[str, Callable[[TextFile, Columns], Iterator[Record]]] = {
    ".tsv": from_lines,
    ".jsonl": from_objects,
    ".json": from_list,
}
