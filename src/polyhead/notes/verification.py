"""Run claims, report their verdicts, and explain one claim with a script to run.

    report = verify(["masks", "B3"])
    report.counts            # {'ok': 7, 'note wrong': 3, …}

A verdict is about the note and about the library:

    ok               the note is right, and the library does what it says
    note wrong       the note is wrong; the library does what is true
    note imprecise   the note leaves out something essential; the library does what is true
    BROKEN           the library does not do what is true, or the check raised an exception
"""

import ast
import inspect
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NamedTuple, cast

import torch

from polyhead.i18n import Words
from polyhead.notes.claims import Claim, ClaimResult, NoteStatus, find_claim, select_claims

PACKAGE = Path(__file__).parents[1]
LONG = 24  # characters; a longer value is not printed twice in a row

Verdict = Literal["ok", "note wrong", "note imprecise", "BROKEN"]
VERDICTS: dict[Verdict, Words] = {
    "ok": Words("ok", "맞음"),
    "note wrong": Words("note wrong", "노트 오류"),
    "note imprecise": Words("note imprecise", "노트 부정확"),
    "BROKEN": Words("BROKEN", "코드 고장"),
}
OF_NOTES: dict[NoteStatus, Verdict] = {
    "right": "ok", "wrong": "note wrong", "imprecise": "note imprecise",
}  # fmt: skip
PHRASES = (  # the words of a result that are not names or numbers, and their translations
    (re.compile(r"^the same to (\S+)$"), r"오차 \1 이내로 같음"),
    (re.compile(r"logits within (\S+)"), r"로짓 오차 \1 이내"),
    (re.compile(r"^the same$"), "같음"),
    (re.compile(r"^yes$"), "예"),
    (re.compile(r"^no$"), "아니요"),
    (re.compile(r"^tensor (\S+)$"), r"텐서 \1"),
)


@dataclass(frozen=True)
class ClaimRow:
    """A claim that was checked: its result and how long that took."""

    claim: Claim
    result: ClaimResult
    seconds: float
    error: str = ""  # the exception, if there was one

    @property
    def verdict(self) -> Verdict:
        """BROKEN if the library is wrong, else the verdict on the note."""
        return OF_NOTES[self.claim.note] if self.result.holds else "BROKEN"


@dataclass(frozen=True)
class NotesReport:
    """The rows of all claims that were checked."""

    rows: tuple[ClaimRow, ...]

    @property
    def counts(self) -> dict[Verdict, int]:
        return {verdict: sum(row.verdict == verdict for row in self.rows) for verdict in VERDICTS}

    @property
    def broken(self) -> bool:
        return any(row.verdict == "BROKEN" for row in self.rows)

    @property
    def seconds(self) -> float:
        return sum(row.seconds for row in self.rows)

    def to_json(self, language: str) -> dict[str, Any]:
        """Return the report in the form of `polyhead verify --json`."""
        return {
            "format": "polyhead-verify-1",
            "language": language,
            "seconds": round(self.seconds, 3),
            "counts": self.counts,
            "checks": [row_json(row, language) for row in self.rows],
        }


def verify(
    names: Sequence[str] = (), progress: Callable[[ClaimRow], None] = lambda _: None
) -> NotesReport:
    """Check the claims with these ids or of these chapters (all if no name is given)."""
    rows = []
    for row in run_claims(select_claims(names)):
        rows.append(row)
        progress(row)
    return NotesReport(tuple(rows))


def run_claims(claims: Iterable[Claim]) -> Iterator[ClaimRow]:
    """Check claims one by one, each with the same random seed; an exception becomes a row.

    One thread computes: the tensors are tiny, and several threads would wait for each other.
    """
    threads = torch.get_num_threads()
    for claim in claims:
        started = time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            torch.set_num_threads(1)
            try:
                result, error = claim.check(), ""
            except Exception as problem:
                error = describe_exception(problem)
                result = ClaimResult(expected="", got=error, holds=False)
            finally:
                torch.set_num_threads(threads)
        yield ClaimRow(claim, result, time.perf_counter() - started, error)


