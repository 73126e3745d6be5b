"""Files that hold both sides of a pair in one record: tab-separated columns, or JSON.

    guten Tag<TAB>good day                              .tsv, further columns are ignored
    {"source": "guten Tag", "target": "good day"}       .jsonl: one object a line; .json: or a list
    {"translation": {"de": "guten Tag", "en": "good day"}}      … with the keys "de" and "en"

Columns are divided by tabs and nothing else: there is no quoting, a quotation mark is a quotation
mark. A key names a column by its header in the first line, or by its number from 1.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from polyhead.data.text_files import BadLine, TextFile
from polyhead.errors import ConfigError, DataError


class Record(NamedTuple):
    """A line of a corpus: a pair, or the reason why it is not usable."""

    line: int
    source: str
    target: str
    bad: BadLine | None = None


class Keys(NamedTuple):
    """Names of source and target; None stands for the defaults of the format."""

    source: str | None
    target: str | None


def records_of(text: TextFile, keys: Keys) -> Iterator[Record]:
    """Return the records of a file, in the format given by its ending."""
    name = text.name.lower().removesuffix(".gz")
    for ending, reader in READERS.items():
        if name.endswith(ending):
            return reader(text, keys)
    known = ", ".join(READERS)
    message = f"{text.name}: unknown format; a file of pairs ends with {known} (or .gz)"
    raise DataError(message, "unknown_format")


def from_columns(text: TextFile, keys: Keys) -> Iterator[Record]:
    """Yield the records of tab-separated columns."""
    first = text.lines[0].split("\t") if text.lines else []
    has_header = (
        keys == Keys(None, None) and [cell.strip().lower() for cell in first[:2]] in HEADERS
    )
    places = (
        [0, 1] if has_header else [place_of(k, n, first, text.name) for n, k in enumerate(keys)]
    )
    has_header = has_header or any(key is not None and not key.isdecimal() for key in keys)
    wrong = {bad.line: bad for bad in text.bad}
    for line, content in enumerate(text.lines[has_header:], start=1 + has_header):
        cells = content.split("\t")
        bad = wrong.get(line)
        if bad is None and content.strip() and len(cells) <= max(places):
            n_cells = f"{len(cells)} column" + "s" * (len(cells) > 1)
            why = f"{n_cells} where {max(places) + 1} were expected; tabs divide them"
            bad = BadLine(text.name, line, why)
        cells += [""] * (max(places) + 1 - len(cells))
        yield Record(line, cells[places[0]], cells[places[1]], bad)


def place_of(key: str | None, usual: int, header: list[str], name: str) -> int:
    """Return the column of a key, counted from 0."""
    if key is None:
        return usual
    if key.isdecimal():
        if int(key) < 1:
            raise ConfigError(f"column {key}: columns are counted from 1", "invalid_column")
        return int(key) - 1
    if key not in header:
        message = f"{name}: no column {key!r} in the header; it has {_shorten(header)}"
        raise DataError(message, "unknown_column")
    return header.index(key)


def from_objects(text: TextFile, keys: Keys) -> Iterator[Record]:
    """Yield the records of JSON lines."""
    wrong = {bad.line: bad for bad in text.bad}
    for line, content in enumerate(text.lines, start=1):
        bad = wrong.get(line)
        if bad is not None or not content.strip():
            yield Record(line, "", "", bad)
            continue
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            yield Record(line, "", "", BadLine(text.name, line, f"not JSON ({_reason(error)})"))
            continue
        yield from_value(value, keys, text.name, line)


def from_list(text: TextFile, keys: Keys) -> Iterator[Record]:
    """Yield the records of a JSON list, whose items count as lines, or of JSON lines."""
    first = next((line for line in text.lines if line.strip()), "")
    if not first.lstrip().startswith("["):
        yield from from_objects(text, keys)
        return
    if text.bad:
        raise DataError(f"{text.bad[0]}; a JSON list with a bad line cannot be read", "bad_line")
    try:
        values = json.loads("\n".join(text.lines))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{text.name}: not JSON ({_reason(error)})", "not_json") from None
    for number, value in enumerate(values, start=1):
        yield from_value(value, keys, text.name, number)


def from_value(value: Any, keys: Keys, name: str, line: int) -> Record:
    """Return the pair of one JSON object."""
    try:
        source = sentence(value, keys.source or "source")
        target = sentence(value, keys.target or "target")
    except ValueError as error:
        return Record(line, "", "", BadLine(name, line, str(error)))
    return Record(line, source, target)


def sentence(value: Any, key: str) -> str:
    """Return the text of a key, also below "translation"; ValueError gives the problem.

    A line break within it becomes a space, because a sentence is one line everywhere else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, not {type(value).__name__}")
    inner = value.get("translation")
    where = inner if key not in value and isinstance(inner, dict) else value
    if key not in where:
        raise ValueError(f"no {key!r}; name the keys, it has {_shorten(list(where))}")
    text = where[key]
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


def _shorten(names: list[str]) -> str:
    """List the first few of many names."""
    return ", ".join(map(repr, names[:8])) + (" …" if len(names) > 8 else "")


HEADERS = (["source", "target"], ["src", "tgt"], ["src", "trg"])
READERS: dict[str, Callable[[TextFile, Keys], Iterator[Record]]] = {
    ".tsv": from_columns,
    ".jsonl": from_objects,
    ".json": from_list,
}
