"""From encoded sentence pairs to batches: sort by length, fill a budget of tokens, pad, shift.

Which sentences stand in which batch, and in which order the batches come, is a pure function of
(seed, epoch). A run that was interrupted finds its place again by three integers, on any number of
worker processes.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from polyhead.tokenizers.storage import BOS, PAD

Pair = tuple[list[int], list[int]]  # source and target ids, both closed by EOS


class TranslationBatch(NamedTuple):
    """`target` is what the decoder reads, `labels` what it should say: the same, one step later."""

    source: Int[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]
    labels: Int[Tensor, "batch target"]

    def to(self, device: torch.device) -> "TranslationBatch":
        """Move all tensors."""
        return TranslationBatch(*(t.to(device, non_blocking=True) for t in self))

    @property
    def n_tokens(self) -> int:
        """Real tokens, source and target, without padding."""
        return int((self.source != PAD).sum() + (self.labels != PAD).sum())

    def halves(self) -> tuple["TranslationBatch", "TranslationBatch"]:
        """The same sentences in two batches, for when one does not fit into memory."""
        middle = len(self.source) // 2
        return (
            TranslationBatch(*(t[:middle] for t in self)),
            TranslationBatch(*(t[middle:] for t in self)),
        )


def collate(pairs: Sequence[Pair]) -> TranslationBatch:
    """Pad on the right; put BOS before every target and drop its last token."""
    return TranslationBatch(
        source=pad([source for source, _ in pairs]),
        target=pad([[BOS, *target[:-1]] for _, target in pairs]),
        labels=pad([target for _, target in pairs]),
    )


def pad(sequences: Sequence[Sequence[int]]) -> Int[Tensor, "batch length"]:
    """A rectangle as wide as the longest sequence."""
    table = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(table, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(table)


def group(pairs: Sequence[Pair], max_tokens: int, seed: int) -> list[list[int]]:
    """One epoch: the numbers of the pairs in each batch, batches in random order.

    A batch costs its padded tokens, source plus target, and at most `max_tokens` unless one pair
    alone is longer. Sentences of equal length share a batch, so that hardly anything is padding;
    which of them meet is drawn anew for every seed. Among sources of one length the targets grow,
    among those of the next they shrink: where a batch spans two lengths, its targets are alike.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([(len(source), len(target)) for source, target in pairs], dtype=np.int64)
    source, target = lengths.T
    up_and_down = np.where(source % 2 == 0, target, -target)
    by_length = np.lexsort((rng.random(len(pairs)), up_and_down, source))
    batches = list(_cut(by_length.tolist(), lengths.tolist(), max_tokens))
    rng.shuffle(batches)
    return batches


def _cut(
    order: Sequence[int], lengths: Sequence[list[int]], max_tokens: int
) -> Iterator[list[int]]:
    """Cut a list sorted by length wherever one more pair would burst the budget."""
    batch: list[int] = []
    source = target = 0  # the longest in this batch
    for number in order:
        wider = max(source, lengths[number][0]), max(target, lengths[number][1])
        if batch and sum(wider) * (len(batch) + 1) > max_tokens:
            yield batch
            batch, wider = [], (lengths[number][0], lengths[number][1])
        batch.append(number)
        source, target = wider
    if batch:
        yield batch


@dataclass(frozen=True)
class DataPosition:
    """Where in the data a run stands: `step` batches of `epoch` have been used."""

    epoch: int = 0
    step: int = 0


class IndexedBatches(Dataset[Any]):
    """All batches of all epochs, by (epoch, step): a pure function of the two.

    Whoever inherits says how many there are and what each of them is.
    """

    def n_batches(self, epoch: int) -> int:
        """How many batches this epoch has."""
        raise NotImplementedError

    def __getitem__(self, place: tuple[int, int]) -> Any:
        raise NotImplementedError

    def batches(self, start: DataPosition, workers: int = 0) -> Iterator[tuple[DataPosition, Any]]:
        """Batches for ever from `start` on, each with the place that follows it.

        The loader has a generator of its own: it would else draw from the one that dropout uses,
        at moments that depend on where a run was interrupted.
        """
        epoch, step = start.epoch, start.step
        while True:
            places = [(epoch, s) for s in range(step, self.n_batches(epoch))]
            loader = DataLoader(
                self,
                batch_size=None,
                sampler=places,
                num_workers=workers,
                worker_init_fn=_leave_signals_to_the_parent,
                generator=torch.Generator().manual_seed(0),
            )
            for (_, at), batch in zip(places, loader, strict=True):
                yield DataPosition(epoch, at + 1), batch
            epoch, step = epoch + 1, 0


class TranslationBatches(IndexedBatches):
    """Sentence pairs in batches of equal length. `encode(epoch)` gives the pairs as ids."""

    def __init__(self, encode: Callable[[int], Sequence[Pair]], max_tokens: int, seed: int) -> None:
        self.encode = encode
        self.max_tokens = max_tokens
        self.seed = seed
        self._drawn: tuple[int, Sequence[Pair], list[list[int]]] | None = None  # the last epoch

    def draw(self, epoch: int) -> tuple[Sequence[Pair], list[list[int]]]:
        """The pairs of an epoch, and which of them stand in which batch."""
        if self._drawn is None or self._drawn[0] != epoch:
            pairs = self.encode(epoch)
            self._drawn = epoch, pairs, group(pairs, self.max_tokens, mix(self.seed, epoch))
        return self._drawn[1:]

    def n_batches(self, epoch: int) -> int:
        """How many batches this epoch has; it varies a little, because ties are drawn."""
        return len(self.draw(epoch)[1])

    def __getitem__(self, place: tuple[int, int]) -> TranslationBatch:
        pairs, batches = self.draw(place[0])
        return collate([pairs[number] for number in batches[place[1]]])


def _leave_signals_to_the_parent(_: int) -> None:
    """Ctrl-C, and a cluster's SIGTERM, reach every process; only the one that trains may act on it.

    It still needs batches to come to the end of its step. A worker without a parent ends by itself.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def mix(seed: int, epoch: int) -> int:
    """One seed out of two numbers, without neighbouring ones being alike."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1)[0])


def padding_share(batches: Sequence[TranslationBatch]) -> float:
    """Which part of all positions, source and target, is padding."""
    real = sum(batch.n_tokens for batch in batches)
    return 1 - real / sum(batch.source.numel() + batch.labels.numel() for batch in batches)
