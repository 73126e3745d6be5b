"""Choice of the columns of a table: by name, by number, or by a guess that is certain.

A header is recognized by names of roles and languages, or because a column holds numbers below a
first cell that is none. A header that is only partly understood is an error: training on the wrong
column would give a model that is silently wrong.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from polyhead.data.tables import NotText, Row, Table, read_table, shorten
from polyhead.data.text_files import BadLine
from polyhead.errors import ConfigError, DataError

Role = Literal["source", "target", "text", "label"]
SAMPLE = 2_000  # rows
NAMES: dict[Role, frozenset[str]] = {
    "source": frozenset(["source", "src", "source_text", "원문", "원본"]),
    "target": frozenset(["target", "tgt", "trg", "target_text", "translation", "번역문", "번역"]),
    "text": frozenset(
        (
            "text",
            "document",
            "sentence",
            "review",
            "content",
            "comment",
            "문장",
            "내용",
            "본문",
            "리뷰",
            "텍스트",
        )
    ),
    "label": frozenset(
        ["label", "class", "category", "target", "sentiment", "레이블", "라벨", "분류", "감정"]
    ),
}
OTHERS = frozenset(["id", "idx", "index", "no", "sid", "number", "번호", "url", "date", "날짜"])
LANGUAGES = {
    "ko": ("korean", "한국어", "kor"), "en": ("english", "영어", "eng"),
    "de": ("german", "deutsch", "독일어", "deu"), "fr": ("french", "français", "프랑스어", "fra"),
    "ja": ("japanese", "日本語", "일본어", "jpn"), "zh": ("chinese", "中文", "중국어", "zho"),
    "es": ("spanish", "español", "스페인어", "spa"), "cs": ("czech", "čeština", "체코어", "ces"),
    "ru": ("russian", "русский", "러시아어", "rus"), "it": ("italian", "italiano", "ita"),
    "vi": ("vietnamese", "베트남어", "vie"), "pt": ("portuguese", "português", "por"),
}  # fmt: skip
NUMBER = re.compile(r"[-+]?[\d.,:/\-]*\d[\d.,:/\-]*%?")


class Record(NamedTuple):
    """A line of a table: its two cells, or the reason why it is not usable."""

    line: int
    first: str
    second: str
    bad: BadLine | None = None


class Columns(NamedTuple):
    """The chosen columns of a table, counted from 0, and the rows below its header.

    languages: those that the columns are named after.
    """

    positions: tuple[int, int]
    names: tuple[str, str]
    rows: Sequence[Row]
    languages: tuple[str, str] | None


class TwoColumns(NamedTuple):
    """Two columns of a file, record by record, and messages about them."""

    name: str
    records: list[Record]
    notices: tuple[str, ...]
    languages: tuple[str, str] | None


@dataclass(frozen=True)
class ColumnKind:
    """Contents of a sample of a column."""

    kind: Literal["empty", "numbers", "licence", "classes", "text"]
    example: str
    mean_length: float


def read_columns(
    path: str | Path,
    roles: tuple[Role, Role],
    given: tuple[str | None, str | None] = (None, None),
    encoding: str = "utf-8",
) -> TwoColumns:
    """Read two columns of a table; the notices show which, with two examples."""
    table = read_table(path, encoding=encoding)
    columns = choose_columns(table, roles, given)
    records = [_record(row, columns.positions, table.name) for row in columns.rows]
    good = [record for record in records if record.bad is None and record.first and record.second]
    chosen = ", ".join(
        f"{role} = column {n!r}" for role, n in zip(roles, columns.names, strict=True)
    )
    examples = "; ".join(f"{r.first[:40]!r} → {r.second[:40]!r}" for r in good[:2])
    notice = f"{table.name}: {chosen}; {examples}"
    notices = (*table.notices, notice) if good else table.notices
    return TwoColumns(table.name, records, notices, columns.languages)


def _record(row: Row, positions: tuple[int, int], name: str) -> Record:
    width, n_cells = max(positions) + 1, len(row.cells)
    is_blank = not any(isinstance(cell, NotText) or cell.strip() for cell in row.cells)
    if row.bad is not None or is_blank:
        return Record(row.line, "", "", row.bad)
    if n_cells < width:
        count = f"{n_cells} column" + "s" * (n_cells > 1)
        return Record(row.line, "", "", BadLine(name, row.line, f"{count}, expected {width}"))
    cells = [row.cells[position] for position in positions]
    for cell in cells:
        if isinstance(cell, NotText):
            return Record(row.line, "", "", BadLine(name, row.line, cell.why))
    return Record(row.line, str(cells[0]), str(cells[1]))


def choose_columns(
    table: Table, roles: tuple[Role, Role], given: tuple[str | None, str | None]
) -> Columns:
    """Choose two columns of a table.

    roles: ("source", "target") or ("text", "label").
    given: the name or number (from 1) of each column, None where it is to be found.
    Raise DataError if a column does not exist, or if the choice is not certain.
    """
    header, rows = table.columns, table.rows
    if header is None:
        first = next((row for row in rows if any(row.cells)), None)
        if first is not None and _is_header(first, rows, roles, given, table.name):
            header = tuple(str(cell).strip() for cell in first.cells)
            rows = rows[rows.index(first) + 1 :]
    widths = Counter(len(row.cells) for row in rows[:SAMPLE] if len(row.cells) > 1)
    usual = min((n for n in widths if widths[n] == max(widths.values())), default=0)
    width = len(header) if header else usual
    if width < 2 and given == (None, None):
        return Columns((0, 1), ("1", "2"), rows, None)  # every row is then reported
    positions: list[int | None] = [
        None if name is None else _position(name, header, max([*widths, width]), table.name)
        for name in given
    ]
    if None in positions and header:
        positions = _by_name(header, roles, positions)
    if None in positions:
        positions = _by_content(table.name, header, rows[:SAMPLE], width, roles, positions)
    chosen = (positions[0] or 0, positions[1] or 0)
    if chosen[0] == chosen[1]:
        message = f"{table.name}: column {chosen[0] + 1} is both {roles[0]} and {roles[1]}"
        raise DataError(message, "same_column")
    names = tuple(header[p] if header and p < len(header) else str(p + 1) for p in chosen)
    languages = tuple(language_of(name) for name in names)
    return Columns(
        chosen,
        (names[0], names[1]),
        rows,
        (languages[0], languages[1]) if all(languages) else None,
    )


def language_of(name: str) -> str:
    """Return the code of the language that a column is named after, or ""."""
    name = name.strip().lower().replace("_", "-")
    for code, names in LANGUAGES.items():
        if name in (code, *names) or re.fullmatch(rf"{code}-[a-z]{{2}}", name):
            return code
    return ""


def _is_header(
    first: Row,
    rows: Sequence[Row],
    roles: tuple[Role, Role],
    given: tuple[str | None, str | None],
    name: str,
) -> bool:
    if any(key is not None and not key.isdecimal() for key in given):
        return True
    cells = [str(cell).strip().lower() for cell in first.cells]
    known = NAMES[roles[0]] | NAMES[roles[1]] | OTHERS
    understood = [cell in known or bool(language_of(cell)) for cell in cells]
    body = [row for row in rows[1:SAMPLE] if row.bad is None and any(row.cells)]
    above_numbers = [
        bool(cell)
        and not NUMBER.fullmatch(cell)
        and len(body) > 0
        and all(len(row.cells) > n and NUMBER.fullmatch(str(row.cells[n])) for row in body)
        for n, cell in enumerate(cells)
    ]
    if all(understood) or any(above_numbers):
        return True
    if any(understood) and None in given:
        raise DataError(
            f"{name}: the first line looks like a header of which only a part is understood "
            f"({shorten(cells)}); name the columns: --{roles[0]}-column and --{roles[1]}-column",
            "unclear_header",
        )
    return False


def _position(key: str, header: tuple[str, ...] | None, width: int, name: str) -> int:
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
    header: tuple[str, ...], roles: tuple[Role, Role], positions: list[int | None]
) -> list[int | None]:
    """Fill in columns that the header names by their role, or by two languages."""
    names = [name.strip().lower() for name in header]
    filled = list(positions)
    for n, role in enumerate(roles):
        matching = [p for p, name in enumerate(names) if name in NAMES[role] and p not in filled]
        if filled[n] is None and len(matching) == 1:
            filled[n] = matching[0]
    languages = [p for p, name in enumerate(names) if language_of(name)]
    if roles[0] == "source" and filled == [None, None] and len(languages) == 2:
        return [languages[0], languages[1]]
    if roles[0] == "source" and len(languages) == 2 and sum(p in languages for p in filled) == 1:
        other = next(p for p in languages if p not in filled)
        return [other if p is None else p for p in filled]
    return filled


def _by_content(
    name: str,
    header: tuple[str, ...] | None,
    rows: Sequence[Row],
    width: int,
    roles: tuple[Role, Role],
    positions: list[int | None],
) -> list[int | None]:
    """Fill in the columns that are left if their contents leave no choice."""
    kinds = [_kind_of(rows, n) for n in range(width)]
    free = [
        n for n in range(width) if n not in positions and kinds[n].kind not in ("empty", "licence")
    ]
    texts = [n for n in free if kinds[n].kind != "numbers"]
    if roles[0] == "source":
        missing = positions.count(None)
        if len(texts) == missing or (not texts and len(free) == missing):
            remaining = iter(texts or free)
            return [next(remaining) if p is None else p for p in positions]
    else:
        filled = _text_and_label(kinds, free, positions)
        if filled is not None:
            return filled
    columns = "; ".join(
        f"{n + 1}{f' {header[n]!r}' if header and n < len(header) else ''} {kind.kind}"
        f" ({kind.example!r})"
        for n, kind in enumerate(kinds[:8])
    )
    raise DataError(
        f"{name}: cannot tell which columns are {roles[0]} and {roles[1]}: {columns}. Name them "
        f"with --{roles[0]}-column and --{roles[1]}-column.",
        "unclear_columns",
    )


def _text_and_label(
    kinds: Sequence[ColumnKind], free: Sequence[int], positions: list[int | None]
) -> list[int | None] | None:
    """Return the columns of text and label, or None if there is a choice."""
    text, label = positions
    if text is None and label is None and len(free) == 2:
        first, second = free
        swapped = kinds[first].kind != "text" and kinds[second].kind == "text"
        longer = kinds[second].mean_length > 2 * kinds[first].mean_length
        if kinds[first].kind == kinds[second].kind == "text" and longer:
            return None
        return [second, first] if swapped else [first, second]
    if text is None:
        texts = [n for n in free if kinds[n].kind == "text"]
        text = texts[0] if len(texts) == 1 else None
    if label is None:
        labels = [n for n in free if kinds[n].kind == "classes" and n != text]
        label = labels[0] if len(labels) == 1 else None
    return None if text is None or label is None else [text, label]


def _kind_of(rows: Sequence[Row], column: int) -> ColumnKind:
    cells = [
        str(row.cells[column]).strip()
        for row in rows
        if row.bad is None
        and len(row.cells) > column
        and not isinstance(row.cells[column], NotText)
    ]
    cells = [cell for cell in cells if cell]
    if not cells:
        return ColumnKind("empty", "", 0.0)
    example, mean_length = cells[0][:40], sum(map(len, cells)) / len(cells)
    n_distinct = len(set(cells))
    few = 2 <= n_distinct <= max(2, len(cells) // 10) and len(cells) >= 10 and mean_length < 40
    if few:
        return ColumnKind("classes", example, mean_length)
    if all(cell.startswith("CC") and "BY" in cell for cell in cells):  # as in downloads of Tatoeba
        return ColumnKind("licence", example, mean_length)
    n_numbers = sum(NUMBER.fullmatch(cell) is not None for cell in cells)
    kind: Literal["numbers", "text"] = "numbers" if n_numbers > 0.95 * len(cells) else "text"
    return ColumnKind(kind, example, mean_length)
