"""Tables: files whose records have columns, in any of the common formats.

    .csv .tsv .txt    columns divided by tab, comma, semicolon or |; quoted as in RFC 4180
    .jsonl .json      one object per line, or a list of objects; "translation" may hold an object
    .xlsx .parquet    extra `tables`
    .tmx              translation memories, one column per language

The format is recognized by the contents, so that `ratings_train.txt` is a table. All but .xlsx
and .parquet may be packed by gzip, xz or zstd. Tabs divide columns without any quoting, unless the
quotes in the file can only be quoting.
"""

import csv
import itertools
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from polyhead.data.locate import find
from polyhead.data.text_files import BadLine, TextFile, read_text
from polyhead.errors import DataError, MissingError, install_command

DELIMITERS = "\t,;|"
SAMPLE = 200  # lines that decide on delimiter and quoting
MAX_CELL = 1_000_000  # characters
MAX_UNPACKED = 4 << 30  # bytes of an .xlsx file
MAX_RATIO = 200


class NotText(NamedTuple):
    """A cell that holds no text, and why."""

    why: str


Cell = str | NotText


class Row(NamedTuple):
    """A record: its line (or number), its cells, and why it cannot be used."""

    line: int
    cells: Sequence[Cell]
    bad: BadLine | None = None


@dataclass(frozen=True)
class Table:
    """The records of a file. `columns` are names; without a header they are unknown (None)."""

    name: str
    columns: tuple[str, ...] | None
    rows: list[Row]
    notices: tuple[str, ...] = ()


def read_table(path: str | Path, *, encoding: str = "utf-8") -> Table:
    """Find a file (`locate.find`) and read its records in any format; "-" is standard input."""
    place = find(path)
    if place.is_file():
        with place.open("rb") as stream:
            head = stream.read(4)
        if head == b"PK\x03\x04":
            return _from_xlsx(place)
        if head == b"PAR1":
            return _from_parquet(place)
    text = read_text(place, encoding=encoding)
    if not text.lines:
        raise DataError(f"{text.name} is empty", "no_text")
    first = next((line.lstrip() for line in text.lines if line.strip()), "")
    if first.startswith("["):
        return _from_json_list(text)
    if first.startswith("{"):
        return _from_json_lines(text)
    if first.startswith("<") and "<tmx" in "".join(text.lines[:20]):
        return _from_tmx(text)
    return _from_delimited(text)


def _from_delimited(text: TextFile) -> Table:
    """Read columns divided by a delimiter; the header, if any, is the first row."""
    delimiter, quoted = _dialect(text)
    bad = {line.line: line for line in text.bad}
    if not quoted:
        rows = [
            Row(number, line.split(delimiter), bad.get(number))
            for number, line in enumerate(text.lines, start=1)
        ]
        return Table(text.name, None, rows, text.notices)
    rows, start = [], 1
    csv.field_size_limit(MAX_CELL)
    reader = csv.reader((f"{line}\n" for line in text.lines), delimiter=delimiter, strict=True)
    while True:
        cells: list[str] = []
        problem: BadLine | None = None
        try:
            cells = next(reader)
        except StopIteration:
            return Table(text.name, None, rows, text.notices)
        except csv.Error as error:
            problem = BadLine(text.name, start, f"not valid CSV ({error})")
        covered = range(start, reader.line_num + 1)
        problem = problem or next((bad[line] for line in covered if line in bad), None)
        rows.append(Row(start, [_one_line(cell) for cell in cells], problem))
        start = reader.line_num + 1


def _dialect(text: TextFile) -> tuple[str, bool]:
    """Return the delimiter, and whether cells may be quoted."""
    lines = [line for line in itertools.islice(text.lines, SAMPLE) if line.strip()]
    csv.field_size_limit(2 * SAMPLE * MAX_CELL)  # not reached, whatever the quoting
    best, best_share = "", 0.8
    for delimiter in DELIMITERS:
        quoted = delimiter != "\t" or _is_quoted(lines)
        if quoted:
            reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter)
            widths = Counter(len(cells) for cells in reader if cells)
        else:
            widths = Counter(line.count(delimiter) + 1 for line in lines)
        if not widths:
            break
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
        if delimiter == "\t" and width > 1:
            return delimiter, quoted
        if width > 1 and count / widths.total() > best_share:
            best, best_share = delimiter, count / widths.total()
    if best:
        return best, True
    if ".tsv" in Path(text.name.lower()).suffixes:
        return "\t", False
    raise DataError(
        f"{text.name}: no columns found; expected columns divided by tabs, commas, semicolons "
        "or |, JSON lines, TMX, .xlsx or .parquet",
        "unknown_format",
    )


def _is_quoted(lines: Sequence[str]) -> bool:
    """Return True if quotes at the edges of tab-separated cells can only be quoting."""
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    are_quoted = all(re.fullmatch(r'"[^"]*(""[^"]*)*"', cell) for cell in cells)
    return are_quoted and any('""' in cell[1:-1] for cell in cells)


def _from_json_lines(text: TextFile) -> Table:
    bad = {line.line: line for line in text.bad}
    records: list[tuple[int, Any, BadLine | None]] = []
    for number, line in enumerate(text.lines, start=1):
        value, problem = {}, bad.get(number)
        if problem is None and line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = BadLine(text.name, number, f"not JSON ({_json_reason(error)})")
        records.append((number, value, problem))
    return _from_objects(text, records)


def _from_json_list(text: TextFile) -> Table:
    if text.bad:
        raise DataError(f"{text.bad[0]}; a JSON list with a bad line cannot be read", "bad_line")
    try:
        values = json.loads("\n".join(text.lines))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{text.name}: not JSON ({_json_reason(error)})", "not_json") from None
    return _from_objects(text, [(n, value, None) for n, value in enumerate(values, start=1)])


