"""Ask the program whether the notes are right, and whether the program is.

    report = verify(["masks"])
    report.counts            # {'ok': 7, 'note wrong': 3, …}
    write_page(report, "report.html")

A report is what the checks found; nothing is kept between two calls.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyhead.notes.claims import Check
from polyhead.notes.explain import places, snippet
from polyhead.notes.report import write
from polyhead.notes.runner import (
    CHAPTERS,
    VERDICTS,
    ClaimRow,
    Verdict,
    chosen,
    find,
    got_of,
    run,
    shortened,
    value_in_language,
)

__all__ = [
    "CHAPTERS",
    "VERDICTS",
    "Check",
    "ClaimRow",
    "NotesReport",
    "chosen",
    "explain",
    "got_of",
    "listed",
    "shortened",
    "value_in_language",
    "verify",
    "write_page",
]


@dataclass(frozen=True)
class NotesReport:
    """What was found, in the order of the table."""

    rows: tuple[ClaimRow, ...]

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many rows have each verdict."""
        return {verdict: sum(row.verdict == verdict for row in self.rows) for verdict in VERDICTS}

    @property
    def broken(self) -> bool:
        """Whether our code does something else than what is true, anywhere."""
        return any(row.verdict == "BROKEN" for row in self.rows)

    @property
    def seconds(self) -> float:
        """How long the checks took."""
        return sum(row.seconds for row in self.rows)

    def described(self, language: str) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "format": "polyhead-verify-1",
            "language": language,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
            "checks": [described(row, language) for row in self.rows],
        }


def verify(
    words: Sequence[str] = (), progress: Callable[[ClaimRow], None] | None = None
) -> NotesReport:
    """Run the checks of these chapters and IDs (all, if none is named)."""
    rows = []
    for row in run(chosen(words)):
        rows.append(row)
        if progress is not None:
            progress(row)
    return NotesReport(tuple(rows))


def listed(check: Check, language: str) -> dict[str, Any]:
    """What a check is about, before it ran."""
    return {
        "id": check.id,
        "chapter": check.chapter,
        "claim": check.claim.in_language(language),
        "formula": check.formula,
        "note": check.note,
        "explanation": check.explain.in_language(language),
        "code": [str(place) for place in places(check)],
    }


def described(row: ClaimRow, language: str) -> dict[str, Any]:
    """A row, as JSON can hold it. The values are what the check wrote, in no language."""
    return {
        **listed(row.check, language),
        "expected": row.finding.expected,
        "got": row.finding.got,
        "noted": row.finding.noted,
        "holds": row.finding.holds,
        "verdict": row.verdict,
        "error": row.error,
        "seconds": round(row.seconds, 4),
    }


def explain(id: str, language: str) -> tuple[ClaimRow, dict[str, Any]]:
    """Run one check, and take it apart: what it says, where its code stands, and a script."""
    check = find(id)
    row = next(run([check]))
    code = [(place.name, str(place)) for place in places(check)]
    return row, {**described(row, language), "places": code, "snippet": snippet(check)}


def write_page(report: NotesReport, path: str | Path, language: str = "en") -> Path:
    """Write the report as one HTML file; `language` is the one it opens in."""
    return write(report.rows, path, language)
