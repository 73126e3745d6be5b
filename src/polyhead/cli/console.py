"""Progress bars and the messages of training on stderr."""

import math
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from polyhead.cli.streams import say
from polyhead.training.run_log import ProgressReporter

METRICS = {  # of a validation: label and number of decimals
    "bleu": ("BLEU", 1), "bits_per_character": ("bits/char", 3), "accuracy": ("accuracy", 3),
    "generator_accuracy": ("generator", 3), "precision": ("precision", 3), "recall": ("recall", 3),
}  # fmt: skip
LINE_SECONDS = 10.0  # between two progress lines without a terminal


def stderr_console() -> Console:
    """Return a console for everything that is not the result.

    Lines are wrapped at words on a terminal, and not at all elsewhere.
    """
    is_terminal = Console(stderr=True).is_terminal
    return Console(stderr=True, highlight=False, soft_wrap=not is_terminal)


def print_definitions(rows: Mapping[str, str]) -> None:
    """Print names and texts on stdout, wrapped at words on a terminal and not at all elsewhere."""
    indent = max(map(len, rows)) + 4
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10**6
    for name, text in rows.items():
        start = f"  {name:{indent - 2}}"
        print(
            textwrap.fill(
                text, max(width, indent + 20), initial_indent=start, subsequent_indent=" " * indent
            )
        )


class TrainingScreen(ProgressReporter):
    """Progress of a training run: a bar on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self.console = stderr_console()
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.first, self.steps = 0, 0
        self.started = self.last_line = 0.0
        self.metrics: dict[str, Any] = {}

    def stage(self, text: str) -> None:
        """Print the name of a stage that starts."""
        self.console.print(f"{text} …", style="dim", markup=False)

    def notice(self, text: str) -> None:
        """Print a message."""
        self.console.print(text, markup=False)

    def begin(self, step: int, steps: int) -> None:
        """Draw the bar."""
        self.first, self.steps, self.started = step, steps, time.perf_counter()
        if self.console.is_terminal:
            width = self.console.width
            flexible = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            elapsed = (TimeElapsedColumn(), TextColumn("elapsed")) if width >= 100 else ()
            self.bar = Progress(
                BarColumn(bar_width=max(4, min(24, width - 76))), MofNCompleteColumn(),
                TimeRemainingColumn(), TextColumn("left"), *elapsed,
                TextColumn("{task.description}", table_column=flexible),
                console=self.console, expand=True,
            )  # fmt: skip
            self.task = self.bar.add_task("starting", total=steps, completed=step)
            self.bar.start()

    def step(self, metrics: dict[str, Any]) -> None:
        """Advance the bar, or print a line if the last one is old enough."""
        text, self.metrics = describe(metrics), metrics
        if self.bar is not None:
            self.bar.update(self.task, completed=metrics["step"], description=text)
            return
        now = time.perf_counter()
        if now - self.last_line >= LINE_SECONDS or metrics["step"] == self.steps:
            self.last_line = now
            done = metrics["step"] - self.first
            left = (now - self.started) * (self.steps - metrics["step"]) / max(1, done)
            self.console.print(
                f"step {metrics['step']}/{self.steps}  {text}  "
                f"{timedelta(seconds=round(left))} left",
                markup=False,
            )

    def validated(self, metrics: dict[str, Any]) -> None:
        """Show the metrics of a validation in the bar at once, also after the last step."""
        if self.bar is not None and self.metrics:
            text = describe({**self.metrics, "valid": metrics})
            self.bar.update(self.task, description=text)

    def end(self) -> None:
        """Leave the last state of the bar on the screen."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def describe(metrics: dict[str, Any]) -> str:
    """Return loss, perplexity, speed and the scores of the last validation as one line."""
    loss, valid = metrics["loss"], metrics["valid"]
    perplexity = math.exp(min(loss, 50.0)) if math.isfinite(loss) else math.nan
    has_perplexity = not valid or "perplexity" in valid  # ELECTRA's loss has none
    parts = [f"train loss {loss:.3f}", *([f"ppl {perplexity:.1f}"] if has_perplexity else [])]
    parts.append(f"{metrics['tokens_per_second']:,.0f} tok/s")
    for name, (label, digits) in METRICS.items():
        if valid.get(name) is not None:
            parts.append(f"{label} {valid[name]:.{digits}f}")
    return "  ".join(parts)


@contextmanager
def progress_bar(activity: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for a known number of items on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = stderr_console()
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(activity, total=total)
        yield lambda n: bar.advance(task, n)


@contextmanager
def download_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress of downloads: a bar per file on a terminal, else a line per file."""
    console = stderr_console()
    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:

        def advance(name: str, n_bytes: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
                if not console.is_terminal:
                    say(f"downloading {name} ({total:,} bytes)")
            bar.update(tasks[name], completed=n_bytes)

        yield advance
