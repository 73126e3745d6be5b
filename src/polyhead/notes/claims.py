"""What a check is: a claim of the notes, and a function that finds out.

    @check(
        "B3",
        claim=Words("Var(q·k) = d_k, and 1 after the scale", "Var(q·k) = d_k, 나누면 1"),
        formula="Var(Σ q_i k_i) = Σ Var(q_i) Var(k_i) = d_k",
        explain=Words("Two sentences or three in plain words.", "같은 내용."),
        code=(attention_weights,),
    )
    def variance_of_scores() -> Finding:
        q, k = torch.randn(2, 20_000, 64)
        return close(expected=64.0, got=(q * k).sum(-1).var(), within=0.05)

A check computes what it claims with the library's own parts (`code` names them; it is shown with
file and line) and compares it with something that is not ours: torch, a published number, a formula
written out, brute force. Where a note is wrong, the check computes what the note would give too
(`noted`), and must find it different: the mistake is shown, not quoted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from polyhead.i18n import Words

Note = Literal["right", "wrong", "imprecise"]


@dataclass(frozen=True)
class Finding:
    """What a check found out. `noted` is what the note's version gives, if that is wrong."""

    expected: str
    got: str
    holds: bool
    noted: str = ""

    def but_noted(self, value: Any, *, differs: bool) -> "Finding":
        """The same, with the note's value beside it; a mistake without a difference is none."""
        return replace(self, noted=shown(value), holds=self.holds and differs)


@dataclass(frozen=True)
class Check:
    """One row of the table."""

    id: str  # the row of the coverage table, such as B3
    chapter: str  # the module's name
    note: Note
    claim: Words
    formula: str
    explain: Words
    code: tuple[Any, ...]
    run: Callable[[], Finding]


CHECKS: dict[str, Check] = {}


def check(
    id: str,
    *,
    claim: Words,
    formula: str,
    explain: Words,
    code: tuple[Any, ...],
    note: Note = "right",
) -> Callable[[Callable[[], Finding]], Callable[[], Finding]]:
    """Register a function as the check of this row; its chapter is the module it stands in."""

    def register(run: Callable[[], Finding]) -> Callable[[], Finding]:
        if id in CHECKS:
            raise ValueError(f"two checks are called {id}")
        chapter = run.__module__.rsplit(".", 1)[-1]
        CHECKS[id] = Check(id, chapter, note, claim, formula, explain, code, run)
        return run

    return register


def close(expected: Any, got: Any, *, within: float) -> Finding:
    """Two numbers or tensors that differ by at most `within` (relative to values above 1)."""
    want, have = torch.as_tensor(expected).double(), torch.as_tensor(got).double()
    same_shape = want.shape == have.shape
    holds = same_shape and bool(((want - have).abs() <= within * want.abs().clamp(min=1.0)).all())
    if holds and want.dim():
        gap = (want - have).abs().max().item() if want.numel() else 0.0
        return Finding(shown(expected), f"the same to {gap:.0e}" if gap else "the same", holds)
    return Finding(shown(expected), shown(got), holds)


def same(expected: Any, got: Any) -> Finding:
    """Two values or tensors that are equal to the last bit."""
    if isinstance(expected, Tensor) and isinstance(got, Tensor):
        return Finding(shown(expected), shown(got), torch.equal(expected, got))
    return Finding(shown(expected), shown(got), bool(expected == got))


def shown(value: Any) -> str:
    """A value as a table can hold it: numbers short, tensors by their shape if they are large."""
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
