"""What a run says while it works: to whoever watches, to a log, and to metrics.jsonl.

metrics.jsonl has one JSON object a line: {"kind": "train", …} every `log_every` steps and
{"kind": "valid", …} at each validation. A resumed run first removes what lies after its checkpoint,
so that the file is the same as that of a run that was never interrupted.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from polyhead.checkpoint.store import write_text
from polyhead.errors import MissingError

METRICS, LOG = "metrics.jsonl", "train.log"


@runtime_checkable
class Reporter(Protocol):
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


class Silent:
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


class Journal:
    """A run's own memory: train.log for people, metrics.jsonl for programs, TensorBoard if asked."""

    def __init__(self, folder: Path, reporter: Reporter, *, tensorboard: bool = False) -> None:
        self.folder = folder
        self.reporter = reporter
        self._scalar = _tensorboard(folder) if tensorboard else None

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
        entry = {"kind": kind, "step": step, **values}
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self._log(in_words(entry))
        if self._scalar is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._scalar(f"{kind}/{name}", value, step)

    def forget_after(self, step: int) -> None:
        """Remove the metrics of steps that will be done again, and a line torn by a crash."""
        path = self.folder / METRICS
        if not path.exists():
            return
        kept = []
        for line in path.read_text(encoding="utf-8").split("\n"):
            with suppress(ValueError, TypeError, KeyError):
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
        write_text(path, "".join(kept))

    def _log(self, what: str) -> None:
        with (self.folder / LOG).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {what}\n")


def in_words(entry: dict[str, Any]) -> str:
    """A line of metrics as a line to read."""
    shown = [f"{entry['kind']} step {entry['step']}"]
    for name, value in entry.items():
        if name in ("kind", "step") or value is None:
            continue
        number = f"{value:.4g}" if isinstance(value, float) else str(value)
        shown.append(f"{name} {number}")
    return "  ".join(shown)


def _tensorboard(folder: Path) -> Callable[[str, float, int], None]:
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise MissingError(
            "TensorBoard is not installed; add it with: pip install 'polyhead[tb]'"
        ) from None
    writer = SummaryWriter(str(folder / "tensorboard"))

    def scalar(name: str, value: float, step: int) -> None:
        writer.add_scalar(name, value, step)
        writer.flush()

    return scalar
