"""The interface of a training task: files in, batches, a loss and validation metrics out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.data.batches.base import IndexedBatches
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import (
    TokenizerPair,
    load_tokenizers,
    save_tokenizers,
    train_tokenizers,
)
from polyhead.training.config import RunConfig
from polyhead.training.losses import Objective
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog


@dataclass(frozen=True)
class TaskSetup:
    """Everything that the trainer needs from a task."""

    config: RunConfig  # with the sizes that follow from the data
    tokenizers: TokenizerPair | None
    batches: IndexedBatches[Any]
    objective: Objective
    validate: Callable[[Any, int], dict[str, float]]  # model and step to metrics, with "loss"
    summary: str  # one line about the data, for the log
    about: dict[str, Any] = field(default_factory=dict)  # saved with models: names of classes


@runtime_checkable
class Task(Protocol):
    """A training task."""

    def read_data(self, config: RunConfig) -> tuple[Any, dict[str, str]]:
        """Return the corpus, with `notices` for the log, and the sha256 of its parts by name."""
        ...

    def setup(self, config: RunConfig, run_dir: RunDir, corpus: Any, log: RunLog) -> TaskSetup:
        """Train or load the tokenizers, encode the data and cut it into batches."""
        ...


def load_or_train_tokenizers(
    directory: Path, sources: Sequence[str], targets: Sequence[str], config: TextConfig, log: RunLog
) -> TokenizerPair:
    """Load the tokenizers of a run, or train and save them. Plain text is all source."""
    if directory.exists():
        return load_tokenizers(directory)
    log.stage("training the tokenizer")
    tokenizers = train_tokenizers(sources, targets, config)
    with atomic_dir(directory) as draft:
        save_tokenizers(tokenizers, draft)
    return tokenizers
