"""Progress of a training run: a bar on a terminal, a live curve in a notebook, lines elsewhere."""

import html
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any, Literal, get_args

from rich import progress
from rich.console import Console
from rich.table import Column

from polyhead.errors import ConfigError
from polyhead.training.callbacks import (
    Callback,
    TrainingEnd,
    TrainingStart,
    TrainingStep,
    Validation,
)
from polyhead.training.result import Curve, read_curve, scores_in_words

ProgressKind = Literal["auto", "bar", "notebook", "lines", "none"]
LINE_SECONDS = 10.0  # between two progress lines without a terminal
DRAW_SECONDS = 1.0  # between two updates in a notebook
N_MESSAGES = 6  # that a notebook shows


def stderr_console(*, terminal: bool | None = None) -> Console:
    """Return a console for everything that is not the result.

    Lines are wrapped at words on a terminal, and not at all elsewhere.
    """
    is_terminal = Console(stderr=True).is_terminal if terminal is None else terminal
    return Console(stderr=True, highlight=False, soft_wrap=not is_terminal, force_terminal=terminal)


def is_notebook() -> bool:
    """Return True in a kernel of Jupyter, which can show HTML."""
    if "ipykernel" not in sys.modules or "IPython" not in sys.modules:
        return False
    return type(import_module("IPython").get_ipython()).__name__ == "ZMQInteractiveShell"


def choose_display(kind: str = "auto") -> Callback:
    """Return the display of this kind; "auto" takes the one that suits the output."""
    if kind not in get_args(ProgressKind):
        expected = ", ".join(get_args(ProgressKind))
        raise ConfigError(f"progress = {kind!r}: expected one of {expected}", "unknown_progress")
    if kind == "none":
        return Callback()
    if kind == "notebook" or (kind == "auto" and is_notebook()):
        return NotebookDisplay()
    return TrainingScreen(bar={"auto": None, "bar": True, "lines": False}[kind])


class Pace:
    """The pace of a session, from which follows the time that is left."""

    def __init__(self, start: TrainingStart) -> None:
        self.first, self.steps, self.started = start.step, start.steps, time.perf_counter()

    def left(self, step: int) -> timedelta:
        per_step = (time.perf_counter() - self.started) / max(1, step - self.first)
        return timedelta(seconds=round(per_step * (self.steps - step)))


class TrainingScreen(Callback):
    """Progress on stderr: a bar on a terminal, else a line every few seconds."""

    def __init__(self, *, bar: bool | None = None) -> None:
        self.console = stderr_console(terminal=bar)
        self.bar: progress.Progress | None = None
        self.task = progress.TaskID(0)
        self.last_line = 0.0
        self.step: TrainingStep | None = None
        self.metrics: Mapping[str, float] = {}

    def on_stage(self, text: str) -> None:
        self.console.print(f"{text} …", style="dim", markup=False)

    def on_notice(self, text: str) -> None:
        self.console.print(text, markup=False)

    def on_start(self, start: TrainingStart) -> None:
        self.pace, self.metrics = Pace(start), start.metrics
        if self.console.is_terminal:
            width = self.console.width
            flexible = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            elapsed = (progress.TimeElapsedColumn(), "elapsed") if width >= 100 else ()
            self.bar = progress.Progress(
                progress.BarColumn(bar_width=max(4, min(24, width - 76))),
                progress.MofNCompleteColumn(), progress.TimeRemainingColumn(), "left", *elapsed,
                progress.TextColumn("{task.description}", table_column=flexible),
                console=self.console, expand=True,
            )  # fmt: skip
            self.task = self.bar.add_task("starting", total=start.steps, completed=start.step)
            self.bar.start()

    def on_step(self, step: TrainingStep) -> None:
        self.step, text = step, describe(step, self.metrics)
        if self.bar is not None:
            self.bar.update(self.task, completed=step.step, description=text)
            return
        now = time.perf_counter()  # a line, if the last one is old enough
        if now - self.last_line >= LINE_SECONDS or step.step == self.pace.steps:
            self.last_line = now
            place = f"step {step.step}/{self.pace.steps}"
            self.console.print(f"{place}  {text}  {self.pace.left(step.step)} left", markup=False)

    def on_validation(self, validation: Validation) -> None:
        self.metrics = validation.metrics
        if self.bar is not None and self.step is not None:  # also after the last step
            self.bar.update(self.task, description=describe(self.step, self.metrics))

    def on_end(self, end: TrainingEnd) -> None:  # noqa: ARG002
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def describe(step: TrainingStep, valid: Mapping[str, float]) -> str:
    """Return loss, perplexity, speed and the scores of the last validation as one line."""
    perplexity = math.exp(min(step.loss, 50.0)) if math.isfinite(step.loss) else math.nan
    parts = [f"train loss {step.loss:.3f}"]
    if "perplexity" in valid:  # not of ELECTRA or of classifiers
        parts.append(f"ppl {perplexity:.1f}")
    parts.append(f"{step.tokens_per_second:,.0f} tok/s")
    return "  ".join([*parts, *scores_in_words(valid)])


