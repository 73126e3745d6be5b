"""The interface of a training task: files in, batches, a loss and validation metrics out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from polyhead.checkpoint.atomic_dir import atomic_dir
from polyhead.data.batches.base import IndexedBatches
from polyhead.data.line_spool import CountedLines
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

MAX_LINES, MAX_CHARACTERS = 1_000_000, 300_000_000  # of each side, to train tokenizers on


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
    samples = [sample_lines(lines) for lines in (sources, targets)]
    if len(samples[0]) < len(sources):
        log.notice(
            f"the tokenizer is trained on {len(samples[0]):,} of {len(sources):,} lines, drawn "
            "evenly"
        )
    tokenizers = train_tokenizers(samples[0], samples[1], config)
    with atomic_dir(directory) as draft:
        save_tokenizers(tokenizers, draft)
    return tokenizers


def sample_lines(lines: CountedLines) -> Sequence[str]:
    """Return all lines, or of too many a sample in their order, the same every time."""
    n_characters = sum(map(len, lines))
    n_kept = min(len(lines), MAX_LINES, len(lines) * MAX_CHARACTERS // max(1, n_characters))
    if n_kept == len(lines):
        return lines if isinstance(lines, Sequence) else list(lines)
    draws = np.arange(n_kept) + np.random.default_rng(0).random(n_kept)
    numbers = set((draws * (len(lines) / n_kept)).astype(np.int64).tolist())
    return [line for number, line in enumerate(lines) if number in numbers]
