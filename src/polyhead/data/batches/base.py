"""Bases of all batches. Their examples and their order are pure functions of (seed, epoch)."""

import signal
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from polyhead.special_tokens import PAD

STOP_SIGNALS = tuple(  # that end a training after a checkpoint; Windows has some of them
    number
    for number in signal.Signals
    if number.name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGBREAK")
)

AnyBatch = TypeVar("AnyBatch", bound="Batch")
Examples = TypeVar("Examples")


@dataclass(frozen=True)
class Batch:
    """Tensors with one row per example, and values that hold for the whole batch."""

    def __len__(self) -> int:
        return len(next(iter(self)))

    def __iter__(self) -> Iterator[Any]:
        """Yield the fields in order, so that `source, target, labels = batch` works."""
        return (getattr(self, field.name) for field in fields(self))

    @property
    def n_tokens(self) -> int:
        """Number of tokens, padding excluded; those of the first tensor unless overridden."""
        return int((next(iter(self)) != PAD).sum())

    def to(self: AnyBatch, device: torch.device) -> AnyBatch:
        moved = (v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for v in self)
        return type(self)(*moved)

    def halves(self: AnyBatch) -> tuple[AnyBatch, AnyBatch]:
        """Split the examples into two batches, for when one does not fit into memory."""
        middle = len(self) // 2
        first = (v[:middle] if isinstance(v, Tensor) else v for v in self)
        second = (v[middle:] if isinstance(v, Tensor) else v for v in self)
        return type(self)(*first), type(self)(*second)


@dataclass(frozen=True)
class DataPosition:
    """Position in the data: `step` batches of `epoch` have been used."""

    epoch: int = 0
    step: int = 0


class IndexedBatches(Dataset[AnyBatch], Generic[Examples, AnyBatch]):
    """Batches of all epochs, indexed by (epoch, step). Subclasses define `draw` and `make`."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._last: tuple[int, Sequence[Examples]] | None = None  # the last epoch drawn

    def draw(self, epoch: int) -> Sequence[Examples]:
        """Return the examples of each batch of an epoch."""
        raise NotImplementedError

    def make(self, examples: Examples, epoch: int, step: int, /) -> AnyBatch:
        """Make a batch of its examples."""
        raise NotImplementedError

    def _drawn(self, epoch: int) -> Sequence[Examples]:
        if self._last is None or self._last[0] != epoch:
            self._last = epoch, self.draw(epoch)
        return self._last[1]

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, which may vary a little."""
        return len(self._drawn(epoch))

    def __getitem__(self, index: tuple[int, int]) -> AnyBatch:
        epoch, step = index
        return self.make(self._drawn(epoch)[step], epoch, step)

    def of_epoch(self, epoch: int) -> list[AnyBatch]:
        return [self[epoch, step] for step in range(self.n_batches(epoch))]

    def batches(
        self,
        start: DataPosition,
        workers: int = 0,
        accumulate: int = 1,
        share: Sequence[int] = (0,),
    ) -> Iterator[tuple[DataPosition, AnyBatch]]:
        """Yield batches without end from `start` on, each with the position after its update.

        share: the numbers of the batches to yield, of the `accumulate` batches of every update.
        """
        # The loader has its own generator: otherwise it would draw from dropout's, at moments that
        # depend on where a run was interrupted.
        ends: deque[DataPosition] = deque()

        def places() -> Iterator[tuple[int, int]]:
            epoch, step = start.epoch, start.step
            while True:
                update = []
                for _ in range(accumulate):
                    if step >= self.n_batches(epoch):
                        epoch, step = epoch + 1, 0
                    update.append((epoch, step))
                    step += 1
                for number in share:
                    ends.append(DataPosition(epoch, step))
                    yield update[number]

        loader = DataLoader(
            self,
            batch_size=None,
            sampler=places(),
            num_workers=workers,
            worker_init_fn=_ignore_signals,
            generator=torch.Generator().manual_seed(0),
        )
        for batch in loader:
            yield ends.popleft(), batch


def _ignore_signals(_: int) -> None:
    """Ignore signals sent to the process group: training handles them, and still needs batches."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def pad(sequences: Sequence[Sequence[int]]) -> Int[Tensor, "batch length"]:
    """Pad sequences on the right to the length of the longest."""
    table = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(table, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(table)


def mix(seed: int, epoch: int) -> int:
    """Derive a seed from two numbers, such that neighbouring ones are unrelated."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])


def fill_batches(
    order: Sequence[int], lengths: Sequence[Sequence[int]], max_tokens: int
) -> Iterator[list[int]]:
    """Cut an order sorted by length into batches of at most `max_tokens` padded tokens.

    The sequences of an example are padded separately; one longer than the budget has its own batch.
    """
    batch: list[int] = []
    widths: list[int] = []
    for number in order:
        wider = list(map(max, widths, lengths[number])) if batch else list(lengths[number])
        if batch and sum(wider) * (len(batch) + 1) > max_tokens:
            yield batch
            batch, wider = [], list(lengths[number])
        batch.append(number)
        widths = wider
    if batch:
        yield batch


def group_by_length(
    lengths: Sequence[int], max_tokens: int, seed: int, blur: float = 0.0
) -> list[list[int]]:
    """Return the numbers of the sequences in each batch, batches in random order.

    blur: lengths that differ by up to this share may share a batch: more padding, more mixing.
    """
    rng = np.random.default_rng(seed)
    draws = rng.random(len(lengths))
    order = np.lexsort((draws, np.asarray(lengths) * (1 + blur * draws)))
    batches = list(fill_batches(order.tolist(), [[length] for length in lengths], max_tokens))
    rng.shuffle(batches)
    return batches
