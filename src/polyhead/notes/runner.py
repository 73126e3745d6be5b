"""Runs the checks: which there are, which are asked for, and what each of them found.

    for row in run(chosen(["masks", "B3"])):
        print(row.check.id, row.verdict)

A verdict says two things at once, because a note and a program can be wrong apart from each other:

    ok               the note is right, and our code does what it says
    note wrong       the note is not; our code does what is true
    note imprecise   the note leaves out what matters; our code does what is true
    BROKEN           our code does not do what is true

A check that fails with an exception is BROKEN too, with the exception in its row: one broken part
must not hide what the others have to say.
"""

import difflib
import importlib
import re
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from polyhead.errors import ConfigError
from polyhead.i18n import Words
from polyhead.notes.claims import CHECKS, Check, Finding

Verdict = Literal["ok", "note wrong", "note imprecise", "BROKEN"]


class Chapter(NamedTuple):
    """A module in `polyhead.notes.chapters`, and what its part of the table is called."""

    name: str
    title: Words


CHAPTERS = (
    Chapter("attention", Words("Attention", "어텐션")),
    Chapter("heads", Words("Heads", "멀티 헤드")),
    Chapter("masks", Words("Masks", "마스크")),
    Chapter("cross", Words("Cross-attention", "크로스 어텐션")),
    Chapter("positions", Words("Positions", "위치 정보")),
    Chapter("block", Words("Block and norms", "블록과 정규화")),
    Chapter("model", Words("Encoder and decoder", "인코더와 디코더")),
    Chapter("training", Words("Training", "학습")),
    Chapter("complexity", Words("Complexity", "복잡도")),
    Chapter("table2", Words("Table 2", "표 2")),
    Chapter("language", Words("BERT and GPT", "BERT와 GPT")),
    Chapter("vision", Words("ViT", "ViT")),
    Chapter("electra", Words("ELECTRA", "ELECTRA")),
    Chapter("reformer", Words("Reformer", "Reformer")),
    Chapter("recurrent", Words("Recurrent ladder", "순환 신경망에서 어텐션까지")),
)
VERDICTS: dict[Verdict, Words] = {
    "ok": Words("ok", "맞음"),
    "note wrong": Words("note wrong", "노트 오류"),
    "note imprecise": Words("note imprecise", "노트 부정확"),
    "BROKEN": Words("BROKEN", "코드 고장"),
}


@dataclass(frozen=True)
class ClaimRow:
    """One line of the table: a check, what it found, and how long it took."""

    check: Check
    finding: Finding
    seconds: float
    error: str = ""  # the exception, if there was one

    @property
    def verdict(self) -> Verdict:
        """Our own mistakes come first: a row whose code is broken says nothing about the note."""
        if not self.finding.holds:
            return "BROKEN"
        if self.check.note == "wrong":
            return "note wrong"
        return "note imprecise" if self.check.note == "imprecise" else "ok"


def load() -> list[Check]:
    """Import every chapter, and return all checks in the order of the table."""
    for chapter in CHAPTERS:
        importlib.import_module(f"polyhead.notes.chapters.{chapter.name}")
    order = {chapter.name: place for place, chapter in enumerate(CHAPTERS)}
    known = [check for check in CHECKS.values() if check.chapter in order]
    return sorted(known, key=lambda check: (order[check.chapter], in_order(check.id)))


def chosen(words: Sequence[str] = ()) -> list[Check]:
    """The checks of these chapters and IDs, in the order of the table; all if none is named."""
    checks = load()
    if not words:
        return checks
    names = {chapter.name for chapter in CHAPTERS}
    wanted: set[str] = set()
    for word in words:
        found = [c.id for c in checks if word.lower() in (c.id.lower(), c.chapter)]
        if not found and word.lower() not in names:
            raise ConfigError(unknown(word, [*sorted(names), *(c.id for c in checks)]))
        wanted.update(found)
    return [check for check in checks if check.id in wanted]


def find(id: str) -> Check:
    """The check with this ID."""
    checks = load()
    for check in checks:
        if check.id.lower() == id.lower():
            return check
    raise ConfigError(unknown(id, [check.id for check in checks]))


def unknown(word: str, known: Sequence[str]) -> str:
    """One line about a name that does not exist, with the nearest that does."""
    by_letters = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_letters, n=1, cutoff=0.5)
    hint = f"did you mean {by_letters[close[0]]}? " if close else ""
    return f"{word}: no such chapter or claim; {hint}polyhead verify --list shows them all"


def run(checks: Iterable[Check]) -> Iterator[ClaimRow]:
    """Run the checks one by one, each with the same random numbers whatever ran before it."""
    for check in checks:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            row = run_one(check)
        yield row


def run_one(check: Check) -> ClaimRow:
    """Run a check and look at the clock; an exception becomes a row."""
    started = time.perf_counter()
    try:
        finding, error = check.run(), ""
    except Exception as problem:
        error = described(problem)
        finding = Finding(expected="", got=error, holds=False)
    return ClaimRow(check, finding, time.perf_counter() - started, error)


def described(problem: Exception) -> str:
    """An exception in one line, with the last line of ours that it came through."""
    ours = [
        frame
        for frame in traceback.extract_tb(problem.__traceback__)
        if Path(frame.filename).is_relative_to(Path(__file__).parents[1])
        and frame.name != "run_one"
    ]
    what = f"{type(problem).__name__}: {problem}".strip().splitlines()[0]
    return f"{what} ({Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else what


def in_order(id: str) -> tuple[tuple[str, int], ...]:
    """B2 stands before B10."""
    parts = re.findall(r"([^\d]*)(\d*)", id)
    return tuple((letters, int(digits or 0)) for letters, digits in parts)


LONG = 24  # letters: a value that one does not take in at a glance

# Findings are written in English by the checks; these phrases of theirs are not names or numbers.
PHRASES = (
    (re.compile(r"^the same to (\S+)$"), r"오차 \1 이내로 같음"),
    (re.compile(r"^the same$"), "같음"),
    (re.compile(r"^yes$"), "예"),
    (re.compile(r"^no$"), "아니요"),
    (re.compile(r"^tensor (\S+)$"), r"텐서 \1"),
)


def value_in_language(value: str, language: str) -> str:
    """What a finding shows, in the reader's language where it is made of our own phrases."""
    if language == "ko":
        for english, korean in PHRASES:
            value = english.sub(korean, value)
    return value


def got_of(finding: Finding) -> str:
    """What was got, in words if it is a long value that stands beside it already."""
    same = finding.got == finding.expected and len(finding.got) > LONG
    return "the same" if same else finding.got


def shortened(value: str, most: int = 64) -> str:
    """A value for a table: its beginning, if it is long."""
    return value if len(value) <= most else value[: most - 1].rstrip() + "…"
