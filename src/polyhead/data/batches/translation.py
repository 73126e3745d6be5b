"""Batches of sentence pairs: sorted by length, filled up to a token budget, padded and shifted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.base import Batch, IndexedBatches, fill_batches, mix, pad
from polyhead.special_tokens import BOS, PAD

Pair = tuple[list[int], list[int]]  # source and target ids, both closed by EOS


@dataclass(frozen=True)
class TranslationBatch(Batch):
    """Source sentences, decoder inputs `target`, and `labels`, the same one step later."""

    source: Int[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]
    labels: Int[Tensor, "batch target"]

    @property
    def n_tokens(self) -> int:
        return int((self.source != PAD).sum() + (self.labels != PAD).sum())


def collate(pairs: Sequence[Pair]) -> TranslationBatch:
    """Pad on the right; put BOS before every target and drop its last token."""
    return TranslationBatch(
        source=pad([source for source, _ in pairs]),
        target=pad([[BOS, *target[:-1]] for _, target in pairs]),
        labels=pad([target for _, target in pairs]),
    )


def group(pairs: Sequence[Pair], max_tokens: int, seed: int) -> list[list[int]]:
    """Return the numbers of the pairs in each batch of an epoch, batches in random order.

    Pairs of equal length share a batch; ties are drawn. Target lengths ascend for even and descend
    for odd source lengths: where a batch spans two source lengths, its target lengths are similar.
    """
    rng = np.random.default_rng(seed)
    lengths = np.array([(len(source), len(target)) for source, target in pairs], dtype=np.int64)
    source, target = lengths.T
    up_and_down = np.where(source % 2 == 0, target, -target)
    by_length = np.lexsort((rng.random(len(pairs)), up_and_down, source))
    batches = list(fill_batches(by_length.tolist(), lengths.tolist(), max_tokens))
    rng.shuffle(batches)
    return batches


class TranslationBatches(IndexedBatches[list[Pair], TranslationBatch]):
    """Sentence pairs in batches of similar length; `encode(epoch)` returns the pairs as ids."""

    def __init__(self, encode: Callable[[int], Sequence[Pair]], max_tokens: int, seed: int) -> None:
        super().__init__(seed)
        self.encode, self.max_tokens = encode, max_tokens

    def draw(self, epoch: int) -> list[list[Pair]]:
        pairs = self.encode(epoch)
        numbers = group(pairs, self.max_tokens, mix(self.seed, epoch))
        return [[pairs[number] for number in batch] for batch in numbers]

    def make(self, examples: list[Pair], _epoch: int, _step: int, /) -> TranslationBatch:
        return collate(examples)
