"""What a run says while it works: to whoever watches, to a log, and to metrics.jsonl.

metrics.jsonl has one JSON object a line: {"kind": "train", …} every `log_every` steps and
{"kind": "valid", …} at each validation. A resumed run first removes what lies after its checkpoint,
so that the file is the same as that of a run that was never interrupted.
"""

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from polyhead.checkpoint.atomic_dir import os_errors_as_polyhead_errors, sync, write_text
from polyhead.errors import MissingError

METRICS, LOG = "metrics.jsonl", "train.log"


@runtime_checkable
class ProgressReporter(Protocol):
    """Whoever watches a run. The command line draws a progress bar; a program may be silent."""

    def stage(self, what: str) -> None:
        """Something that takes a while begins."""
        ...

    def notice(self, what: str) -> None:
        """Something worth a line."""
        ...

    def begin(self, step: int, steps: int) -> None:
        """Training goes from `step` to `steps`."""
        ...

    def step(self, metrics: dict[str, Any]) -> None:
        """One update was made."""
        ...

    def end(self) -> None:
        """Training is over, or was interrupted."""
        ...


class NullReporter:
    """A reporter that says nothing."""

    def stage(self, what: str) -> None:
        """Say nothing."""

    def notice(self, what: str) -> None:
        """Say nothing."""

    def begin(self, step: int, steps: int) -> None:
        """Say nothing."""

    def step(self, metrics: dict[str, Any]) -> None:
        """Say nothing."""

    def end(self) -> None:
        """Say nothing."""


class RunLog:
    """A run's memory: train.log for people, metrics.jsonl for programs, TensorBoard if asked."""

    def __init__(
        self, folder: Path, reporter: ProgressReporter, *, tensorboard: bool = False
    ) -> None:
        self.folder = folder
        self.reporter = reporter
        self._writer_class = summary_writer() if tensorboard else None
        self._writer: Any = None

    def stage(self, what: str) -> None:
        """Something that takes a while begins."""
        self._log(what)
        self.reporter.stage(what)

    def notice(self, what: str) -> None:
        """Something worth a line."""
        self._log(what)
        self.reporter.notice(what)

    def record(self, kind: str, step: int, values: dict[str, Any]) -> None:
        """One line of metrics.jsonl, and the same in words."""
        entry = {"kind": kind, "step": step, **(without_nan(values) or {})}
        self._append(METRICS, json.dumps(entry, allow_nan=False))
        self._log(in_words(entry))
        if self._writer is not None:
            for name, value in entry.items():
                if isinstance(value, int | float) and name != "step":
                    self._writer.add_scalar(f"{kind}/{name}", value, step)
            self._writer.flush()

    def forget_after(self, step: int) -> None:
        """Remove the metrics of steps that will be done again, and a line torn by a crash."""
        if self._writer_class is not None:
            if self._writer is not None:
                self._writer.close()
            place = str(self.folder / "tensorboard")
            self._writer = self._writer_class(place, purge_step=step + 1)
        path = self.folder / METRICS
        if not path.exists():
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
        """Wait until the disk has the metrics: a checkpoint must not know more than they do."""
        path = self.folder / METRICS
        if path.exists():
            with os_errors_as_polyhead_errors(path):
                sync(path)

    def _log(self, what: str) -> None:
        self._append(LOG, f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {what}")

    def _append(self, name: str, line: str) -> None:
        path = self.folder / name
        with (
            os_errors_as_polyhead_errors(path),
            path.open("a", encoding="utf-8", errors="replace") as file,
        ):
            file.write(line + "\n")


def without_nan(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """The same with null for what is not finite, because JSON has no word for it."""
    if values is None:
        return None
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def with_nan(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """The inverse of `without_nan`, as far as there is one."""
    if values is None:
        return None
    return {name: math.nan if value is None else value for name, value in values.items()}


def in_words(entry: dict[str, Any]) -> str:
    """A line of metrics as a line to read."""
    shown = [f"{entry['kind']} step {entry['step']}"]
    for name, value in entry.items():
        if name in ("kind", "step") or value is None:
            continue
        number = f"{value:.4g}" if isinstance(value, float) else str(value)
        shown.append(f"{name} {number}")
    return "  ".join(shown)


def summary_writer() -> Any:
    """TensorBoard's writer, or an error that says how to get it."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise MissingError(
            "TensorBoard is not installed; add it with: pip install 'polyhead[tb]'"
        ) from None
    return SummaryWriter
