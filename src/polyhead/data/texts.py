"""Texts with classes as batches: BOS ids EOS, similar lengths together, padded on the right.

Which texts meet in a batch, and in which order the batches come, is a pure function of
(seed, epoch).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batch import Numbered, mix, pad
from polyhead.data.sequences import by_length
from polyhead.text.contract import BOS, EOS, PAD

BLUR = 0.5  # a class may have a length of its own: a batch must not hold one class only


class TextBatch(NamedTuple):
    """Texts, and the number of each one's class."""

    ids: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch"]

    def to(self, device: torch.device) -> "TextBatch":
        """Move both."""
        return TextBatch(*(t.to(device, non_blocking=True) for t in self))

    @property
    def n_tokens(self) -> int:
        """Real tokens, without padding."""
        return int((self.ids != PAD).sum())

    def halves(self) -> tuple["TextBatch", "TextBatch"]:
        """The same texts in two batches, for when one does not fit into memory."""
        middle = len(self.ids) // 2
        return (
            TextBatch(*(t[:middle] for t in self)),
            TextBatch(*(t[middle:] for t in self)),
        )


def framed(lines: Iterable[list[int]], max_length: int) -> list[list[int]]:
    """Encoded lines, each closed by EOS, as BOS ids EOS; what is too long loses its end."""
    return [[BOS, *ids[:-1][: max_length - 2], EOS] for ids in lines]


class Texts(Numbered):
    """Batches of texts, at most `max_tokens` each, padding included."""

    def __init__(
        self, texts: Sequence[list[int]], labels: Sequence[int], max_tokens: int, seed: int
    ) -> None:
        self.texts = texts
        self.labels = labels
        self.lengths = [len(text) for text in texts]
        self.max_tokens = max_tokens
        self.seed = seed
        self._drawn: tuple[int, list[list[int]]] | None = None  # the last epoch

    def draw(self, epoch: int) -> list[list[int]]:
        """Which texts stand in which batch of an epoch."""
        if self._drawn is None or self._drawn[0] != epoch:
            seed = mix(self.seed, epoch)
            batches = by_length(self.lengths, self.max_tokens, seed, blur=BLUR)
            self._drawn = epoch, batches
        return self._drawn[1]

    def n_batches(self, epoch: int) -> int:
        """How many batches this epoch has; it varies a little."""
        return len(self.draw(epoch))

    def __getitem__(self, place: tuple[int, int]) -> TextBatch:
        chosen = self.draw(place[0])[place[1]]
        labels = torch.tensor([self.labels[number] for number in chosen])
        return TextBatch(pad([self.texts[number] for number in chosen]), labels)


def every_text(
    texts: Sequence[list[int]], labels: Sequence[int], max_tokens: int
) -> list[TextBatch]:
    """Every text once: for validation."""
    source = Texts(texts, labels, max_tokens, seed=0)
    return [source[(0, step)] for step in range(source.n_batches(0))]