def describe_exception(problem: Exception) -> str:
    """Return an exception in one line, with the innermost line of the library that raised it."""
    frames = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if Path(frame.filename).is_relative_to(PACKAGE) and frame.name != "run_claims"
    ]
    message = f"{type(problem).__name__}: {problem}".strip().splitlines()[0]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return message + where


# Output


def claim_json(claim: Claim, language: str) -> dict[str, Any]:
    """Return the texts of a claim in the form of `polyhead verify --list --json`."""
    return {
        "id": claim.id,
        "chapter": claim.chapter,
        "claim": claim.text.in_language(language),
        "formula": claim.formula,
        "note": claim.note,
        "explanation": claim.explanation.in_language(language),
        "code": [str(location(part)) for part in claim.code],
    }


def row_json(row: ClaimRow, language: str) -> dict[str, Any]:
    """Return a row as JSON; expected, got and noted are not translated."""
    return {
        **claim_json(row.claim, language),
        "expected": row.result.expected,
        "got": row.result.got,
        "noted": row.result.noted,
        "holds": row.result.holds,
        "verdict": row.verdict,
        "error": row.error,
        "seconds": round(row.seconds, 4),
    }


def explain(id: str, language: str) -> tuple[ClaimRow, dict[str, Any]]:
    """Check one claim; return its row, and its JSON with source locations and a script."""
    claim = find_claim(id)
    (row,) = run_claims([claim])
    places = [(place.name, str(place)) for place in map(location, claim.code)]
    return row, {**row_json(row, language), "places": places, "snippet": script(claim)}


def value_in_language(value: str, language: str) -> str:
    """Translate the phrases of a result."""
    if language == "ko":
        for english, korean in PHRASES:
            value = english.sub(korean, value)
    return value


def got_of(result: ClaimResult) -> str:
    """Return what was computed, or "the same" instead of repeating a long expected value."""
    repeated = result.got == result.expected and len(result.got) > LONG
    return "the same" if repeated else result.got


def shortened(value: str, most: int = 64) -> str:
    """Cut a long value for a table."""
    return value if len(value) <= most else value[: most - 1].rstrip() + "…"


# Source code


class SourceLocation(NamedTuple):
    """File and line of a part of the library."""

    name: str
    path: str  # such as polyhead/layers/attention.py
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def location(part: Any) -> SourceLocation:
    """Locate a function, method, property, class, instance or module."""
    part = inspect.unwrap(cast(Any, part.fget if isinstance(part, property) else part))
    if not isinstance(part, ModuleType) and not hasattr(part, "__qualname__"):
        part = type(part)
    lines, first = inspect.getsourcelines(part)
    decorators = next(i for i, line in enumerate(lines) if not line.lstrip().startswith("@"))
    file = Path(str(inspect.getsourcefile(part)))
    path = file.relative_to(PACKAGE.parent) if file.is_relative_to(PACKAGE) else Path(file.name)
    name = part.__name__ if isinstance(part, ModuleType) else part.__qualname__
    return SourceLocation(name, path.as_posix(), max(first, 1) + decorators)


def script(claim: Claim) -> str:
    """Return the check as a script, without empty lines, as Python's prompt requires."""
    name = claim.check.__name__
    source = textwrap.dedent(inspect.getsource(claim.check))
    body = [line for line in source[source.index(f"def {name}(") :].splitlines() if line.strip()]
    used = {node.id for node in ast.walk(ast.parse("\n".join(body))) if isinstance(node, ast.Name)}
    imports = ["import torch", *imports_of(sys.modules[claim.check.__module__], used - {"torch"})]
    seed = "torch.manual_seed(0)"
    return "\n".join([*imports, "", *body, "", seed, f"print({name}())"]) + "\n"


def imports_of(module: ModuleType, used: set[str]) -> Iterator[str]:
    """Yield imports of the names that a module imports or defines and a function uses."""
    own = [name for name in vars(module) if name in used]
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.asname or alias.name.split(".")[0]: alias for alias in node.names}
            node.names = [alias for name, alias in names.items() if name in used]
            own = [name for name in own if name not in names]
            if node.names:
                yield ast.unparse(node)
    if own:
        yield f"from {module.__name__} import {', '.join(own)}"
