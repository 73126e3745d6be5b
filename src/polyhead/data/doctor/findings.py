"""Report of the corpus check, as text and as JSON; `findings.toml` describes all problems."""

import json
import tomllib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal

from polyhead.data.line_spool import LineSpool
from polyhead.data.parallel import PairReader

Values = Mapping[str, Any]  # inserted into titles and advice
Severity = Literal["ok", "note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")
MAX_EXAMPLES = 3
WIDTH = 44  # characters shown of each side of an example
KINDS = tomllib.loads((files(__package__) / "findings.toml").read_text(encoding="utf-8"))


class CheckedPairs:
    """Pairs of files in a spool; only their places, 8 bytes each, are in memory."""

    def __init__(self, reader: PairReader) -> None:
        self.reader, self.places, self.spool = reader, array("i"), LineSpool(2)
        self.spool.write(self._records())
        self.sources, self.targets = self.spool.columns
        self.skipped = reader.skipped.first

    def _records(self) -> Iterator[tuple[str, str]]:
        for source, target, file, line in self.reader.with_places():
            self.places.extend((file, line))
            yield source, target

    def __len__(self) -> int:
        return len(self.spool)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)

    def where(self, index: int) -> str:
        """Return the place of a pair, as `file:line`."""
        file, line = self.places[2 * index : 2 * index + 2]
        return f"{self.reader.names[file][0]}:{line}"


@dataclass(frozen=True)
class FindingExample:
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
        severities = [finding.severity for finding in self.findings]
        counts = {level: severities.count(level) for level in SEVERITIES[::-1]}
        summary = ", ".join(f"{n} {level}{'s' * (n > 1)}" for level, n in counts.items() if n)
        lines = [f"{self.n_pairs:,} pairs: " + (summary or "No problems found.")]
        for finding in self.findings:
            lines += ["", f"{finding.severity}: {finding.title} ({finding.count:,})"]
            lines += [f"  {example.where}  {example.text}".rstrip() for example in finding.examples]
            lines.append(f"  → {finding.advice}")
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        findings = [asdict(finding) for finding in self.findings]
        report = {"pairs": self.n_pairs, "worst": self.worst, "findings": findings}
        return json.dumps(report, ensure_ascii=False, indent=2)


def describe(
    name: str, examples: Sequence[FindingExample], share: float, count: int, values: Values
) -> CorpusFinding:
    """Return a finding as `findings.toml` words it; the share of the corpus gives its severity."""
    kind = KINDS[name]
    severity: Severity = "note"
    if share >= kind["warning"]:
        severity = "error" if share >= kind["error"] else "warning"
    title, advice = kind["title"].format_map(values), kind["advice"].format_map(values)
    return CorpusFinding(name, severity, title, count, tuple(examples[:MAX_EXAMPLES]), advice)


def about_pairs(
    name: str, pairs: CheckedPairs, indices: Sequence[int], values: Values
) -> Iterator[CorpusFinding]:
    """Yield a finding about these pairs, if there are any."""
    first = indices[:MAX_EXAMPLES]
    examples = [
        FindingExample(pairs.where(index), f"{excerpt(source)} | {excerpt(target)}")
        for index, (source, target) in zip(
            first, zip(*pairs.spool.select(first).columns, strict=True), strict=True
        )
    ]
    if indices:
        yield describe(name, examples, len(indices) / len(pairs), len(indices), values)


def excerpt(text: str) -> str:
    """Return the start of a line, with unprintable characters escaped."""
    shown = text[:WIDTH] + ("…" if len(text) > WIDTH else "")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