def _from_objects(text: TextFile, records: Iterable[tuple[int, Any, BadLine | None]]) -> Table:
    """Return JSON objects as a table whose columns are all keys, in order of appearance."""
    flat: list[tuple[int, dict[str, Any], BadLine | None]] = []
    columns: dict[str, None] = {}
    for line, value, problem in records:
        if problem is None and not isinstance(value, dict):
            kind = type(value).__name__
            problem = BadLine(text.name, line, f"a JSON object was expected, not {kind}")
        fields = dict(value) if problem is None else {}
        if isinstance(fields.get("translation"), dict):
            fields |= fields.pop("translation")
        columns |= dict.fromkeys(fields)
        flat.append((line, fields, problem))
    rows = [
        Row(line, [_json_cell(fields, key) for key in columns] if fields else [], problem)
        for line, fields, problem in flat
    ]
    return Table(text.name, tuple(columns), rows, text.notices)


def _json_cell(fields: dict[str, Any], key: str) -> Cell:
    """Return a value as text; numbers are written out."""
    if key not in fields:
        return NotText(f"no {key!r}; it has {shorten(list(fields))}")
    value = fields[key]
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        return NotText(f"{key!r} is not text but {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(error.object[error.start]):04X}"
        return NotText(f"{key!r} holds half a character (the lone surrogate {half})")
    return NotText(f"{key!r} holds a NUL character") if "\0" in value else _one_line(value)


def _json_reason(error: Exception) -> str:
    """Return why JSON is invalid, without quoting the file."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at column {error.colno}"
    is_nested = isinstance(error, RecursionError)
    return "nested too deeply" if is_nested else "a number with too many digits"


def _from_tmx(text: TextFile) -> Table:
    """Read a translation memory; entities of its own are not expanded."""
    units: list[dict[str, str]] = []
    language, segment = "", list[str]()

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal language
        if tag == "tu":
            units.append({})
        elif tag == "tuv":
            language = attributes.get("xml:lang", attributes.get("lang", ""))
            language = language.lower().replace("_", "-").split("-")[0]
        elif tag == "seg":
            segment.clear()

    def end(tag: str) -> None:
        if tag == "seg" and units:
            units[-1].setdefault(language, _one_line("".join(segment).strip()))

    def reject_entity(name: str, *_: object) -> None:
        raise DataError(f"{text.name}: declares the entity {name!r}; remove it", "xml_entity")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = segment.append, reject_entity
    try:
        parser.Parse("\n".join(text.lines).encode(), True)
    except expat.ExpatError as error:
        raise DataError(f"{text.name}: not valid TMX ({error})", "not_xml") from None
    columns = tuple(dict.fromkeys(name for unit in units for name in unit))
    rows = [Row(n, [unit.get(c, "") for c in columns]) for n, unit in enumerate(units, start=1)]
    return Table(text.name, columns, rows, text.notices)


def _from_xlsx(path: Path) -> Table:
    """Read the first sheet with two columns; formulas and macros are not evaluated."""
    name = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            n_bytes = sum(item.file_size for item in archive.infolist())
            is_sheet = "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{name}: damaged ({error}); copy it again", "damaged_xlsx") from None
    if not is_sheet:
        raise DataError(f"{name}: a zip archive, not .xlsx; unpack it first", "not_text")
    if n_bytes > min(MAX_UNPACKED, MAX_RATIO * max(path.stat().st_size, 1 << 20)):
        raise DataError(f"{name}: unpacks to {n_bytes:,} bytes, too many", "too_large")
    try:
        import python_calamine
    except ImportError:
        message = f"reading .xlsx needs python-calamine: {install_command('tables')}"
        raise MissingError(message, "missing_package") from None
    try:
        book = python_calamine.CalamineWorkbook.from_path(str(path))
        sheets = (book.get_sheet_by_name(sheet) for sheet in book.sheet_names)
        tables = (sheet.to_python() for sheet in sheets)
        rows: list[Any] = next((rows for rows in tables if rows and len(rows[0]) > 1), [])
    except Exception as error:  # a class per kind of damage
        raise DataError(f"{name}: cannot be read ({error})", "damaged_xlsx") from None
    return Table(name, None, [Row(n, [*map(_value, row)]) for n, row in enumerate(rows, start=1)])


def _from_parquet(path: Path) -> Table:
    name = str(path)
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        message = f"reading .parquet needs pyarrow: {install_command('tables')}"
        raise MissingError(message, "missing_package") from None
    try:
        table = parquet.ParquetFile(path).read()
        if "translation" in table.column_names:
            table = table.flatten()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{name}: cannot be read ({error})", "damaged_parquet") from None
    columns = tuple(column.removeprefix("translation.") for column in table.column_names)
    records = zip(*(column.to_pylist() for column in table.columns), strict=True)
    rows = [Row(n, [*map(_value, record)]) for n, record in enumerate(records, start=1)]
    return Table(name, columns, rows)


def _value(value: object) -> Cell:
    """Return a cell of a spreadsheet as text."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, dict | list | bytes):
        return NotText(f"not text but {type(value).__name__}")
    return _one_line(str(value))


def _one_line(text: str) -> str:
    """Replace line breaks by spaces: a sentence is one line everywhere else."""
    return text.replace("\r\n", " ").replace("\n", " ")


def shorten(names: Sequence[str]) -> str:
    """List the first few of many names."""
    return ", ".join(map(repr, names[:8])) + (" …" if len(names) > 8 else "")
