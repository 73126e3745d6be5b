"""The interface of a training task: files in, batches, a loss and validation metrics out.

`training.trainer` does the rest for all tasks: the loop, checkpoints, resuming, logs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.data.batches.base import DataPosition
from polyhead.errors import ConfigError
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import (
    TokenizerPair,
    load_tokenizers,
    save_tokenizers,
    train_tokenizers,
)
from polyhead.training.config import RunConfig, check_positions
from polyhead.training.finetune import PretrainedModel
from polyhead.training.losses import Objective
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog

Corpus = TypeVar("Corpus")
SHORTEST = 3  # tokens: BOS, EOS and one between them


@runtime_checkable
class Batches(Protocol):
    """All batches of all epochs, a pure function of (seed, epoch, step)."""

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        ...

    def batches(self, start: DataPosition, workers: int = 0) -> Iterator[tuple[DataPosition, Any]]:
        """Yield batches without end from `start`, each with the position after it."""
        ...


@runtime_checkable
class ValidationSet(Protocol):
    """Held-out data of a run."""

    def validate(self, model: Any, step: int) -> dict[str, float]:
        """Return the metrics of a model after `step` updates; "loss" must be among them."""
        ...


@dataclass(frozen=True)
class TaskData(Generic[Corpus]):
    """The data of a run, as read from its files.

    fingerprints: sha256 by name; a resumed run must read the same data.
    notices: lines for the log.
    pretrained: the model of `train.init`.
    """

    corpus: Corpus
    fingerprints: dict[str, str]
    notices: tuple[str, ...]
    pretrained: PretrainedModel | None


@dataclass(frozen=True)
class TaskSetup:
    """Everything that the trainer needs from a task.

    config: the configuration with the sizes that follow from the data.
    summary: one line about the data, for the log.
    about: facts that a model needs beside its configuration, such as the names of classes.
    """

    config: RunConfig
    tokenizers: TokenizerPair | None
    batches: Batches
    objective: Objective
    valid: ValidationSet
    summary: str
    about: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """A training task."""

    def read_data(self, config: RunConfig) -> TaskData[Any]:
        """Read the files of a run and the model of `train.init`, after checking the options."""
        ...

    def setup(
        self, config: RunConfig, run_dir: RunDir, data: TaskData[Any], log: RunLog
    ) -> TaskSetup:
        """Train or load the tokenizers, encode the data and cut it into batches."""
        ...


def load_or_train_tokenizers(
    directory: Path,
    sources: Sequence[str],
    targets: Sequence[str],
    config: TextConfig,
    log: RunLog,
) -> TokenizerPair:
    """Load the tokenizers of a run, or train and save them. Plain text is all source."""
    if directory.exists():
        return load_tokenizers(directory)
    log.stage("training the tokenizer")
    tokenizers = train_tokenizers(sources, targets, config)
    with atomic_dir(directory) as draft:
        save_tokenizers(tokenizers, draft)
    return tokenizers


def check_lengths(config: RunConfig, model: Any) -> None:
    """Refuse a data.max_length that is too short for BOS and EOS or too long for the model.

    model: the model configuration that reads the sequences, or that of its encoder.
    """
    length = config.data.max_length
    if length < SHORTEST:
        raise ConfigError(
            f"data.max_length = {length}: expected at least {SHORTEST} (BOS, EOS and a token)",
            "out_of_range",
        )
    check_positions(model, length)


def check_no_sampling(config: RunConfig) -> None:
    """Refuse subword sampling for tasks that encode their text only once."""
    if config.text.sampling:
        raise ConfigError(
            f"text.sampling = {config.text.sampling}: only translators and text classifiers sample "
            "subwords. Leave it out.",
            "no_sampling",
        )
