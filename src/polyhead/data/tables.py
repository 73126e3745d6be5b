"""Tables: files whose records have columns, in any of the common formats.

    .csv .tsv .txt    columns divided by tab, comma, semicolon or |; quoted as in RFC 4180
    .jsonl .json      one object per line, or a list of objects; "translation" may hold an object
    .xlsx             extra `tables`
    .parquet .arrow   extra `tables`; numbers of classes are replaced by their names
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
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from polyhead.data.locate import find
from polyhead.data.text_files import MAX_RATIO, RATIO_FREE, BadLine, TextLines, excerpt, open_text
from polyhead.errors import DataError, MissingError, install_command
from polyhead.sandbox import Limits, Sandbox

DELIMITERS = "\t,;|"
SAMPLE_LINES = 200  # that decide on delimiter and quoting
SAMPLE = 2_000  # rows that decide on columns
MAX_CELL = 1_000_000  # characters
KINDS = {  # of files that `table_decoder` reads, by their first bytes
    b"PK\x03\x04": "xlsx", b"PAR1": "parquet", b"ARRO": "arrow", b"\xff\xff\xff\xff": "arrow",
}  # fmt: skip
PACKAGES = {"xlsx": "python-calamine", "parquet": "pyarrow", "arrow": "pyarrow"}
LIMITS = Limits(350, 4, more_megabytes=16, more_seconds=2)  # of a request, and by the file's size


class NotText(NamedTuple):
    """A cell that holds no text, and why; `value` is the list or object that it holds."""

    why: str
    value: object = None


Cell = str | NotText
Lines = Iterator[str | BadLine]
JsonRecord = tuple[int, Any, BadLine | None]


class Row(NamedTuple):
    """A record: its line (or number), its cells, and why it cannot be used."""

    line: int
    cells: Sequence[Cell]
    bad: BadLine | None = None


@dataclass(frozen=True)
class Table:
    """The records of a file: `sample` are the first, `rest` the others, which can be read once.

    columns: names; without a header they are unknown (None).
    """

    name: str
    columns: tuple[str, ...] | None
    sample: Sequence[Row]
    rest: Iterator[Row]
    notices: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        columns: tuple[str, ...] | None,
        rows: Iterable[Row],
        notices: tuple[str, ...] = (),
    ) -> "Table":
        """Read the first records."""
        rest = iter(rows)
        return cls(name, columns, list(itertools.islice(rest, SAMPLE)), rest, notices)

    def with_header(self) -> "Table":
        """Take the cells of the first record as names of the columns, unless they have names."""
        if self.columns is not None or not self.sample:
            return self
        names = tuple(str(cell).strip() for cell in self.sample[0].cells)
        return replace(self, columns=names, sample=self.sample[1:])

    @contextmanager
    def errors_of_the_whole_first(self) -> Iterator[None]:
        """Read all records before an error about some, as the whole file may be unreadable."""
        try:
            yield
        except DataError:
            deque(self.rest, maxlen=0)
            raise


def open_table(path: str | Path, *, encoding: str = "utf-8") -> Table:
    """Find a file (`locate.find`) and read its records in any format; "-" is standard input.

    Only .json lists and .tmx files are read into memory. A child process reads Arrow, Parquet and
    XLSX (`table_decoder`).
    """
    place = find(path)
    if kind := decoded_kind(place):
        return _decoded(place, kind)
    text = open_text(place, encoding=encoding)
    lines = iter(text)
    head: list[str | BadLine] = []
    first = ""
    while (len(head) < SAMPLE_LINES or not first) and (line := next(lines, None)) is not None:
        head.append(line)
        first = first or (line.lstrip() if isinstance(line, str) else "")
    if not head:
        raise DataError(f"{text.name} is empty", "no_text")
    start = [line if isinstance(line, str) else "" for line in head[:SAMPLE_LINES]]
    lines = itertools.chain(head, lines)
    if first.startswith("["):
        return _from_json_list(text, lines)
    if first.startswith("{"):
        return _from_objects(text, _json_lines(text.name, lines))
    if first.startswith("<") and "<tmx" in "".join(start[:20]):
        return _from_tmx(text, lines)
    try:
        delimiter, quoted = _dialect(text.name, start)
    except DataError:
        deque(lines, maxlen=0)  # most lines may be in another encoding, which is another error
        raise
    rows = _quoted_rows if quoted else _plain_rows
    return Table.of(text.name, None, rows(text.name, lines, delimiter), text.notices)


def decoded_kind(path: Path) -> str:
    """Return the kind of a file that `table_decoder` reads; "" for text and standard input."""
    if not path.is_file():
        return ""
    try:
        with path.open("rb") as stream:
            return KINDS.get(stream.read(4), "")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror})", "cannot_read") from None


def _plain_rows(_name: str, lines: Lines, delimiter: str) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if isinstance(line, BadLine):
            yield Row(number, [""], line)
        else:
            yield Row(number, line.split(delimiter))


def _quoted_rows(name: str, lines: Lines, delimiter: str) -> Iterator[Row]:
    bad: list[BadLine] = []  # of the present record

    def texts() -> Iterator[str]:
        for line in lines:
            if isinstance(line, BadLine):
                bad.append(line)
            yield "\n" if isinstance(line, BadLine) else _csv_line(line)

    start = 1
    reader = csv.reader(texts(), delimiter=delimiter, strict=True)
    while True:
        cells: list[str] = []
        problem: BadLine | None = None
        csv.field_size_limit(MAX_CELL)  # of all readers
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = BadLine(name, start, f"not valid CSV ({error})")
        problem = problem or next(iter(bad), None)
        bad.clear()
        yield Row(start, [_one_line(cell) for cell in cells], problem)
        start = reader.line_num + 1


def _dialect(name: str, lines: Sequence[str]) -> tuple[str, bool]:
    """Return the delimiter, and whether cells may be quoted."""
    lines = [line for line in lines if line.strip()]
    csv.field_size_limit(2 * SAMPLE_LINES * MAX_CELL)  # not reached, whatever the quoting
    best, best_share = "", 0.8
    for delimiter in DELIMITERS:
        quoted = delimiter != "\t" or _is_quoted(lines)
        if quoted:
            reader = csv.reader(map(_csv_line, lines), delimiter=delimiter)
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
    if ".tsv" in Path(name.lower()).suffixes:
        return "\t", False
    raise DataError(
        f"{name}: no columns found; expected columns divided by tabs, commas, semicolons "
        "or |, JSON lines, TMX, .xlsx or .parquet",
        "unknown_format",
    )


def _csv_line(line: str) -> str:
    """Return a line for the csv module, which refuses a carriage return in a cell."""
    return line.replace("\r", " ") + "\n"


def _is_quoted(lines: Sequence[str]) -> bool:
    """Return True if quotes at the edges of tab-separated cells can only be quoting."""
    cells = [cell for line in lines for cell in line.split("\t") if '"' in cell]
    are_quoted = all(re.fullmatch(r'"[^"]*(""[^"]*)*"', cell) for cell in cells)
    return are_quoted and any('""' in cell[1:-1] for cell in cells)


def _json_lines(name: str, lines: Lines) -> Iterator[JsonRecord]:
    for number, line in enumerate(lines, start=1):
        value: Any = {}
        problem = line if isinstance(line, BadLine) else None
        if isinstance(line, str) and line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                problem = BadLine(name, number, f"not JSON ({_json_reason(error)})")
        yield number, value, problem


def _from_json_list(text: TextLines, lines: Lines) -> Table:
    values = list(lines)
    bad = next((line for line in values if isinstance(line, BadLine)), None)
    if bad is not None:
        raise DataError(f"{bad}; a JSON list with a bad line cannot be read", "bad_line")
    try:
        objects = json.loads("\n".join(map(str, values)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{text.name}: not JSON ({_json_reason(error)})", "not_json") from None
    return _from_objects(text, ((n, value, None) for n, value in enumerate(objects, start=1)))


def _from_objects(text: TextLines, records: Iterator[JsonRecord]) -> Table:
    """Return JSON objects as a table; its columns are all keys of the first, in order."""
    head = list(itertools.islice(records, SAMPLE))
    flat = (_flat(text.name, *record) for record in head)
    columns = tuple(dict.fromkeys(key for _, fields, _ in flat for key in fields))

    def rows() -> Iterator[Row]:
        for record in itertools.chain(head, records):
            line, fields, problem = _flat(text.name, *record)
            cells = [_json_cell(fields, key) for key in columns] if fields else []
            yield Row(line, cells, problem)

    return Table.of(text.name, columns, rows(), text.notices)


def _flat(name: str, line: int, value: Any, problem: BadLine | None) -> JsonRecord:
    """Return a record with its fields; those of "translation" are on the same level."""
    if problem is None and not isinstance(value, dict):
        kind = type(value).__name__
        problem = BadLine(name, line, f"a JSON object was expected, not {kind}")
    fields = dict(value) if problem is None else {}
    if isinstance(fields.get("translation"), dict):
        fields |= fields.pop("translation")
    return line, fields, problem


def _json_cell(fields: dict[str, Any], key: str) -> Cell:
    if key not in fields:
        return NotText(f"no {excerpt(key)}; it has {shorten(list(fields))}")
    cell = _cell(fields[key])
    return cell if isinstance(cell, str) else NotText(f"{excerpt(key)} {cell.why}", cell.value)


def _json_reason(error: Exception) -> str:
    """Return why JSON is invalid, without quoting the file."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at column {error.colno}"
    is_nested = isinstance(error, RecursionError)
    return "nested too deeply" if is_nested else "a number with too many digits"


