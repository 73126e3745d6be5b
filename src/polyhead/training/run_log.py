"""Logs of a run: train.log and metrics.jsonl.

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
from polyhead.training.callbacks import Callback

METRICS, LOG = "metrics.jsonl", "train.log"
# Receives the progress of reading the data, before the log of the run may be written.
READING: ContextVar[Callback] = ContextVar("reading", default=Callback())  # noqa: B039


class RunLog:
    """The log files of a run; every message and every line of metrics also goes to a callback."""

    def __init__(self, folder: Path, callback: Callback) -> None:
        self.folder, self.callback = folder, callback
        self.is_silent = False

    def silence(self) -> None:
        """Report and write nothing from now on, as in all processes of a run but the first."""
        self.is_silent, self.callback = True, Callback()

    def stage(self, text: str) -> None:
        """Log the start of a stage that takes a while."""
        self._append(LOG, text)
        self.callback.on_stage(text)

    def notice(self, text: str) -> None:
        self._append(LOG, text)
        self.callback.on_notice(text)

    def record(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """Write one line of metrics.jsonl and train.log."""
        values = without_nan(values) or {}
        entry = {"kind": kind, "step": step, **values}
        self._append(METRICS, json.dumps(entry, allow_nan=False))
        words = [f"{kind} step {step}"]
        words += [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in values.items()
            if value is not None
        ]
        self._append(LOG, "  ".join(words))
        numbers = {k: v for k, v in values.items() if isinstance(v, int | float)}
        self.callback.on_record(kind, step, numbers)

    def forget_after(self, step: int) -> None:
        """Remove metrics of later steps, and a line that a crash left incomplete."""
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
            file.write(f"{line}\n")


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics.jsonl; none if there is no such file."""
    path = folder / METRICS
    if not path.exists():
        return []
    with os_errors_as_polyhead_errors(path):
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def without_nan(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replace numbers that are not finite by None, because JSON cannot hold them."""
    return values and {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def with_nan(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Replace None by NaN: the inverse of `without_nan` up to infinities."""
    return values and {name: math.nan if v is None else v for name, v in values.items()}
