"""What people see while they wait: progress on stderr, plain lines where there is no terminal."""

import math
import sys
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

SHOWN = {  # of a validation
    "bleu": ("BLEU", 1), "bits_per_character": ("bits/char", 3), "accuracy": ("accuracy", 3),
    "generator_accuracy": ("generator", 3), "precision": ("precision", 3), "recall": ("recall", 3),
}  # fmt: skip
QUIET_SECONDS = 10.0  # between two lines where there is no terminal


def console() -> Console:
    """Where everything goes that is not the result: stderr."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


class TrainingScreen:
    """Shows a run: a bar with speed, time left, loss and perplexity; lines where there is none."""

    def __init__(self) -> None:
        self.console = console()
        self.live = self.console.is_terminal
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.steps = 0
        self.last_line = 0.0
        self.started = time.perf_counter()

    def stage(self, what: str) -> None:
        """Something that takes a while begins."""
        self.console.print(f"{what} …", style="dim", markup=False)

    def notice(self, what: str) -> None:
        """Something worth a line."""
        self.console.print(what, markup=False)

    def begin(self, step: int, steps: int) -> None:
        """Draw the bar."""
        self.steps = steps
        self.started = time.perf_counter()
        if not self.live:
            return
        self.bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        self.task = self.bar.add_task("starting", total=steps, completed=step)
        self.bar.start()

    def step(self, metrics: dict[str, Any]) -> None:
        """Move the bar, or write a line now and then."""
        text = describe(metrics)
        if self.bar is not None:
            self.bar.update(self.task, completed=metrics["step"], description=text)
            return
        now = time.perf_counter()
        if now - self.last_line >= QUIET_SECONDS or metrics["step"] == self.steps:
            self.last_line = now
            self.console.print(f"step {metrics['step']}/{self.steps}  {text}", markup=False)

    def end(self) -> None:
        """Leave the last state of the bar on the screen."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def describe(metrics: dict[str, Any]) -> str:
    """Loss, perplexity and speed in a few words, and what the last validation found."""
    loss = metrics["loss"]
    perplexity = math.exp(min(loss, 50.0)) if math.isfinite(loss) else math.nan
    has_one = not metrics["valid"] or "perplexity" in metrics["valid"]  # a few losses have none
    ppl = f"  ppl {perplexity:.1f}" if has_one else ""
    words = f"loss {loss:.3f}{ppl}  {metrics['tokens_per_second']:,.0f} tok/s"
    for name, (label, digits) in SHOWN.items():
        if metrics["valid"].get(name) is not None:
            words += f"  {label} {metrics['valid'][name]:.{digits}f}"
    return words


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for a known number of things; nothing where there is no terminal or little to do."""
    screen = console()
    if not screen.is_terminal or total < 20:
        yield lambda _: None
        return
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*parts, TimeRemainingColumn(), console=screen, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.advance(task, n)


@contextmanager
def fetching() -> Iterator[Callable[[str, int, int], None]]:
    """Progress of downloads: a bar a file on a terminal, else a line a file."""
    screen = console()
    if not screen.is_terminal:
        named: set[str] = set()

        def mention(name: str, _n_bytes: int, total: int) -> None:
            if name not in named:
                named.add(name)
                say(f"fetching {name} ({total:,} bytes)")

        yield mention
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=screen
    ) as bar:
        tasks: dict[str, TaskID] = {}

        def move(name: str, n_bytes: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=n_bytes)

        yield move


def say(text: str) -> None:
    """A line for people, beside the result."""
    print(text, file=sys.stderr, flush=True)
