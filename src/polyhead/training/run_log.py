"""Logs of a run: progress reports, train.log, metrics.jsonl and TensorBoard.

A resumed run removes the lines of metrics.jsonl after its checkpoint, so that the file equals that
of an uninterrupted run.
"""

import json
import math
import time
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from polyhead.atomic_file import os_errors_as_polyhead_errors, sync, write_text
from polyhead.errors import MissingError, install_command

METRICS, LOG = "metrics.jsonl", "train.log"


class ProgressReporter:
    """Receiver of progress reports, such as the progress bar; this base class ignores all."""

    def stage(self, text: str) -> None:
        """Report the start of a stage that takes a while."""

    def notice(self, text: str) -> None:
        """Report one line."""

    def begin(self, step: int, steps: int) -> None:
        """Report the start of training, from `step` to `steps`."""

    def step(self, metrics: dict[str, Any]) -> None:
        """Report one update."""

    def validated(self, metrics: dict[str, Any]) -> None:
        """Report the metrics of a validation."""

    def end(self) -> None:
        """Report that training ended or was interrupted."""


# Receives the progress of reading the data, before the log of the run may be written.
READING: ContextVar[ProgressReporter] = ContextVar("reading", default=ProgressReporter())  # noqa: B039


class RunLog:
    """The log files of a run; every notice also goes to the reporter."""

    def __init__(
        self, folder: Path, reporter: ProgressReporter, *, tensorboard: bool = False
    ) -> None:
        self.folder = folder
        self.reporter = reporter
        self.is_silent = False
        self._writer_class: Any = None
        self._writer: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard.writer import SummaryWriter
            except ImportError:
                raise MissingError(
                    f"TensorBoard is not installed. Install it with: {install_command('tb')}",
                    "no_tensorboard",
                ) from None
            self._writer_class = SummaryWriter

    def silence(self) -> None:
        """Report and write nothing from now on, as in all processes of a run but the first."""
        self.is_silent, self.reporter, self._writer_class = True, ProgressReporter(), None

    def stage(self, text: str) -> None:
        """Log the start of a stage that takes a while."""
        self._append(LOG, text)
        self.reporter.stage(text)

    def notice(self, text: str) -> None:
        self._append(LOG, text)
        self.reporter.notice(text)

    def record(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Write one line of metrics.jsonl, train.log and TensorBoard."""
        values = without_nan(values) or {}
        entry = {"kind": kind, "step": step, **values}
        self._append(METRICS, json.dumps(entry, allow_nan=False))
        numbers = [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in values.items()
            if value is not None
        ]
        self._append(LOG, "  ".join([f"{kind} step {step}", *numbers]))
        if self._writer is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._writer.add_scalar(f"{kind}/{name}", value, step)
            self._writer.flush()

    def forget_after(self, step: int) -> None:
        """Remove metrics of later steps, and a line that a crash left incomplete."""
        if self._writer_class is not None:
            if self._writer is not None:
                self._writer.close()
            directory = str(self.folder / "tensorboard")
            self._writer = self._writer_class(directory, purge_step=step + 1)
        path = self.folder / METRICS
        if self.is_silent or not path.exists():
            return
        with os_errors_as_polyhead_errors(path):
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        kept = []
        for line in lines:
            with suppress(ValueError, TypeError, KeyError, RecursionError):
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
        write_text(path, "".join(kept))

    def validations(self) -> list[dict[str, Any]]:
        """Return the metrics of all validations with their steps."""
        path = self.folder / METRICS
        if not path.exists():
            return []
        with os_errors_as_polyhead_errors(path):
            entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [
            {name: value for name, value in entry.items() if name != "kind"}
            for entry in entries
            if entry["kind"] == "valid"
        ]

    def sync(self) -> None:
        """Flush the metrics to disk, before a checkpoint of the same step is written."""
        path = self.folder / METRICS
        if path.exists():
            with os_errors_as_polyhead_errors(path):
                sync(path)

    def _append(self, name: str, line: str) -> None:
        if self.is_silent:
            return
        path = self.folder / name
        if name == LOG:
            line = f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}"
        with (
            os_errors_as_polyhead_errors(path),
            path.open("a", encoding="utf-8", errors="replace") as file,
        ):
            file.write(line + "\n")


def without_nan(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replace numbers that are not finite by None, because JSON cannot hold them."""
    if values is None:
        return None
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def with_nan(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replace None by NaN: the inverse of `without_nan` up to infinities."""
    if values is None:
        return None
    return {name: math.nan if value is None else value for name, value in values.items()}
