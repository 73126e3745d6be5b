"""Events of a training run and the callbacks that receive them.

    class Watch(polyhead.Callback):
        def on_validation(self, validation):
            return validation.metrics["loss"] < 0.5  # True stops training

    polyhead.train(pairs=pairs, run="runs/mine", callbacks=[Watch()])

Progress bars and loggers are callbacks too. With several processes only the first calls them.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from polyhead.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

EndReason = Literal["finished", "patience", "stopped", "interrupted", "failed"]


@dataclass(frozen=True)
class TrainingStart:
    """Start of training, also of a resumed run."""

    folder: Path  # of the run
    step: int  # of the checkpoint that training resumes from, else 0
    steps: int  # at the end
    metrics: Mapping[str, float]  # of the last validation before `step`
    config: Mapping[str, object]  # tables of plain values, as in config.toml
    model: "nn.Module | None" = field(default=None, repr=False, compare=False)  # in training


@dataclass(frozen=True)
class TrainingStep:
    """Measurements of one update; in a `Curve`, `loss` is a mean over `train.log_every` updates."""

    step: int
    loss: float  # per prediction
    norm: float  # of the gradient, before clipping
    rate: float
    epoch: int
    tokens: int  # so far
    tokens_per_second: float
    seconds: float  # so far, over all sessions


@dataclass(frozen=True)
class Validation:
    """Metrics of a validation."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that has been written."""

    step: int
    path: Path
    is_best: bool


@dataclass(frozen=True)
class TrainingEnd:
    """End of training.

    reason: "finished" after the last step, "patience" after train.patience validations without
        improvement, "stopped" by a callback, "interrupted" by a signal, "failed" by an error.
    metrics: of the last validation.
    """

    step: int
    reason: EndReason
    metrics: Mapping[str, float]


class Callback:
    """Receiver of the events of a training run; this base class ignores all.

    An exception in a callback ends training and is raised by `train`; the checkpoints written
    before it stay.
    """

    def on_stage(self, text: str) -> None:
        """Receive the name of a stage that starts and takes a while."""

    def on_notice(self, text: str) -> None:
        """Receive a message of one line."""

    def on_start(self, start: TrainingStart) -> None:
        """Receive the start of training."""

    def on_step(self, step: TrainingStep) -> bool | None:
        """Receive an update; return True to save a checkpoint and stop training."""

    def on_validation(self, validation: Validation) -> bool | None:
        """Receive a validation; return True to save a checkpoint and stop training."""

    def on_save(self, checkpoint: SavedCheckpoint) -> None:
        """Receive a checkpoint that was written."""

    def on_record(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Receive a line of metrics.jsonl; `kind` is "train", "valid" or "experts"."""

    def on_rewind(self, step: int) -> None:
        """Receive the step that training was rolled back to after a divergence."""

    def on_end(self, end: TrainingEnd) -> None:
        """Receive the end of training, also after an error."""


EVENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


class Callbacks(Callback):
    """Several callbacks as one: every event goes to all of them, in order."""

    def __init__(self, members: Iterable[object] = ()) -> None:
        self.members = [_complete(member) for member in members]
        self.started: list[Callback] = []

    def emit(self, event: str, *values: object) -> bool:
        """Call the method of this name of all members; return True if one asks to stop."""
        return True in [getattr(member, event)(*values) for member in self.members]

    def on_start(self, start: TrainingStart) -> None:
        for member in self.members:
            self.started.append(member)  # first, since a start that fails is ended too
            member.on_start(start)

    def on_end(self, end: TrainingEnd) -> None:
        """Call all members that received the start, also if one of them fails."""
        with ExitStack() as stack:
            for member in reversed(self.started):
                stack.callback(member.on_end, end)


for _event in set(EVENTS) - vars(Callbacks).keys():
    setattr(Callbacks, _event, partialmethod(Callbacks.emit, _event))


def _complete(member: object) -> Callback:
    """Return an object with any of the methods as a callback."""
    if isinstance(member, Callback):
        return member
    methods = {name: getattr(member, name) for name in EVENTS if hasattr(member, name)}
    if isinstance(member, type) or not methods:
        shown = f"the class {member.__name__}" if isinstance(member, type) else repr(member)
        raise ConfigError(
            f"callbacks: {shown} is not a callback. Give an object with a method such as on_step "
            "or on_validation.",
            "not_a_callback",
        )
    callback = Callback()
    vars(callback).update(methods)
    return callback
