"""`polyhead verify`: a table on a terminal, plain lines in a pipe, a page in a file."""

import json
import sys
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from polyhead.cli.console import counting, say
from polyhead.i18n import chosen_language
from polyhead.notes.claims import Claim, select_claims
from polyhead.notes.report import write_page
from polyhead.notes.runner import (
    VERDICTS,
    ClaimRow,
    NotesReport,
    claim_json,
    explain,
    got_of,
    shortened,
    value_in_language,
    verify,
)

STYLES = {"ok": "green", "note wrong": "yellow", "note imprecise": "cyan", "BROKEN": "bold red"}
WIDEST = 100  # columns; a wider terminal does not make longer lines easier to read
WORDS = {
    "en": {
        "note": "the note gives", "true": "true is", "formula": "Formula", "code": "Code",
        "snippet": "Try it", "expected": "expected", "got": "got", "written": "written to",
    },
    "ko": {
        "note": "노트의 값", "true": "옳은 값", "formula": "수식", "code": "코드",
        "snippet": "직접 해 보기", "expected": "기댓값", "got": "계산값", "written": "저장한 곳:",
    },
}  # fmt: skip


@dataclass(frozen=True)
class VerifyWords:
    """What was said on the command line."""

    what: tuple[str, ...]
    only_list: bool
    as_json: bool
    language: str | None
    explain: str | None
    page: Path | None


def run_verify(words: VerifyWords) -> int:
    """Do what was asked for; 1 if our code does not do what is true."""
    language = chosen_language(words.language)
    if words.explain is not None:
        return _explain(words.explain, language, as_json=words.as_json)
    checks = select_claims(words.what)
    if words.only_list:
        _list(checks, language, as_json=words.as_json)
        return 0
    with counting("verifying", len(checks)) as advance:
        report = verify(words.what, progress=lambda _: advance(1))
    if words.page is not None:
        write_page(report.rows, words.page, language)
        say(f"{WORDS[language]['written']} {words.page}")
    if words.as_json:
        print(json.dumps(report.to_json(language), ensure_ascii=False, indent=2))
    elif words.page is None or report.broken:
        _show(report, language)
    say(summary(report, language))
    return int(report.broken)


def summary(report: NotesReport, language: str) -> str:
    """How many of each, in one line."""
    parts = [f"{n} {VERDICTS[v].in_language(language)}" for v, n in report.counts.items() if n]
    seconds = f"{report.seconds:.1f}"
    total = len(report.rows)
    if language == "ko":
        return f"{total}개 항목: {', '.join(parts)} ({seconds}초)"
    return f"{total} claims: {', '.join(parts)} ({seconds} s)"


# The table


def _show(report: NotesReport, language: str) -> None:
    """Chapters with headings on a terminal; where there is none, a line a row and tabs between."""
    screen = Console(highlight=False)
    if not screen.is_terminal:
        for row in report.rows:
            print("\t".join(_cells(row, language)))
        return
    screen.width = min(screen.width, WIDEST)
    for title, rows in groupby(report.rows, key=lambda row: row.claim.chapter_title):
        screen.print()
        heading = Text(title.in_language(language), style="bold")
        screen.print(Rule(heading, align="left", style="dim"))
        for row in rows:
            screen.print(_line(row, language, screen.width))
            if row.verdict in ("note wrong", "note imprecise"):
                screen.print(Padding(_reason(row, language), (0, 2, 0, 7)))
    screen.print()


def _cells(row: ClaimRow, language: str) -> list[str]:
    result = row.result
    cells = [
        row.claim.id,
        VERDICTS[row.verdict].in_language(language),
        row.claim.text.in_language(language),
        value_in_language(result.expected, language),
        value_in_language(result.got, language),
        value_in_language(result.noted, language),
    ]
    return [" ".join(cell.split()) for cell in cells]


def _line(row: ClaimRow, language: str, width: int) -> Table:
    """One row as a grid, so that all rows have their columns at the same places."""
    id, verdict, claim, expected, _, _ = _cells(row, language)
    got = value_in_language(got_of(row.result), language)
    grid = Table.grid(padding=(0, 1))
    room = width - 6 - 15 - 4
    grid.add_column(width=6, style="bold")
    grid.add_column(width=room - 2 * (room // 4))
    grid.add_column(width=room // 4, style="dim")
    grid.add_column(width=room // 4)
    grid.add_column(width=15)
    style = STYLES[row.verdict]
    values = (Text(shortened(expected)), Text(" ".join(shortened(got).split())))
    grid.add_row(Text(id), Text(claim), *values, Text(verdict, style=style))
    return grid


def _reason(row: ClaimRow, language: str) -> Text:
    """The note's value and the true one, and why."""
    word = WORDS[language]
    text = Text()
    if row.result.noted:
        _, _, _, expected, _, noted = _cells(row, language)
        text.append(f"{word['note']} ", style="dim")
        text.append(noted, style="yellow")
        text.append(f", {word['true']} ", style="dim")
        text.append(expected, style="green")
        text.append("\n")
    return text.append(row.claim.explanation.in_language(language), style="dim")


def _list(claims: list[Claim], language: str, *, as_json: bool) -> None:
    """What could be verified, without doing it."""
    if as_json:
        content = [claim_json(claim, language) for claim in claims]
        print(json.dumps(content, ensure_ascii=False, indent=2))
        return
    for claim in claims:
        print(f"{claim.id:<5} {claim.chapter:<10}  {claim.text.in_language(language)}")


# One check, taken apart


def _explain(id: str, language: str, *, as_json: bool) -> int:
    """Claim, formula, explanation, verdict, where the code stands, and a script to run."""
    row, parts = explain(id, language)
    code = int(row.verdict == "BROKEN")
    if as_json:
        print(json.dumps(parts, ensure_ascii=False, indent=2))
        return code
    screen, word = Console(highlight=False), WORDS[language]
    screen.width = min(screen.width, WIDEST) if screen.is_terminal else screen.width
    title = Text(f"{row.claim.id}  ", style="bold").append(parts["claim"])
    screen.print(title, soft_wrap=True)
    screen.print(Text(f"\n{word['formula']}  ", style="dim").append(row.claim.formula, "default"))
    screen.print(Text("\n" + parts["explanation"]), soft_wrap=not screen.is_terminal)
    _, verdict, _, expected, got, noted = _cells(row, language)
    values = Text(f"\n{word['expected']} ", style="dim").append(expected, style="default")
    values.append(f"   {word['got']} ").append(got, style="default")
    if noted:
        values.append(f"   {word['note']} ").append(noted, style="yellow")
    screen.print(values.append("   ").append(verdict, style=STYLES[row.verdict]), soft_wrap=True)
    screen.print(Text(f"\n{word['code']}", style="dim"))
    for name, where in parts["places"]:
        screen.print(Text(f"  {where}  ", style="cyan").append(name, style="default"))
    screen.print(Text(f"\n{word['snippet']}\n", style="dim"))
    if screen.is_terminal:
        painter = Syntax("", "python", background_color="default")
        screen.print(painter.highlight(parts["snippet"]), soft_wrap=True)
    else:
        sys.stdout.write(parts["snippet"])
    return code
