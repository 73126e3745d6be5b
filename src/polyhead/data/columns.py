"""Choice of the columns of a table: by name, by number, by header, or because there is no other.

A header is recognized by names of roles and languages, or because a column holds numbers below a
first cell that is none. A header that is only partly understood is an error: training on the wrong
column would give a model that is silently wrong.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

from polyhead.data.labels import PAIR, join_pair
from polyhead.data.languages import language_of
from polyhead.data.tables import Cell, NotText, Row, Table, open_table, shorten
from polyhead.data.text_files import BadLine, excerpt
from polyhead.errors import ConfigError, DataError

Role = Literal["source", "target", "text", "text_pair", "label"]
Roles = tuple[Role, ...]  # PAIR_ROLES or LABEL_ROLES
Keys = tuple[str | None, ...]  # name or number (from 1) of each column; None: to be found
PAIR_ROLES: Roles = ("source", "target")
LABEL_ROLES: Roles = ("text", "text_pair", "label")  # without the second one if there is none
Header = tuple[str, ...]  # () if there is none
NAMES: dict[Role, str] = {  # patterns, in lower case
    "source": "source|src|source_text|원문|원본",
    "target": "target|tgt|trg|target_text|translation|번역문|번역",
    "text": "text|document|sentence|review|content|comment|문장|내용|본문|리뷰|텍스트",
    "text_pair": "text_?pair|text_?2|sentence_?2|question_?2|hypothesis|passage|문장_?2|텍스트_?2",
    "label": "label|class|category|target|sentiment|레이블|라벨|분류|감정",
}
OTHER_NAMES: dict[Role, str] = {  # if no column has one of the names above
    "source": "text_?1|sentence_?1|question_?1|premise|question|query|anchor|문장_?1|텍스트_?1",
    "target": f"{NAMES['text_pair']}|positive",
    "text": "text_?1|sentence_?1|question_?1|premise|question|query|문장_?1|텍스트_?1",
    "text_pair": "",
    "label": "labels|tags|score|similarity|rating|stars|점수|평점|별점|유사도|태그",
}
OTHERS = "id|idx|index|no|sid|number|번호|url|date|날짜"
NUMBER = r"(?=\D*\d)[-+]?[\d.,:/\-]+%?"
LICENCE = "CC.*BY.*"  # of a sentence, at manythings.org


class Record(NamedTuple):
    """A line of a table: its two cells, or the reason why it is not usable.

    Two texts of a labelled example are one cell (`labels.join_pair`).
    """

    line: int
    first: str
    second: str
    bad: BadLine | None = None


class TwoColumns(NamedTuple):
    """Two columns of a file, record by record, and messages about them.

    languages: those that both columns are named after.
    """

    name: str
    records: Iterator[Record]
    notices: tuple[str, ...]
    languages: tuple[str, str] | None


def read_columns(
    path: str | Path, roles: Roles, given: Keys = (), encoding: str = "utf-8"
) -> TwoColumns:
    """Read two or three columns of a table; the notices show which, with two examples."""
    table = open_table(path, encoding=encoding)
    with table.errors_of_the_whole_first():
        chosen = choose_columns(table, roles, given)
    header, rows, _ = _split_header(table, roles, given)
    names = [header[p] if p < len(header) else str(p + 1) for p in chosen.values()]

    def record(row: Row) -> Record:
        return _record(row, [*chosen.values()], table.name, is_labelled="label" in chosen)

    good = [(r.first, r.second) for r in map(record, rows) if not r.bad and r.first and r.second]
    columns = ", ".join(
        f"{role} = column {excerpt(name)}" for role, name in zip(chosen, names, strict=True)
    )
    shown = ((first.replace(PAIR, " / "), second) for first, second in good)
    notice = f"{table.name}: {columns}; {show_pairs(shown)}"
    notices = (*table.notices, notice) if good else table.notices
    first, second = language_of(names[0]), language_of(names[-1])
    records = map(record, chain(rows, table.rest))
    return TwoColumns(table.name, records, notices, (first, second) if first and second else None)


def open_column(
    path: str | Path, key: str, encoding: str = "utf-8"
) -> tuple[str, Iterator[str | BadLine], tuple[str, ...]]:
    """Return a table's name, its column of a name or number as lines, and messages."""
    table = open_table(path, encoding=encoding)
    if not key.isdecimal():
        table = table.with_header()
    width = max((len(row.cells) for row in table.sample), default=0)
    with table.errors_of_the_whole_first():
        position = _position(key, table.columns or (), width, table.name)
    rows = chain(table.sample, table.rest)
    records = (_record(row, [position, position], table.name) for row in rows)
    return table.name, (record.bad or record.first for record in records), table.notices


