"""Batches of labelled texts: BOS ids EOS, similar lengths together, padded on the right."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.base import Batch, IndexedBatches, group_by_length, mix, pad
from polyhead.special_tokens import BOS, EOS

BLUR = 0.5  # a class may have a typical length, and a batch must not hold one class only


@dataclass(frozen=True)
class TextBatch(Batch):
    """Texts, and the number of each text's class."""

    ids: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch"]


def framed(lines: Iterable[list[int]], max_length: int) -> list[list[int]]:
    """Return encoded lines (each closed by EOS) as BOS ids EOS, truncated to `max_length`."""
    return [[BOS, *ids[:-1][: max_length - 2], EOS] for ids in lines]


class TextBatches(IndexedBatches[list[tuple[list[int], int]], TextBatch]):
    """Batches of at most `max_tokens`; `texts(epoch)` returns the encoded texts of an epoch."""

    def __init__(
        self,
        texts: Callable[[int], Sequence[list[int]]],
        labels: Sequence[int],
        max_tokens: int,
        seed: int,
    ) -> None:
        super().__init__(seed)
        self.texts, self.labels, self.max_tokens = texts, labels, max_tokens

    def draw(self, epoch: int) -> list[list[tuple[list[int], int]]]:
        texts = self.texts(epoch)
        lengths = [len(text) for text in texts]
        numbers = group_by_length(lengths, self.max_tokens, mix(self.seed, epoch), blur=BLUR)
        return [[(texts[number], self.labels[number]) for number in batch] for batch in numbers]

    def make(self, examples: list[tuple[list[int], int]], _epoch: int, _step: int, /) -> TextBatch:
        texts, labels = zip(*examples, strict=True)
        return TextBatch(pad(texts), torch.tensor(labels))
