"""Compare speeds on a machine with changing load.

The same program runs 20 to 40 % faster or slower from one minute to the next, because others use
the machine, or because it is warm. So nothing is measured alone: in every round each contestant
does its share of work, one after the other, each round beginning with another one. The result is
the ratio of two contestants *within* a round, and of these the median over all rounds:

    ratio = median_r ( rate of ours in round r / rate of the peer in round r )

Absolute rates are shown beside it and mean little elsewhere.
"""

import argparse
import gc
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from polyhead.devices import processor
from polyhead.errors import ConfigError, PolyheadError

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
ENOUGH_ROUNDS = 5  # fewer are for trying out, not for the record
PACKAGES = ("polyhead", "torch", "transformers", "sentencepiece", "sacrebleu")


@dataclass(frozen=True)
class Contestant:
    """System that does one round's work and returns its amount."""

    name: str
    work: Callable[[], int]


class Sample(NamedTuple):
    """One round of one contestant."""

    units: int
    seconds: float

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds


class Spread(NamedTuple):
    """Numbers in short: their median, the smallest and the largest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = 0 if self.median >= 100 else 2
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f} to {self.high:,.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the range of some numbers."""
    return Spread(median(values), min(values), max(values))


def interleave(
    contestants: Sequence[Contestant],
    rounds: int,
    *,
    clock: Callable[[], float] = time.perf_counter,
    tell: Callable[[str], None] = print,
) -> dict[str, list[Sample]]:
    """Let everyone work once in every round; each round begins with the next contestant."""
    samples: dict[str, list[Sample]] = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        first = number % len(contestants)
        for contestant in [*contestants[first:], *contestants[:first]]:
            gc.collect()  # garbage of one system must not slow another
            started = clock()
            units = contestant.work()
            sample = Sample(units, clock() - started)
            samples[contestant.name].append(sample)
            tell(f"round {number + 1}/{rounds}  {contestant.name}: {sample.rate:,.0f} per second")
    return samples


def paired_ratios(ours: Sequence[Sample], theirs: Sequence[Sample]) -> list[float]:
    """Return the ratio of speeds, round by round."""
    return [a.rate / b.rate for a, b in zip(ours, theirs, strict=True)]


def rates(samples: Sequence[Sample]) -> Spread:
    """Units per second over all rounds."""
    return spread([sample.rate for sample in samples])


def verdict(ratio: float, bar: float | None) -> str:
    """Return whether a ratio reaches its bar, as text."""
    if bar is None:
        return "none"
    return f"{bar:g}: {'reached' if ratio >= bar else 'MISSED'}"


def ranking(
    samples: Mapping[str, Sequence[Sample]], ours: str, bars: Mapping[str, float | None], unit: str
) -> list[str]:
    """Return a table of all contestants: their rates, and how many times faster ours is."""
    rows = []
    for name, results in samples.items():
        if name == ours:
            rows.append([name, str(rates(results)), "", ""])
            continue
        ratio = spread(paired_ratios(samples[ours], results))
        rows.append([name, str(rates(results)), str(ratio), verdict(ratio.median, bars.get(name))])
    return table(["", unit, f"{ours} is so many times faster", "bar"], rows)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [table_row(columns), "|" + "---|" * len(columns), *map(table_row, rows)]


def table_row(cells: Sequence[str]) -> str:
    """One line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def environment(script: str, arguments: Sequence[str]) -> list[str]:
    """Describe machine, time and command, enough to repeat a measurement."""
    load = os.getloadavg()[0]
    busy = "; THE MACHINE WAS BUSY, these figures mean little" if load > 0.5 else ""
    return [
        f"- {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {commit()}",
        f"- `{shlex.join(['python', f'benchmarks/{script}', *arguments])}`",
        f"- {processor()}, {cores()} usable cores, {torch.get_num_threads()} threads in torch; "
        f"{platform.system()}",
        f"- Python {platform.python_version()}, {', '.join(versions())}",
        f"- load of the machine before the start: {load:.1f}{busy}",
    ]


def versions() -> list[str]:
    """Return the packages that matter, as far as they are installed."""
    results = []
    for name in PACKAGES:
        try:
            results.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return results


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commit() -> str:
    """Return the commit that is being measured, with a mark if files were changed since."""
    command = ["git", "-C", str(FOLDER), "describe", "--always", "--dirty=, with changes"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return answer.stdout.strip() or "unknown"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that shows what a script says of itself as it is written."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_threads(options: argparse.ArgumentParser) -> None:
    """Return the option --threads, for `use_threads`."""
    help_text = "of torch; its own choice if not given"
    options.add_argument("--threads", type=int, default=None, help=help_text)


def use_threads(words: argparse.Namespace) -> None:
    """Set the number of torch threads."""
    if words.threads is not None:
        torch.set_num_threads(words.threads)


def require_rounds(rounds: int, recording: bool) -> None:
    """Refuse to record what was hardly measured."""
    if rounds < 1:
        raise ConfigError(f"--rounds {rounds}: at least one is needed")
    if recording and rounds < ENOUGH_ROUNDS:
        raise ConfigError(
            f"--rounds {rounds}: for the record at least {ENOUGH_ROUNDS} are needed; "
            "add rounds or leave --record out"
        )


def record(path: Path, heading: str, lines: Sequence[str]) -> None:
    """Append a section to the results."""
    before = path.read_text(encoding="utf-8").rstrip("\n") + "\n\n" if path.exists() else ""
    path.write_text(before + "\n".join([f"## {heading}", "", *lines]) + "\n", encoding="utf-8")


def record_row(path: Path, heading: str, columns: Sequence[str], row: Sequence[str]) -> None:
    """Append a row to the table of a section, creating it if necessary."""
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n") if path.exists() else []
    if f"## {heading}" not in lines:
        record(path, heading, table(columns, [row]))
        return
    start = lines.index(f"## {heading}") + 1
    end = next((i for i in range(start, len(lines)) if lines[i].startswith("## ")), len(lines))
    in_table = [i for i in range(start, end) if lines[i].startswith("|")]
    if not in_table or lines[in_table[0]] != table_row(columns):
        raise ConfigError(
            f"{path}: the section {heading!r} has no table with the columns {', '.join(columns)}; "
            "give the old section another heading"
        )
    lines.insert(in_table[-1] + 1, table_row(row))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(main: Callable[[Sequence[str]], int]) -> None:
    """Run a script: what a user can cause is one line on stderr, as in the command line."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        sys.exit(main(sys.argv[1:]))
    except PolyheadError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
