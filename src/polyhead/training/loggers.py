"""Loggers of a run as callbacks: TensorBoard, Weights & Biases, MLflow.

Each gets the metrics, the configuration and the final scores. A resumed run continues the same
W&B and MLflow run, whose id and last steps are in tracking.json of the run directory; steps that
were logged before are not logged again. A service that is lost does not end training: its lines
wait in tracking.json.
"""

import json
import logging
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import reduce
from importlib import import_module
from operator import getitem
from pathlib import Path
from typing import Any, cast

from polyhead.atomic_file import write_text
from polyhead.config import setting_keys
from polyhead.errors import ConfigError, MissingError, install_command
from polyhead.training.callbacks import Callback, EndReason, TrainingEnd, TrainingStart

TRACKING = "tracking.json"
EXTRAS = {"tensorboard": "tb", "wandb": "wandb", "mlflow": "mlflow"}
MAX_PARAMETER = 500  # characters of a value; older MLflow servers refuse longer ones
N_PARAMETERS = 100  # that MLflow takes at once
REST = 20  # times as long as a failed attempt, until the next one: clients try for minutes

logger = logging.getLogger(__name__)


def create_loggers(names: str | Iterable[str]) -> list[Callback]:
    """Return the loggers of a list such as "tensorboard,wandb"; raise if a package is missing."""
    texts = [names] if isinstance(names, str) else names
    given = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    loggers = list[Callback]()
    for name in dict.fromkeys(given):
        if name not in LOGGERS:
            raise ConfigError(
                f"log_to = {name!r}: expected some of {', '.join(LOGGERS)}", "unknown_logger"
            )
        try:
            loggers.append(LOGGERS[name]())
        except ImportError:
            raise MissingError(
                f"{name} is not installed. Install it with: {install_command(EXTRAS[name])}",
                "no_logger",
            ) from None
    return loggers


class TensorBoardLogger(Callback):
    """Writes to tensorboard/ in the run directory; points after a roll-back replace others."""

    def __init__(self) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.create, self.writer = SummaryWriter, cast(Any, None)

    def on_start(self, start: TrainingStart) -> None:
        self.folder = start.folder
        self.on_rewind(start.step)
        if not start.step:
            lines = [f"    {name} = {value}" for name, value in _flat(start.config).items()]
            self.writer.add_text("configuration", "\n".join(lines), 0)

    def on_rewind(self, step: int) -> None:
        if self.writer is not None:
            self.writer.close()  # another one hides the points after the step
        self.writer = self.create(str(self.folder / "tensorboard"), purge_step=step + 1)

    def on_record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(f"{kind}/{name}", value, step)
        self.writer.flush()

    def on_end(self, end: TrainingEnd) -> None:
        final = {} if end.reason == "failed" else end.metrics
        for name, value in final.items():
            self.writer.add_scalar(f"final/{name}", value, end.step)
        self.writer.close()


