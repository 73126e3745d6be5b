"""`polyhead verify`: a table on a terminal, plain lines in a pipe, a page in a file."""

import json
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Exit, Option

from polyhead.cli.options import Json, Language
from polyhead.cli.streams import counting, say

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from polyhead.notes.verification import ClaimRow, NotesReport

STYLES = {"ok": "green", "note wrong": "yellow", "note imprecise": "cyan", "BROKEN": "bold red"}
MAX_WIDTH = 100  # columns; longer lines are harder to read
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


def verify(
    chapter_or_id: list[str] | None = Argument(
        None, help="Chapters and IDs of claims, e.g. masks B3 (default: all)."
    ),
    only_list: bool = Option(False, "--list", help="List the claims and exit."),
    json_out: Json = False,
    lang: Language = None,
    explain: str | None = Option(None, help="Show one claim in detail.", metavar="ID"),
    html: Path | None = Option(None, help="Write a page with figures to this file."),
) -> None:
    """Check every claim of the study notes by computing it.

    Exits with 1 if the code of polyhead does not do what is true.

    polyhead verify masks B3
    polyhead verify --explain C7
    polyhead verify --html report.html
    """
    from polyhead.atomic_file import write_text
    from polyhead.i18n import chosen_language
    from polyhead.notes.claims import select_claims
    from polyhead.notes.report_page import render
    from polyhead.notes.verification import claim_json
    from polyhead.notes.verification import explain as explain_claim
    from polyhead.notes.verification import verify as verify_claims

    language, names = chosen_language(lang), chapter_or_id or ()
    if explain is not None:
        row, parts = explain_claim(explain, language)
        if json_out:
            print(json.dumps(parts, ensure_ascii=False, indent=2))
        else:
            print_claim(row, parts, language)
        raise Exit(int(row.verdict == "BROKEN"))
    claims = select_claims(names)
    if only_list:
        rows = [claim_json(claim, language) for claim in claims]
        lines = [f"{row['id']:<5} {row['chapter']:<10}  {row['claim']}" for row in rows]
        print(json.dumps(rows, ensure_ascii=False, indent=2) if json_out else "\n".join(lines))
        return
    with counting("verifying", len(claims)) as advance:
        report = verify_claims(names, progress=lambda _: advance(1))
    if html is not None:
        write_text(html, render(report.rows, lang))
        say(f"{WORDS[language]['written']} {html}")
    if json_out:
        print(json.dumps(report.to_json(language), ensure_ascii=False, indent=2))
    elif html is None or report.broken:
        print_report(report, language)
    say(summarize(report, language))
    raise Exit(int(report.broken))


def summarize(report: "NotesReport", language: str) -> str:
    """Return the number of claims with each verdict in one line."""
    from polyhead.notes.verification import VERDICTS

    counts = {VERDICTS[verdict].in_language(language): n for verdict, n in report.counts.items()}
    if language == "ko":
        parts = ", ".join(f"{verdict} {n}건" for verdict, n in counts.items() if n)
        return f"{len(report.rows)}개 항목: {parts} ({report.seconds:.1f}초)"
    parts = ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n)
    return f"{len(report.rows)} claims: {parts} ({report.seconds:.1f} s)"


def print_report(report: "NotesReport", language: str) -> None:
    """Print chapters with headings on a terminal, else a row per line with tabs."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.rule import Rule
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        for row in report.rows:
            print("\t".join(cells(row, language)))
        return
    console.width = min(console.width, MAX_WIDTH)
    for title, rows in groupby(report.rows, key=lambda row: row.claim.chapter_title):
        console.print()
        heading = Text(title.in_language(language), style="bold")
        console.print(Rule(heading, align="left", style="dim"))
        for row in rows:
            console.print(row_grid(row, language, console.width))
            if row.verdict in ("note wrong", "note imprecise"):
                console.print(Padding(correction(row, language), (0, 2, 0, 7)))
    console.print()


def cells(row: "ClaimRow", language: str) -> list[str]:
    """Return ID, verdict, claim, expected value, computed value and the note's value."""
    from polyhead.notes.verification import VERDICTS, value_in_language

    values = (row.result.expected, row.result.got, row.result.noted)
    texts = [
        row.claim.id,
        VERDICTS[row.verdict].in_language(language),
        row.claim.text.in_language(language),
        *(value_in_language(value, language) for value in values),
    ]
    return [" ".join(text.split()) for text in texts]


def row_grid(row: "ClaimRow", language: str, width: int) -> "Table":
    """Return a row as a grid, whose columns are at the same places in all rows."""
    from rich.table import Column, Table
    from rich.text import Text

    from polyhead.notes.verification import got_of, shortened, value_in_language

    id, verdict, claim, expected, _, _ = cells(row, language)
    got = " ".join(shortened(value_in_language(got_of(row.result), language)).split())
    room = width - 6 - 15 - 4
    widths = (6, room - 2 * (room // 4), room // 4, room // 4, 15)
    styles = ("bold", None, "dim", None, STYLES[row.verdict])
    texts = (id, claim, shortened(expected), got, verdict)
    # fold: Rich breaks lines of Korean one cell too late, and would cut the last letter
    columns = (Column(width=width, overflow="fold") for width in widths)
    grid = Table.grid(*columns, padding=(0, 1))
    grid.add_row(*(Text(text, style or "") for text, style in zip(texts, styles, strict=True)))
    return grid


def correction(row: "ClaimRow", language: str) -> "Text":
    """Return the note's value, the true one and the explanation."""
    from rich.text import Text

    words, text = WORDS[language], Text()
    if row.result.noted:
        _, _, _, expected, _, noted = cells(row, language)
        text.append(f"{words['note']} ", style="dim").append(noted, style="yellow")
        text.append(f", {words['true']} ", style="dim").append(expected, style="green")
        text.append("\n")
    return text.append(row.claim.explanation.in_language(language), style="dim")


def print_claim(row: "ClaimRow", parts: dict[str, Any], language: str) -> None:
    """Print a claim with formula, explanation, verdict, code and a script."""
    from rich.console import Console
    from rich.syntax import Syntax
    from rich.text import Text

    console, words = Console(highlight=False), WORDS[language]
    if console.is_terminal:
        console.width = min(console.width, MAX_WIDTH)
    title = Text(f"{row.claim.id}  ", style="bold").append(parts["claim"])
    console.print(title, soft_wrap=True)
    console.print(Text(f"\n{words['formula']}  ", style="dim").append(row.claim.formula, "default"))
    console.print(Text("\n" + parts["explanation"]), soft_wrap=not console.is_terminal)
    _, verdict, _, expected, got, noted = cells(row, language)
    values = Text(f"\n{words['expected']} ", style="dim").append(expected, style="default")
    values.append(f"   {words['got']} ").append(got, style="default")
    if noted:
        values.append(f"   {words['note']} ").append(noted, style="yellow")
    console.print(values.append("   ").append(verdict, style=STYLES[row.verdict]), soft_wrap=True)
    console.print(Text(f"\n{words['code']}", style="dim"))
    for name, where in parts["places"]:
        console.print(Text(f"  {where}  ", style="cyan").append(name, style="default"))
    console.print(Text(f"\n{words['snippet']}\n", style="dim"))
    if console.is_terminal:
        painter = Syntax("", "python", background_color="default")
        console.print(painter.highlight(parts["snippet"]), soft_wrap=True)
    else:
        sys.stdout.write(parts["snippet"])