class NotebookDisplay(Callback):
    """Progress in a notebook: a bar, the curve and the last messages, updated in place."""

    def __init__(self) -> None:
        shown: Any = import_module("IPython.display")
        self.as_html: Callable[[str], Any] = shown.HTML
        self.handle: Any = shown.display(shown.HTML("starting …"), display_id=True)
        self.messages: deque[str] = deque(maxlen=N_MESSAGES)
        self.pace: Pace | None = None
        self.status, self.done, self.drawn = "", 0, -math.inf
        self.steps: list[TrainingStep] = []
        self.validations: list[Validation] = []
        self.metrics: Mapping[str, float] = {}

    def on_stage(self, text: str) -> None:
        self.status = f"{text} …"
        self.draw(force=True)

    def on_notice(self, text: str) -> None:
        self.messages.append(text)
        self.draw(force=True)

    def on_start(self, start: TrainingStart) -> None:
        known = read_curve(start.folder)
        self.steps, self.validations = list(known.steps), list(known.validations)
        self.pace, self.metrics, self.done = Pace(start), start.metrics, start.step

    def on_record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        if kind == "train":
            numbers = {"loss": math.nan, "norm": math.nan, **values}
            self.steps.append(TrainingStep(step, **numbers))  # type: ignore[arg-type]

    def on_rewind(self, step: int) -> None:
        self.steps = [at for at in self.steps if at.step <= step]
        self.validations = [at for at in self.validations if at.step <= step]

    def on_step(self, step: TrainingStep) -> None:
        assert self.pace is not None
        self.done = step.step
        left = self.pace.left(step.step)
        self.status = f"{describe(step, self.metrics)}  {left} left"
        self.draw()

    def on_validation(self, validation: Validation) -> None:
        self.validations.append(validation)
        self.metrics = validation.metrics
        self.draw(force=True)

    def on_end(self, end: TrainingEnd) -> None:
        parts = [f"{end.reason} at step {end.step:,}", *scores_in_words(end.metrics)]
        self.status = "  ".join(parts)
        self.draw(force=True)

    def draw(self, *, force: bool = False) -> None:
        """Replace the display, unless it was drawn a moment ago."""
        if not force and time.perf_counter() - self.drawn < DRAW_SECONDS:
            return
        bar = chart = ""
        if self.pace is not None:
            done, steps = self.done, self.pace.steps
            bar = f'<progress value="{done}" max="{steps}"></progress> {done:,}/{steps:,} '
            chart = Curve(tuple(self.steps), tuple(self.validations)).plot()._repr_html_()
        messages = html.escape("\n".join(self.messages))
        self.handle.update(
            self.as_html(f"<div>{bar}{html.escape(self.status)}</div>{chart}<pre>{messages}</pre>")
        )
        self.drawn = time.perf_counter()
