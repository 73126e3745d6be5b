"""Texts with classes as batches: BOS ids EOS, similar lengths together, padded on the right.

Which texts meet in a batch, and in which order the batches come, is a pure function of
(seed, epoch), and so is how they are cut into pieces.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.masked import by_length
from polyhead.data.batches.translation import IndexedBatches, mix, pad
from polyhead.special_tokens import BOS, EOS, PAD

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


class Drawn(NamedTuple):
    """One epoch: its texts, and which of them stand in which batch."""

    epoch: int
    texts: Sequence[list[int]]
    batches: list[list[int]]


class Texts(IndexedBatches):
    """Batches of texts, at most `max_tokens` each, padding included.

    `texts` gives those of an epoch: the same each time, or cut anew.
    """

    def __init__(
        self,
        texts: Callable[[int], Sequence[list[int]]],
        labels: Sequence[int],
        max_tokens: int,
        seed: int,
    ) -> None:
        self.texts = texts
        self.labels = labels
        self.max_tokens = max_tokens
        self.seed = seed
        self._last: Drawn | None = None

    def draw(self, epoch: int) -> Drawn:
        """The texts of an epoch and their batches."""
        if self._last is None or self._last.epoch != epoch:
            texts = self.texts(epoch)
            lengths = [len(text) for text in texts]
            batches = by_length(lengths, self.max_tokens, mix(self.seed, epoch), blur=BLUR)
            self._last = Drawn(epoch, texts, batches)
        return self._last

    def n_batches(self, epoch: int) -> int:
        """How many batches this epoch has; it varies a little."""
        return len(self.draw(epoch).batches)

    def __getitem__(self, place: tuple[int, int]) -> TextBatch:
        _, texts, batches = self.draw(place[0])
        chosen = batches[place[1]]
        labels = torch.tensor([self.labels[number] for number in chosen])
        return TextBatch(pad([texts[number] for number in chosen]), labels)


def every_text(
    texts: Sequence[list[int]], labels: Sequence[int], max_tokens: int
) -> list[TextBatch]:
    """Every text once: for validation."""
    source = Texts(lambda _: texts, labels, max_tokens, seed=0)
    return [source[(0, step)] for step in range(source.n_batches(0))]
