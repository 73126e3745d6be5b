"""What the data doctor found, for people and for programs.

A note is good to know, a warning is worth a look before training, an error would spoil the training
or the measurement of it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from polyhead.data.parallel import Pairs

Severity = Literal["ok", "note", "warning", "error"]
ORDER: tuple[Severity, ...] = ("ok", "note", "warning", "error")
MAX_EXAMPLES = 3
WIDTH = 44  # characters shown of each side of an example


class Example(NamedTuple):
    """A place, as `file:line`, and what stands there."""

    where: str
    text: str


@dataclass(frozen=True)
class CorpusFinding:
    """One kind of trouble, how often it occurs, a few places, and what to do about it."""

    name: str
    severity: Severity
    title: str
    count: int
    examples: tuple[Example, ...]
    advice: str


@dataclass(frozen=True)
class CorpusReport:
    """All findings, the worst first."""

    n_pairs: int
    findings: tuple[CorpusFinding, ...]

    @property
    def worst(self) -> Severity:
        """The severity of the worst finding, "ok" if there is none."""
        return max((found.severity for found in self.findings), key=ORDER.index, default="ok")

    def text(self) -> str:
        """For a terminal: plain text without control characters, whatever the corpus holds."""
        lines = [f"{self.n_pairs:,} pairs: " + (summary(self.findings) or "nothing to complain of")]
        for found in self.findings:
            lines += ["", f"{found.severity}: {found.title} ({found.count:,})"]
            lines += [f"  {example.where}  {example.text}".rstrip() for example in found.examples]
            lines.append(f"  → {found.advice}")
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """For a program."""
        findings = [
            {**asdict(found), "examples": [example._asdict() for example in found.examples]}
            for found in self.findings
        ]
        report = {"pairs": self.n_pairs, "worst": self.worst, "findings": findings}
        return json.dumps(report, ensure_ascii=False, indent=2)


def summary(findings: Sequence[CorpusFinding]) -> str:
    """How many findings of each severity."""
    counts = {level: sum(found.severity == level for found in findings) for level in ORDER[::-1]}
    return ", ".join(f"{n} {level}{'s' * (n > 1)}" for level, n in counts.items() if n)


def by_share(count: int, total: int, *, warning: float, error: float = 2.0) -> Severity:
    """A severity by how large a part of the corpus is concerned."""
    share = count / total
    return "error" if share >= error else "warning" if share >= warning else "note"


def examples(pairs: Pairs, indices: Sequence[int]) -> tuple[Example, ...]:
    """The first few of these pairs."""
    return tuple(
        Example(pairs.where(i), f"{excerpt(pairs.sources[i])} | {excerpt(pairs.targets[i])}")
        for i in indices[:MAX_EXAMPLES]
    )


def excerpt(text: str) -> str:
    """The beginning of a line, with everything that is not printable spelt out."""
    shown = text[:WIDTH] + ("…" if len(text) > WIDTH else "")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