def _from_tmx(text: TextLines, lines: Lines) -> Table:
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
        raise DataError(f"{text.name}: declares an entity, {excerpt(name)}", "xml_entity")

    parser = expat.ParserCreate("utf-8")  # the text is decoded, whatever it declares
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = segment.append, reject_entity
    try:
        whole = "\n".join("" if isinstance(line, BadLine) else line for line in lines)
        parser.Parse(whole.encode(), True)
    except expat.ExpatError as error:
        raise DataError(f"{text.name}: not valid TMX ({error})", "not_xml") from None
    columns = tuple(dict.fromkeys(name for unit in units for name in unit))
    rows = (Row(n, [unit.get(c, "") for c in columns]) for n, unit in enumerate(units, start=1))
    return Table.of(text.name, columns, rows, text.notices)


def _decoded(path: Path, kind: str) -> Table:
    """Read a table in a child process; formulas and macros are not evaluated."""
    if find_spec(PACKAGES[kind].replace("-", "_")) is None:
        message = f"reading .{kind} needs {PACKAGES[kind]}: {install_command('tables')}"
        raise MissingError(message, "missing_package")
    size = path.stat().st_size
    most = max(RATIO_FREE, MAX_RATIO * size)
    too_large = DataError(f"{path}: unpacks to more than {most >> 20:,} MB", "too_large")
    if kind == "xlsx":
        try:
            with zipfile.ZipFile(path) as archive:
                n_bytes = sum(item.file_size for item in archive.infolist())
                is_sheet = "xl/workbook.xml" in archive.namelist()
        except Exception as error:  # a class per kind of damage
            message = f"{path}: damaged ({error}); copy it again"
            raise DataError(message, "damaged_xlsx") from None
        if not is_sheet:
            raise DataError(f"{path}: a zip archive, not .xlsx; unpack it first", "not_text")
        if n_bytes > most:
            raise too_large

    def damaged(reason: str) -> DataError:
        return DataError(f"{path}: cannot be read ({reason})", f"damaged_{kind}")

    limits = Limits(*LIMITS.of(size))
    sandbox = Sandbox("polyhead.data.table_decoder", damaged, limits)
    columns, _ = sandbox.call("open_table", str(path.absolute()), kind)

    def rows() -> Iterator[Row]:
        n_rows = n_read = 0
        try:
            while lists := sandbox.call("next_records"):
                n_read += lists[0]
                if n_read > most:
                    raise too_large
                if not lists[1]:
                    return
                for record in itertools.chain.from_iterable(map(json.loads, lists[1])):
                    n_rows += 1
                    yield Row(n_rows, [*map(_cell, record)])
        finally:
            sandbox.close()

    return Table.of(str(path), columns and tuple(columns), rows())


def _cell(value: object) -> Cell:
    """Return a value of JSON or a spreadsheet as text; numbers are written out."""
    if value is None:
        return ""
    if isinstance(value, dict | list):
        return NotText(f"is not text but {type(value).__name__}", value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    problem = text_problem(text := str(value))
    return NotText(problem) if problem else _one_line(text)


def text_problem(text: str) -> str:
    """Return why a string of JSON is not a text; "" if it is."""
    if "\0" in text:
        return "holds a NUL character"
    half = next((c for c in text if "\ud800" <= c <= "\udfff"), "")
    return half and f"holds half a character (the lone surrogate U+{ord(half):04X})"


def _one_line(text: str) -> str:
    """Replace line breaks by spaces: a sentence is one line everywhere else."""
    return text.replace("\r\n", " ").replace("\n", " ")


def shorten(names: Sequence[str]) -> str:
    """List the first few of many names."""
    return ", ".join(map(excerpt, names[:8])) + (" …" if len(names) > 8 else "")
