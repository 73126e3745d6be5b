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

from polyhead.data.batches.epoch_plan import BlockPlan, Numbers, count_batches, plan_by_length
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import PAD

STOP_SIGNALS = tuple(  # that end a training after a checkpoint; Windows has some of them
    number
    for number in signal.Signals
    if number.name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGBREAK")
)

KEPT_PLANS = 2
AnyBatch = TypeVar("AnyBatch", bound="Batch")


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


class IndexedBatches(Dataset[AnyBatch], Generic[AnyBatch]):
    """Batches of all epochs, indexed by (epoch, step). Subclasses define `plan` and `make`.

    The examples are planned in blocks, one at a time. The blocks come in another order in every
    epoch, and the batches of a block stay together. With several blocks, `counts` is overridden.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._plans: dict[tuple[int, int], BlockPlan] = {}  # the last ones used
        self._blocks: tuple[int, Numbers, Numbers] | None = None  # of the last epoch

    def plan(self, epoch: int, block: int, /) -> BlockPlan:
        """Plan the batches of a block in an epoch."""
        raise NotImplementedError

    def make(self, numbers: Numbers, epoch: int, step: int, /) -> AnyBatch:
        """Make a batch of the examples with these numbers."""
        raise NotImplementedError

    def counts(self, epoch: int) -> Numbers:
        """Return the number of batches of each block."""
        return np.array([len(self._planned(epoch, 0))])

    def block_seed(self, epoch: int, block: int) -> int:
        """Return the seed of a block's plan; the first one's is that of the epoch."""
        seed = mix(self.seed, epoch)
        return mix(seed, block) if block else seed

    def _planned(self, epoch: int, block: int) -> BlockPlan:
        plan = self._plans.pop((epoch, block), None) or self.plan(epoch, block)
        self._plans[epoch, block] = plan
        while len(self._plans) > KEPT_PLANS:
            del self._plans[next(iter(self._plans))]
        return plan

    def _order_of_blocks(self, epoch: int) -> tuple[Numbers, Numbers]:
        """Return the blocks of an epoch in their order, and the steps where they end."""
        if self._blocks is None or self._blocks[0] != epoch:
            counts = self.counts(epoch)
            seed = self.block_seed(epoch, len(counts))  # of no block
            order = np.random.default_rng(seed).permutation(len(counts))
            self._blocks = epoch, order, counts[order].cumsum()
        return self._blocks[1:]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_plans": {}, "_blocks": None}  # cheaper to plan than to copy

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch, which may vary a little."""
        return int(self._order_of_blocks(epoch)[1].max(initial=0))

    def __getitem__(self, index: tuple[int, int]) -> AnyBatch:
        epoch, step = index
        blocks, ends = self._order_of_blocks(epoch)
        at = int(np.searchsorted(ends, step, side="right"))
        if step < 0 or at == len(ends):
            raise IndexError(f"step {step}: epoch {epoch} has {self.n_batches(epoch)} batches")
        plan = self._planned(epoch, int(blocks[at]))
        return self.make(plan[step - int(ends[at]) + len(plan)], epoch, step)

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


def gather(sequences: TokenSequences, numbers: Numbers) -> Int[Tensor, "batch length"]:
    """Return the sequences with these numbers, padded on the right."""
    lengths = sequences.lengths[numbers, None]
    starts = sequences.offsets[numbers, None] // sequences.ids.itemsize
    sequences.check(starts[:, 0], (starts + lengths)[:, 0])
    columns = np.arange(lengths.max())
    inside = columns < lengths
    table = np.full(inside.shape, PAD, dtype=np.int64)
    table[inside] = sequences.ids[(starts + columns)[inside]]
    return torch.from_numpy(table)


class SortedBatches(IndexedBatches[AnyBatch]):
    """Batches of sequences of similar length, at most `max_tokens` each, padding included.

    sides: the sequences of each side of the examples; their documents are the blocks.
    blur: see `plan_by_length`; all documents are then one block.
    """

    def __init__(
        self, sides: Sequence[TokenSequences], max_tokens: int, seed: int, blur: float = 0.0
    ) -> None:
        if any(len(side) != len(sides[0]) for side in sides):
            raise ValueError(f"sides of {[len(side) for side in sides]} sequences")
        super().__init__(seed)
        self.sides, self.max_tokens, self.blur = tuple(sides), max_tokens, blur
        self._counts: Numbers | None = None

    @property
    def edges(self) -> Numbers:
        """The numbers of the first example of each block, and the end of the last."""
        documents = self.sides[0].documents
        return documents[[0, -1]] if self.blur else documents

    def lengths(self, block: int) -> list[Numbers]:
        """Return the lengths of a block's sequences, for each side."""
        part = slice(self.edges[block], self.edges[block + 1])
        return [np.asarray(side.lengths[part]) for side in self.sides]

    def plan(self, epoch: int, block: int, /) -> BlockPlan:
        return plan_by_length(
            self.lengths(block),
            self.max_tokens,
            self.block_seed(epoch, block),
            blur=self.blur,
            first=int(self.edges[block]),
        )

    def counts(self, epoch: int) -> Numbers:
        if self.blur:
            return super().counts(epoch)
        if self._counts is None:
            blocks = range(len(self.edges) - 1)
            counts = (count_batches(self.lengths(block), self.max_tokens) for block in blocks)
            self._counts = np.fromiter(counts, dtype=np.int64)
        return self._counts
