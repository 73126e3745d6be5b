"""Claims of the course notes, and the registry of functions that check them.

    @claim("B3", Dot, ScaledDot)
    def variance_of_scores() -> ClaimResult:
        q, k = torch.randn(2, 20_000, 64)
        return close(expected=64.0, got=(q * k).sum(-1).var(), within=0.05)

The texts of a claim stand under its id in the TOML file beside the chapter's module. A check
computes the claim with the library's parts, which the decorator lists, and compares the result with
an independent value: torch, a published number, a formula written out, brute force. Where a note is
wrong, the check also computes the note's version and requires that it differs.
"""

import difflib
import importlib
import inspect
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from polyhead.errors import ConfigError
from polyhead.i18n import Words

CHAPTERS = (
    "attention", "heads", "masks", "cross", "positions", "block", "model", "training", "complexity",
    "table2", "language", "vision", "electra", "reformer", "recurrent",
)  # fmt: skip

NoteStatus = Literal["right", "wrong", "imprecise"]


@dataclass(frozen=True)
class ClaimResult:
    """Expected and computed value of a claim; `noted` is the value of a note that is not right."""

    expected: str
    got: str
    holds: bool
    noted: str = ""

    def with_note(self, value: object, *, differs: bool) -> "ClaimResult":
        """Add the note's value; the claim holds only if that differs from the true one."""
        return replace(self, noted=shown(value), holds=self.holds and differs)

    def if_also(self, condition: object) -> "ClaimResult":
        """Require a further condition, such as another result, for the claim to hold."""
        also = condition.holds if isinstance(condition, ClaimResult) else bool(condition)
        return replace(self, holds=self.holds and also)


Check = Callable[[], ClaimResult]


@dataclass(frozen=True)
class Claim:
    """A claim of the notes, its texts and the function that checks it."""

    id: str  # row of tests/notes/coverage.toml, such as B3
    chapter: str
    chapter_title: Words
    note: NoteStatus
    text: Words
    formula: str
    explanation: Words
    code: tuple[object, ...]
    check: Check


CLAIMS: dict[str, Claim] = {}


def claim(id: str, *code: object) -> Callable[[Check], Check]:
    """Register a function as the check of a claim; `code` are the parts of the library it uses."""

    def register(check: Check) -> Check:
        if id in CLAIMS:
            raise ValueError(f"claim {id} is registered twice")
        path = Path(inspect.getfile(inspect.unwrap(check)))
        chapter = path.stem.removesuffix("_claims")
        texts = read_texts(path.with_name(f"{chapter}.toml"))
        own = texts[id]
        CLAIMS[id] = Claim(
            id=id, chapter=chapter, chapter_title=Words(**texts["title"]),
            note=own.get("note", "right"), text=Words(**own["claim"]), formula=own["formula"],
            explanation=Words(**{k: " ".join(v.split()) for k, v in own["explanation"].items()}),
            code=code, check=check,
        )  # fmt: skip
        return check

    return register


@cache
def read_texts(path: Path) -> dict[str, Any]:
    """Read the texts of a chapter: its title, and a table for each claim."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def load_claims() -> list[Claim]:
    """Import every chapter and return all claims, chapter by chapter."""
    for chapter in CHAPTERS:
        importlib.import_module(f"polyhead.notes.chapters.{chapter}_claims")
    known = [claim for claim in CLAIMS.values() if claim.chapter in CHAPTERS]
    return sorted(known, key=lambda claim: CHAPTERS.index(claim.chapter))


def select_claims(names: Sequence[str] = (), *, of_chapters: bool = True) -> list[Claim]:
    """Return the claims with these ids or of these chapters (all if no name is given)."""
    claims, wanted = load_claims(), {name.lower(): name for name in names}
    chapters = CHAPTERS if of_chapters else ()
    known = {name.lower(): name for name in (*chapters, *(claim.id for claim in claims))}
    for key, name in wanted.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = f"Did you mean {known[near[0]]}? " if near else ""
            raise ConfigError(
                f"{name}: no such chapter or claim. {hint}`polyhead verify --list` lists them.",
                "unknown_claim",
            )
    return [c for c in claims if not wanted or {c.id.lower(), c.chapter} & wanted.keys()]


def find_claim(id: str) -> Claim:
    """Return the claim with this id."""
    return select_claims([id], of_chapters=False)[0]


# Comparisons


def close(expected: Any, got: Any, *, within: float) -> ClaimResult:
    """Compare numbers or tensors: differences of at most `within` (relative to values above 1)."""
    want, have = torch.as_tensor(expected).double(), torch.as_tensor(got).double()
    same_shape = want.shape == have.shape
    holds = same_shape and bool(((want - have).abs() <= within * want.abs().clamp(min=1.0)).all())
    if holds and want.dim():
        gap = (want - have).abs().max().item() if want.numel() else 0.0
        return ClaimResult(shown(expected), f"the same to {gap:.0e}" if gap else "the same", holds)
    return ClaimResult(shown(expected), shown(got), holds)


def near(expected: Any, got: Any, *, within: float) -> ClaimResult:
    """Compare numbers like `close`, and show those that were computed in any case."""
    return replace(close(expected, got, within=within), got=shown(got))


def same(expected: object, got: object) -> ClaimResult:
    """Compare two values or tensors bit by bit."""
    if isinstance(expected, Tensor) and isinstance(got, Tensor):
        return ClaimResult(shown(expected), shown(got), torch.equal(expected, got))
    return ClaimResult(shown(expected), shown(got), bool(expected == got))


def refusal(call: Callable[[], object]) -> str:
    """Return the first line of the error that a call raises, or an empty text."""
    try:
        call()
    except (ValueError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return ""


def gap(a: Tensor, b: Tensor) -> float:
    """Return the largest difference of two tensors."""
    return (a - b).abs().max().item()


def shown(value: object) -> str:
    """Format a value for a table: short numbers, large tensors by their shape."""
    if isinstance(value, Tensor):
        if value.numel() > 8:
            return "tensor " + "x".join(str(n) for n in value.shape)
        value = value.tolist()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    return str(value)
