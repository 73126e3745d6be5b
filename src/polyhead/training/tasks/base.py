"""The interface of a training task: files in, batches, a loss and validation metrics out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhead.atomic_file import draft_path, os_errors_as_polyhead_errors, remove
from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.data.batches.base import IndexedBatches
from polyhead.data.corpus_store import train_in_child
from polyhead.data.line_spool import CountedLines
from polyhead.tasks.losses import Objective
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import (
    TokenizerPair,
    load_tokenizers,
    save_tokenizers,
    train_tokenizers,
)
from polyhead.training.config import RunConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog

MAX_LINES, MAX_CHARACTERS = 1_000_000, 300_000_000  # of each side, to train tokenizers on
FEW_LINES = 100_000  # whose training needs too little memory for a process of its own


@dataclass(frozen=True)
class TaskSetup:
    """Everything that the trainer needs from a task."""

    config: RunConfig  # with the sizes that follow from the data
    tokenizers: TokenizerPair | None
    batches: IndexedBatches[Any]
    objective: Objective
    validate: Callable[[Any, int, Processes], dict[str, float]]  # model, step: metrics with "loss"
    summary: str  # one line about the data, for the log
    about: dict[str, Any] = field(default_factory=dict)  # saved with models: names of classes
    outputs: Callable[[Any, Processes], Any] | None = None  # of a model, for paired tests


@runtime_checkable
class TrainingTask(Protocol):
    """A training task."""

    def read_data(self, config: RunConfig) -> tuple[Any, dict[str, str]]:
        """Return the corpus, with `notices` for the log, and the sha256 of its parts by name."""
        ...

    def setup(self, config: RunConfig, run_dir: RunDir, corpus: Any, log: RunLog) -> TaskSetup:
        """Train or load the tokenizers, encode the data and cut it into batches."""
        ...


def load_or_train_tokenizers(
    directory: Path,
    sources: CountedLines,
    targets: CountedLines,
    config: TextConfig,
    log: RunLog,
) -> TokenizerPair:
    """Load the tokenizers of a run, or train and save them. Plain text is all source.

    Of a large corpus they are trained on a sample, which depends on nothing else.
    """
    if directory.exists():
        return load_tokenizers(directory)
    log.stage("training the tokenizer")
    numbers = [sample_size(lines) for lines in (sources, targets)]
    if numbers[0] < len(sources):
        log.notice(
            f"the tokenizer is trained on {numbers[0]:,} of {len(sources):,} lines, drawn evenly"
        )
    first, second = map(sample_lines, (sources, targets), numbers)
    if max(numbers) <= FEW_LINES:
        tokenizers = train_tokenizers(list(first), list(second), config)
    else:
        folder = draft_path(directory, "sample")
        with os_errors_as_polyhead_errors(folder):
            folder.mkdir(exist_ok=True)
            try:
                tokenizers = train_in_child(first, second, config, folder)
            finally:
                remove(folder)
    with atomic_dir(directory) as draft:
        save_tokenizers(tokenizers, draft)
    return tokenizers


def sample_size(lines: CountedLines) -> int:
    """Return how many lines to train a tokenizer on: all, if they are not too many."""
    n_characters = sum(map(len, lines)) if len(lines) else 0
    return min(len(lines), MAX_LINES, len(lines) * MAX_CHARACTERS // max(1, n_characters))


def sample_lines(lines: CountedLines, count: int) -> Iterable[str]:
    """Return all lines, or at most `count` in their order, evenly and the same every time."""
    if count == len(lines):
        return lines
    draws = np.arange(count) + np.random.default_rng(0).random(count)
    is_drawn = np.zeros(len(lines), dtype=np.bool_)
    is_drawn[(draws * (len(lines) / count)).astype(np.int64)] = True
    return compress(lines, is_drawn.tobytes())
