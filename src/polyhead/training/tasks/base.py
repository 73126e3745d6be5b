"""What a task promises: it turns files into batches, a loss, and a way to see how good a model is.

`training.trainer` does everything else, for all tasks alike: the loop, checkpoints, resuming,
reports. A task knows nothing of steps, optimisers or folders beyond where its tokenizer lies.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import nn

from polyhead.data.batches.base import DataPosition
from polyhead.tokenizers.storage import Tokenizers
from polyhead.training.config import RunConfig
from polyhead.training.losses import Objective
from polyhead.training.run_log import RunLog


@runtime_checkable
class Batches(Protocol):
    """All batches of all epochs; which is which is a pure function of (seed, epoch, step)."""

    def n_batches(self, epoch: int) -> int:
        """How many batches this epoch has."""
        ...

    def batches(self, start: DataPosition, workers: int = 0) -> Iterator[tuple[DataPosition, Any]]:
        """Batches for ever from `start` on, each with the place that follows it."""
        ...


@dataclass(frozen=True)
class TaskSetup:
    """What a task has made of its files.

    run: the configuration, with the sizes that follow from the data filled in.
    valid: measures a model after so many steps. "loss" must be among the metrics.
    summary: one line about the data, for the log.
    about: what a model must remember beside its configuration, such as the names of classes.
    begin: puts pre-trained weights into a new model, if there are any.
    trained: whether `begin` leaves nothing new: what is trained must be better than the beginning.
    """

    run: RunConfig
    tokenizers: Tokenizers | None
    batches: Batches
    objective: Objective
    valid: Callable[[Any, int], dict[str, float]]
    summary: str
    about: dict[str, Any] = field(default_factory=dict)
    begin: Callable[[nn.Module], None] | None = None
    trained: bool = False


@runtime_checkable
class Task(Protocol):
    """One way of training."""

    def read(self, run: RunConfig) -> Any:
        """Read the files of a configuration. The result has `notices`, lines worth telling."""
        ...

    def fingerprints(self, material: Any) -> dict[str, str]:
        """What was read, by name, each as a sha256: a run that goes on must find the same."""
        ...

    def prepare(self, run: RunConfig, folder: Path, material: Any, journal: RunLog) -> TaskSetup:
        """Learn or load what turns the data into numbers; cut them into batches."""
        ...
