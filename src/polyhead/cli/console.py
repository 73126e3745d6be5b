"""Progress bars and the messages of training on stderr."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from polyhead.cli.streams import say
from polyhead.training.run_log import ProgressReporter

METRICS = {  # of a validation: label and number of decimals
    "bleu": ("BLEU", 1), "bits_per_character": ("bits/char", 3), "accuracy": ("accuracy", 3),
    "generator_accuracy": ("generator", 3), "precision": ("precision", 3), "recall": ("recall", 3),
}  # fmt: skip
LINE_SECONDS = 10.0  # between two progress lines without a terminal


def stderr_console() -> Console:
    """Return a console for everything that is not the result."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


class TrainingScreen(ProgressReporter):
    """Progress of a training run: a bar on a terminal, else a line every few seconds."""

    def __init__(self) -> None:
        self.console = stderr_console()
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.steps = 0
        self.last_line = 0.0

    def stage(self, text: str) -> None:
        """Print the name of a stage that starts."""
        self.console.print(f"{text} …", style="dim", markup=False)

    def notice(self, text: str) -> None:
        """Print a message."""
        self.console.print(text, markup=False)

    def begin(self, step: int, steps: int) -> None:
        """Draw the bar."""
        self.steps = steps
        if self.console.is_terminal:
            self.bar = Progress(
                SpinnerColumn(), BarColumn(bar_width=24), MofNCompleteColumn(),
                TextColumn("{task.description}"), TimeElapsedColumn(), TextColumn("left"),
                TimeRemainingColumn(), console=self.console,
            )  # fmt: skip
            self.task = self.bar.add_task("starting", total=steps, completed=step)
            self.bar.start()

    def step(self, metrics: dict[str, Any]) -> None:
        """Advance the bar, or print a line if the last one is old enough."""
        text = describe(metrics)
        if self.bar is not None:
            self.bar.update(self.task, completed=metrics["step"], description=text)
            return
        now = time.perf_counter()
        if now - self.last_line >= LINE_SECONDS or metrics["step"] == self.steps:
            self.last_line = now
            self.console.print(f"step {metrics['step']}/{self.steps}  {text}", markup=False)

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
    parts = [f"loss {loss:.3f}", *([f"ppl {perplexity:.1f}"] if has_perplexity else [])]
    parts.append(f"{metrics['tokens_per_second']:,.0f} tok/s")
    for name, (label, digits) in METRICS.items():
        if valid.get(name) is not None:
            parts.append(f"{label} {valid[name]:.{digits}f}")
    return "  ".join(parts)


@contextmanager
def counting(activity: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar for a known number of items; nothing without a terminal or for a few items."""
    console = stderr_console()
    if not console.is_terminal or total < 20:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
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