def show_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the first two pairs, shortened, for a message."""
    shown = (tuple(excerpt(text) for text in pair) for pair in islice(pairs, 2))
    return "; ".join(f"{first} → {second}" for first, second in shown)


def _record(row: Row, positions: Sequence[int], name: str, *, is_labelled: bool = False) -> Record:
    width, n_cells = max(positions) + 1, len(row.cells)
    is_blank = not any(isinstance(cell, NotText) or cell.strip() for cell in row.cells)
    if row.bad is not None or is_blank:
        return Record(row.line, "", "", row.bad)
    cells: list[Cell] = [NotText(f"{n_cells} column{'s' * (n_cells > 1)}, expected {width}")]
    if n_cells >= width:
        cells = [row.cells[position] for position in positions]
    if is_labelled and isinstance(cells[-1], NotText):
        names = cells[-1].value
        if isinstance(names, list) and all(isinstance(name, str | int) for name in names):
            cells[-1] = json.dumps(names)
    for cell in cells:
        if isinstance(cell, NotText):
            return Record(row.line, "", "", BadLine(name, row.line, cell.why))
    first, *others = map(str, cells)
    if is_labelled:
        first = join_pair(first, others[0]) if len(others) == 2 else first.replace(PAIR, " ")
    return Record(row.line, first, others[-1])


def choose_columns(table: Table, roles: Roles, given: Keys = ()) -> dict[Role, int]:
    """Return the position (from 0) of the column of each role.

    A second text is chosen if its column is given, or if the header has a name of one and no
    column of the first text is given. Raise DataError if a column does not exist, or if the choice
    is not certain.
    """
    keys: dict[Role, str | None] = dict(zip_longest(roles, given))
    options = f"--{roles[0]}-column and --{roles[-1]}-column"
    header, rows, is_certain = _split_header(table, roles, given)
    if not is_certain:
        raise DataError(
            f"{table.name}: the first line looks like a header of which only a part is understood "
            f"({shorten(header)}); name the columns: {options}",
            "unclear_header",
        )
    names = [name.strip().lower() for name in header]
    if "text_pair" in keys and keys["text_pair"] is None:
        has_pair = any(re.fullmatch(NAMES["text_pair"], name) for name in names)
        if keys["text"] is not None or not has_pair:
            del keys["text_pair"]
    widths = Counter(len(row.cells) for row in rows if len(row.cells) > 1)
    usual = min((n for n in widths if widths[n] == max(widths.values())), default=0)
    width = len(header) or usual
    if width < 2 and not any(keys.values()):
        return {roles[0]: 0, roles[-1]: 1}  # every row is then reported
    most = max([*widths, width])
    chosen = {r: _position(key, header, most, table.name) for r, key in keys.items() if key}
    for patterns in (NAMES, OTHER_NAMES):
        for role in [role for role in keys if role not in chosen]:
            named = [p for p, name in enumerate(names) if re.fullmatch(patterns[role], name)]
            if len(left := [p for p in named if p not in chosen.values()]) == 1:
                chosen[role] = left[0]
    if missing := [role for role in keys if role not in chosen]:
        free = [p for p in _candidates(names, rows, width, roles) if p not in chosen.values()]
        if len(free) != len(missing) or (not chosen and _are_doubtful(free, rows, roles)):
            columns = "; ".join(_summary(header, rows, p) for p in range(min(width, 8)))
            raise DataError(
                f"{table.name}: cannot tell which columns are {roles[0]} and {roles[-1]}: "
                f"{columns}. Name them with {options}.",
                "unclear_columns",
            )
        chosen |= zip(missing, free, strict=True)
    if len({*chosen.values()}) < len(chosen):
        message = f"{table.name}: one column is chosen for two of {', '.join(keys)}"
        raise DataError(message, "same_column")
    return {role: chosen[role] for role in keys}


def _candidates(
    names: Sequence[str], rows: Sequence[Row], width: int, roles: Roles
) -> Sequence[int]:
    """Return the columns that no role is named after, but may be used."""
    languages = [p for p, name in enumerate(names) if language_of(name)]
    if roles == PAIR_ROLES and len(languages) == 2:
        return languages
    if roles == PAIR_ROLES and width == 4 and all(_holds(NUMBER, rows, p) for p in (0, 2)):
        return 1, 3  # Tatoeba
    if roles == PAIR_ROLES and width == 3 and _holds(LICENCE, rows, 2):
        return 0, 1  # manythings.org
    return [p for p in range(width) if not (names and re.fullmatch(OTHERS, names[p]))]


def _are_doubtful(columns: Sequence[int], rows: Sequence[Row], roles: Roles) -> bool:
    """Return True if numbers stand for a text, or if labels seem to be in the first column."""
    (first, second), is_number = columns, [_holds(NUMBER, rows, p) for p in columns]
    n_different = [len(set(_texts(rows, p))) for p in (first, second)]
    if roles == PAIR_ROLES:
        return is_number[0] != is_number[1]
    return is_number == [True, False] or n_different[0] < n_different[1]


def describe_columns(
    path: str | Path, roles: Roles, given: Keys = (), encoding: str = "utf-8"
) -> str:
    """Return the header, an example of every column, and which columns would be used."""
    table = open_table(path, encoding=encoding)
    header, rows, _ = _split_header(table, roles, given)
    used: Mapping[Role, int] = {}
    with suppress(DataError):
        used = choose_columns(table, roles, given)
    width = max((len(row.cells) for row in rows), default=0)
    title = f"header {shorten(header)}" if header else "no header"
    n_rows = len(rows) + sum(1 for _ in table.rest)
    lines = [f"{table.name}: {n_rows:,} rows, {width} columns, {title}"]
    for n in range(width):
        role = "".join(f" → {role}" for role, position in used.items() if position == n)
        lines.append(f"  {_summary(header, rows, n)}{role}")
    return "\n".join(lines)


def _split_header(table: Table, roles: Roles, given: Keys) -> tuple[Header, Sequence[Row], bool]:
    """Return the names of the columns, the first rows below them, and whether that is certain."""
    if table.columns is not None:
        return table.columns, table.sample, True
    above = next((n for n, row in enumerate(table.sample) if any(row.cells)), None)
    if above is None:
        return (), table.sample, True
    names = tuple(str(cell).strip() for cell in table.sample[above].cells)
    rows = table.sample[above + 1 :]
    patterns = [table[role] for role in roles for table in (NAMES, OTHER_NAMES) if table[role]]
    known = re.compile("|".join([*patterns, OTHERS]))
    understood = [bool(known.fullmatch(n.lower()) or language_of(n)) for n in names]
    is_header = any(key and not key.isdecimal() for key in given) or all(understood)
    is_header = is_header or any(
        name and not re.fullmatch(NUMBER, name) and _holds(NUMBER, rows, n)
        for n, name in enumerate(names)
    )
    ends = [key for role, key in zip_longest(roles, given) if role != "text_pair"]
    is_unclear = any(understood) and None in ends
    return (names, rows, is_header) if is_header or is_unclear else ((), table.sample, True)


def _position(key: str, header: Header, width: int, name: str) -> int:
    """Return the position of a column that was given by name or by number."""
    if key in header:
        return header.index(key)
    if not key.isdecimal():
        has = f"it has {shorten(header)}" if header else "it has no header"
        raise DataError(f"{name}: no column {key!r}; {has}", "unknown_column")
    if not 1 <= int(key) <= max(width, 1):
        message = f"{name}: no column {key}; columns are counted from 1 to {width}"
        raise ConfigError(message, "invalid_column")
    return int(key) - 1


def _texts(rows: Sequence[Row], column: int) -> list[str]:
    cells = (cell for row in rows if not row.bad for cell in row.cells[column : column + 1])
    return [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]


def _holds(pattern: str, rows: Sequence[Row], column: int) -> bool:
    texts = _texts(rows, column)
    return bool(texts) and all(re.fullmatch(pattern, text) for text in texts)


def _summary(header: Header, rows: Sequence[Row], column: int) -> str:
    """Return the number of a column, its name, and an example of its contents."""
    name = f" {excerpt(header[column])}" if column < len(header) else ""
    texts = _texts(rows, column)
    example = f"{len(set(texts)):,} different, such as {texts[0][:40]!r}" if texts else "empty"
    return f"{column + 1}{name}: {example}"
