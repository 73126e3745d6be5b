"""Choice of the columns of a table: by name, by number, or by a guess that is certain.

A header is recognized by names of roles and languages, or because a column holds numbers below a
first cell that is none. A header that is only partly understood is an error: training on the wrong
column would give a model that is silently wrong.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
Header = tuple[str, ...] | None
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
NUMBER = re.compile(r"(?=\D*\d)[-+]?[\d.,:/\-]+%?")


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


class ColumnKind(NamedTuple):
    """Contents of a sample of a column."""

    kind: Literal["empty", "numbers", "licence", "classes", "text"]
    example: str
    mean_length: float
    are_distinct: bool


def read_columns(
    path: str | Path, roles: Roles, given: Keys = (None, None), encoding: str = "utf-8"
) -> TwoColumns:
    """Read two or three columns of a table; the notices show which, with two examples."""
    table = open_table(path, encoding=encoding)
    with table.errors_of_the_whole_first():
        positions, names, n_above = choose_columns(table, roles, given)
    rows = table.sample[n_above:]
    if len(names) < len(roles):
        roles = _without_pair(roles)
    is_labelled = roles[-1] == "label"

    def record(row: Row) -> Record:
        return _record(row, positions, table.name, is_labelled=is_labelled)

    first_records = map(record, rows)
    good = [(r.first, r.second) for r in first_records if r.bad is None and r.first and r.second]
    chosen = ", ".join(f"{role} = column {name!r}" for role, name in zip(roles, names, strict=True))
    shown = ((first.replace(PAIR, " / "), second) for first, second in good)
    notice = f"{table.name}: {chosen}; {show_pairs(shown)}"
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
        position = _position(key, table.columns, width, table.name)
    rows = chain(table.sample, table.rest)
    records = (_record(row, (position, position), table.name) for row in rows)
    return table.name, (record.bad or record.first for record in records), table.notices


def show_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the first two pairs, shortened, for a message."""
    shown = (tuple(excerpt(text) for text in pair) for pair in islice(pairs, 2))
    return "; ".join(f"{first} → {second}" for first, second in shown)