class Tracker(Callback):
    """A logger of a service that keeps runs by id and cannot remove points."""

    name: str
    is_open, is_lost, next_attempt = False, False, 0.0

    def on_start(self, start: TrainingStart) -> None:
        self.path = start.folder / TRACKING
        self.state = {"id": None, "steps": {}, "waiting": []} | _read(self.path).get(self.name, {})
        try:
            self.state["id"] = self.open(start, self.state["id"])
        except Exception as error:  # of the package, such as a missing login
            raise MissingError(
                f"{self.name} cannot log: {_line(error)}", "logger_failed"
            ) from error
        self.is_open = True
        self.keep()
        self.send()

    def on_record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        if step > self.state["steps"].get(kind, -1):
            self.state["steps"][kind] = step  # else an earlier session has logged it
            line = {f"{kind}/{name}": value for name, value in values.items()}
            self.state["waiting"].append([step, line])
            if self.is_lost:
                self.keep()
            self.send()

    def send(self) -> None:
        """Log the lines that wait, in order, unless the service was lost a moment ago."""
        waiting, started = self.state["waiting"], time.monotonic()
        while waiting and started >= self.next_attempt:
            step, line = waiting.pop(0)
            self.keep()
            try:
                self.log(line, step)
                self.is_lost = False
            except Exception as error:  # of the package, such as a server that is down
                waiting.insert(0, [step, line])
                self.keep()
                if not self.is_lost:
                    logger.warning(
                        "%s is lost at step %s (%s); training continues, and its metrics wait",
                        self.name, step, _line(error),
                    )  # fmt: skip
                self.is_lost, now = True, time.monotonic()
                self.next_attempt = now + REST * (now - started)
                return

    def on_end(self, end: TrainingEnd) -> None:
        """Send all that waits, and the final scores; say what was not sent."""
        if not self.is_open:
            return
        final = {} if end.reason == "failed" else end.metrics
        self.next_attempt = 0.0
        self.send()
        try:
            self.close({f"final/{name}": value for name, value in final.items()}, end)
        except Exception as error:
            logger.warning("%s has no final scores: %s", self.name, _line(error))
        if waiting := self.state["waiting"]:
            logger.warning(
                "%s did not get %d lines of metrics, from step %s on. Run the same command again "
                "to send them.", self.name, len(waiting), waiting[0][0],
            )  # fmt: skip

    def keep(self) -> None:
        """Write the id and the last steps."""
        write_text(self.path, json.dumps(_read(self.path) | {self.name: self.state}, indent=1))

    @abstractmethod
    def open(self, start: TrainingStart, known: str | None) -> str:
        """Start a run of the service, or continue the known one; return its id."""

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers of a step."""

    @abstractmethod
    def close(self, final: Mapping[str, float], end: TrainingEnd) -> None:
        """Log the final scores and end the run of the service."""


class WandbLogger(Tracker):
    """Logs to Weights & Biases; project, entity and mode are those of its environment variables."""

    name = "wandb"

    def __init__(self) -> None:
        self.package: Any = import_module("wandb")

    def open(self, start: TrainingStart, known: str | None) -> str:
        self.run = self.package.init(
            id=known, resume="allow", name=start.folder.name, dir=str(start.folder),
            config=dict(start.config),
        )  # fmt: skip
        return str(self.run.id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self, final: Mapping[str, float], end: TrainingEnd) -> None:
        self.run.summary.update(dict(final))
        self.run.finish(exit_code=1 if end.reason == "failed" else 0)


class MlflowLogger(Tracker):
    """Logs to MLflow; server and experiment are those of its environment variables."""

    name = "mlflow"

    def __init__(self) -> None:
        self.package: Any = import_module("mlflow")

    def open(self, start: TrainingStart, known: str | None) -> str:
        run = self.package.start_run(run_id=known, run_name=start.folder.name, nested=True)
        if known is None:
            items = list(_flat(start.config).items())
            for first in range(0, len(items), N_PARAMETERS):
                self.package.log_params(dict(items[first : first + N_PARAMETERS]))
        return str(run.info.run_id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.package.log_metrics(dict(values), step=step)

    def close(self, final: Mapping[str, float], end: TrainingEnd) -> None:
        self.package.log_metrics(dict(final), step=end.step)
        states: dict[EndReason, str] = {"failed": "FAILED", "interrupted": "KILLED"}
        self.package.end_run(states.get(end.reason, "FINISHED"))


LOGGERS: dict[str, Callable[[], Callback]] = {
    "tensorboard": TensorBoardLogger, "wandb": WandbLogger, "mlflow": MlflowLogger,
}  # fmt: skip


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        return dict(json.loads(path.read_text(encoding="utf-8")))
    return {}


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings by name, such as train.seed."""
    values = {key: reduce(getitem, key.split("."), config) for key in setting_keys(config)}
    return {key: str(value)[:MAX_PARAMETER] for key, value in values.items()}
