"""Report of the corpus check, as text and as JSON.

A note is good to know, a warning is worth a look before training, an error would spoil training or
its evaluation.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from polyhead.data.parallel import Pairs

Severity = Literal["ok", "note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")
MAX_EXAMPLES = 3
WIDTH = 44  # characters shown of each side of an example


class FindingExample(NamedTuple):
    """An excerpt and its place, as `file:line`."""

    where: str
    text: str


@dataclass(frozen=True)
class CorpusFinding:
    """A kind of problem: its frequency, a few examples, and advice."""

    name: str
    severity: Severity
    title: str
    count: int
    examples: tuple[FindingExample, ...]
    advice: str


@dataclass(frozen=True)
class CorpusReport:
    """All findings, the most severe first."""

    n_pairs: int
    findings: tuple[CorpusFinding, ...]

    @property
    def worst(self) -> Severity:
        """The highest severity of the findings, "ok" if there are none."""
        return max(
            (finding.severity for finding in self.findings), key=SEVERITIES.index, default="ok"
        )

    def text(self) -> str:
        """Format for a terminal, without control characters."""
        lines = [f"{self.n_pairs:,} pairs: " + (summary(self.findings) or "No problems found.")]
        for finding in self.findings:
            lines += ["", f"{finding.severity}: {finding.title} ({finding.count:,})"]
            lines += [f"  {example.where}  {example.text}".rstrip() for example in finding.examples]
            lines.append(f"  → {finding.advice}")
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """Format as JSON."""
        findings = [
            {**asdict(finding), "examples": [example._asdict() for example in finding.examples]}
            for finding in self.findings
        ]
        report = {"pairs": self.n_pairs, "worst": self.worst, "findings": findings}
        return json.dumps(report, ensure_ascii=False, indent=2)


def summary(findings: Sequence[CorpusFinding]) -> str:
    """Count the findings of each severity."""
    counts = {
        level: sum(finding.severity == level for finding in findings) for level in SEVERITIES[::-1]
    }
    return ", ".join(f"{n} {level}{'s' * (n > 1)}" for level, n in counts.items() if n)


def by_share(count: int, total: int, *, warning: float, error: float = 2.0) -> Severity:
    """Return the severity of a problem by the share of the corpus that has it."""
    share = count / total
    return "error" if share >= error else "warning" if share >= warning else "note"


def examples_of(pairs: Pairs, indices: Sequence[int]) -> tuple[FindingExample, ...]:
    """Return the first few of these pairs."""
    return tuple(
        FindingExample(pairs.where(i), f"{excerpt(pairs.sources[i])} | {excerpt(pairs.targets[i])}")
        for i in indices[:MAX_EXAMPLES]
    )


def excerpt(text: str) -> str:
    """Return the start of a line, with unprintable characters escaped."""
    shown = text[:WIDTH] + ("…" if len(text) > WIDTH else "")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