def _without_pair(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the roles, or the keys, of a single text."""
    return names[0], names[-1]


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


def choose_columns(
    table: Table, roles: Roles, given: Keys
) -> tuple[tuple[int, ...], tuple[str, ...], int]:
    """Return the positions (from 0) and names of the columns, and the number of rows above them.

    A second text is chosen if its column is given, or if the header has a name of one and no
    column of the first text is given. Raise DataError if a column does not exist, or if the choice
    is not certain.
    """
    header, n_above = _split_header(table, roles, given)
    if roles == LABEL_ROLES and given[1] is None:
        has_pair = any(re.fullmatch(NAMES["text_pair"], n.strip().lower()) for n in header or ())
        if given[0] is not None or not has_pair:
            roles, given = _without_pair(roles), _without_pair(given)
    rows = table.sample[n_above:]
    widths = Counter(len(row.cells) for row in rows if len(row.cells) > 1)
    usual = min((n for n in widths if widths[n] == max(widths.values())), default=0)
    width = len(header) if header else usual
    if width < 2 and set(given) == {None}:
        return (0, 1), ("1", "2"), n_above  # every row is then reported
    positions: list[int | None] = [
        None if key is None else _position(key, header, max([*widths, width]), table.name)
        for key in given
    ]
    if None in positions and header:
        positions = _by_name(header, roles, positions)
    if None in positions:
        kinds = [_kind_of(rows, n) for n in range(width)]
        positions = _by_content(table.name, header, kinds, roles, positions)
    chosen = tuple(position or 0 for position in positions)
    if len(set(chosen)) < len(chosen):
        message = f"{table.name}: one column is chosen for two of {', '.join(roles)}"
        raise DataError(message, "same_column")
    names = (header[p] if header and p < len(header) else str(p + 1) for p in chosen)
    return chosen, tuple(names), n_above


def describe_columns(
    path: str | Path, roles: Roles, given: Keys = (None, None), encoding: str = "utf-8"
) -> str:
    """Return the header, the contents of every column, and which columns would be used."""
    table = open_table(path, encoding=encoding)
    header, n_above = _split_header(table, roles, given, must_be_clear=False)
    rows = table.sample[n_above:]
    used: dict[int, str] = {}
    with suppress(DataError):
        positions = choose_columns(table, roles, given)[0]
        names = roles if len(positions) == len(roles) else _without_pair(roles)
        used = dict(zip(positions, names, strict=True))
    width = max((len(row.cells) for row in rows), default=0)
    title = f"header {shorten(header)}" if header else "no header"
    n_rows = len(rows) + sum(1 for _ in table.rest)
    lines = [f"{table.name}: {n_rows:,} rows, {width} columns, {title}"]
    for n in range(width):
        column = _kind_of(rows, n)
        kind = "ids" if column.kind == "numbers" and column.are_distinct else column.kind
        role = f" → {used[n]}" if n in used else ""
        lines.append(f"  {_label(n, header)}: {kind}, such as {column.example!r}{role}")
    return "\n".join(lines)


def _split_header(
    table: Table, roles: Roles, given: Keys, *, must_be_clear: bool = True
) -> tuple[Header, int]:
    """Return the names of the columns, if there is a header, and the number of rows up to it."""
    if table.columns is not None:
        return table.columns, 0
    for n, row in enumerate(table.sample):
        if any(row.cells):
            names = tuple(str(cell).strip() for cell in row.cells)
            is_header = _is_header(names, table, roles, given, must_be_clear=must_be_clear)
            return (names, n + 1) if is_header else (None, 0)
    return None, 0


def _is_header(
    first: Sequence[str], table: Table, roles: Roles, given: Keys, *, must_be_clear: bool
) -> bool:
    if any(key is not None and not key.isdecimal() for key in given):
        return True
    cells = [cell.lower() for cell in first]
    names = [table[role] for role in roles for table in (NAMES, OTHER_NAMES) if table[role]]
    known = re.compile("|".join([*names, OTHERS]))
    understood = [bool(known.fullmatch(cell) or language_of(cell)) for cell in cells]
    body = [row for row in table.sample[1:] if row.bad is None and any(row.cells)]
    above_numbers = (
        cell
        and not NUMBER.fullmatch(cell)
        and all(len(row.cells) > n and NUMBER.fullmatch(str(row.cells[n])) for row in body)
        for n, cell in enumerate(cells)
    )
    if all(understood) or (body and any(above_numbers)):
        return True
    is_unclear = any(understood) and None in _without_pair(given)
    if is_unclear and must_be_clear:
        raise DataError(
            f"{table.name}: the first line looks like a header of which only a part is understood "
            f"({shorten(cells)}); name the columns: --{roles[0]}-column and --{roles[-1]}-column",
            "unclear_header",
        )
    return is_unclear


def _position(key: str, header: Header, width: int, name: str) -> int:
    """Return the position of a column that was given by name or by number."""
    if header and key in header:
        return header.index(key)
    if not key.isdecimal():
        has = f"it has {shorten(header)}" if header else "it has no header"
        raise DataError(f"{name}: no column {key!r}; {has}", "unknown_column")
    if not 1 <= int(key) <= max(width, 1):
        message = f"{name}: no column {key}; columns are counted from 1 to {width}"
        raise ConfigError(message, "invalid_column")
    return int(key) - 1


def _by_name(
    header: tuple[str, ...], roles: Roles, positions: list[int | None]
) -> list[int | None]:
    """Fill in columns that the header names by their role, or by two languages."""
    names = [name.strip().lower() for name in header]
    filled = list(positions)
    for table in (NAMES, OTHER_NAMES):
        for n, role in enumerate(roles):
            named = [p for p, name in enumerate(names) if re.fullmatch(table[role], name)]
            matching = [p for p in named if p not in filled]
            if filled[n] is None and len(matching) == 1:
                filled[n] = matching[0]
    languages = [p for p, name in enumerate(names) if language_of(name)]
    if roles[0] == "source" and len(languages) == 2:
        return _fill(filled, [p for p in languages if p not in filled]) or filled
    return filled


def _fill(positions: Sequence[int | None], columns: Sequence[int]) -> list[int | None] | None:
    """Fill in the columns that are left, in order; None if there are not as many."""
    remaining = iter(columns)
    if len(columns) != positions.count(None):
        return None
    return [next(remaining) if position is None else position for position in positions]


def _label(position: int, header: Header) -> str:
    """Return the number of a column, with its name if it has one."""
    name = f" {header[position]!r}" if header and position < len(header) else ""
    return f"{position + 1}{name}"


def _by_content(
    name: str,
    header: Header,
    kinds: Sequence[ColumnKind],
    roles: Roles,
    positions: list[int | None],
) -> list[int | None]:
    """Fill in the columns that are left if their contents leave no choice."""
    usable = [n for n, kind in enumerate(kinds) if kind.kind not in ("empty", "licence")]
    free = [n for n in usable if n not in positions]
    if roles[0] == "source":
        texts = [n for n in free if kinds[n].kind != "numbers"]
        filled = _fill(positions, texts or free)
    else:
        ends = _text_and_label(kinds, free, [positions[0], positions[-1]])
        filled = ends and [ends[0], *positions[1:-1], ends[1]]
    if filled is not None and None not in filled:
        return filled
    columns = "; ".join(
        f"{_label(n, header)} {kind.kind} ({kind.example!r})" for n, kind in enumerate(kinds[:8])
    )
    raise DataError(
        f"{name}: cannot tell which columns are {roles[0]} and {roles[-1]}: {columns}. Name them "
        f"with --{roles[0]}-column and --{roles[-1]}-column.",
        "unclear_columns",
    )


def _text_and_label(
    kinds: Sequence[ColumnKind], free: Sequence[int], positions: list[int | None]
) -> list[int | None] | None:
    """Return the columns of text and label, or None if there is a choice."""
    text, label = positions
    texts, classes = ([n for n in free if kinds[n].kind == kind] for kind in ("text", "classes"))
    if text is None and label is None and len(free) == 2:
        first, second = free
        if len(texts) == 2 and kinds[second].mean_length > 2 * kinds[first].mean_length:
            return None
        return [second, first] if texts == [second] else [first, second]
    if text is None and len(texts) == 1:
        text = texts[0]
    others = [n for n in classes if n != text]
    if label is None and len(others) == 1:
        label = others[0]
    return None if text is None or label is None else [text, label]


def _kind_of(rows: Sequence[Row], column: int) -> ColumnKind:
    cells = [
        cell.strip()
        for row in rows
        for cell in row.cells[column : column + 1]
        if row.bad is None and isinstance(cell, str) and cell.strip()
    ]
    if not cells:
        return ColumnKind("empty", "", 0.0, are_distinct=False)
    n_cells, n_distinct = len(cells), len(set(cells))
    mean_length = sum(map(len, cells)) / n_cells
    kind: Literal["numbers", "licence", "classes", "text"] = "text"
    if 2 <= n_distinct <= max(2, n_cells // 10) and n_cells >= 10 and mean_length < 40:
        kind = "classes"
    elif all(cell.startswith("CC") and "BY" in cell for cell in cells):  # as Tatoeba's downloads
        kind = "licence"
    elif sum(NUMBER.fullmatch(cell) is not None for cell in cells) > 0.95 * n_cells:
        kind = "numbers"
    return ColumnKind(kind, cells[0][:40], mean_length, n_distinct == n_cells)
