"""Running text as one long row of ids, cut into windows: what a language model reads.

    line EOS line EOS line …         an empty line is an EOS of its own
    ├── window ──┤├── window ──┤     labels are the same, one token later

Where a line end has an id of its own, as in GPT-2's bytes, it stands there instead of EOS. The
text is never padded and no token is wasted. Where the first window begins is drawn anew for
every epoch, so that no token always stands at the beginning of one.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.translation import IndexedBatches, mix
from polyhead.errors import DataError


class LanguageBatch(NamedTuple):
    """`labels` are what follows each token of `ids`."""

    ids: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch length"]

    def to(self, device: torch.device) -> "LanguageBatch":
        """Move both."""
        return LanguageBatch(*(t.to(device, non_blocking=True) for t in self))

    @property
    def n_tokens(self) -> int:
        """How many tokens are predicted: all of them."""
        return self.labels.numel()

    def halves(self) -> tuple["LanguageBatch", "LanguageBatch"]:
        """The same windows in two batches, for when one does not fit into memory."""
        middle = len(self.ids) // 2
        return (
            LanguageBatch(*(t[:middle] for t in self)),
            LanguageBatch(*(t[middle:] for t in self)),
        )


def joined(lines: Iterable[list[int]]) -> Int[Tensor, "token"]:
    """All lines, each closed by its EOS, in one row."""
    return torch.from_numpy(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in lines]))


class Windows(IndexedBatches):
    """Batches of windows of `length` tokens, at most `max_tokens` together; a rest is left out."""

    def __init__(
        self, stream: Int[Tensor, "token"], length: int, max_tokens: int, seed: int
    ) -> None:
        if len(stream) < 2:
            raise DataError(f"{len(stream)} tokens are not enough to predict one from another")
        self.stream = stream
        self.length = min(length, len(stream) - 1)
        self.rows = max(1, max_tokens // self.length)
        self.seed = seed
        self._drawn: tuple[int, Tensor] | None = None  # the last epoch asked for, and its starts

    def starts(self, epoch: int) -> Int[Tensor, "window"]:
        """Where the windows of an epoch begin, in the order in which they are read.

        Shuffling them all costs more than reading one batch, so an epoch's order is kept.
        """
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = epoch, self._draw(epoch)
        return self._drawn[1]

    def _draw(self, epoch: int) -> Int[Tensor, "window"]:
        draw = np.random.default_rng(mix(self.seed, epoch))
        room = len(self.stream) - 1  # the last token has no successor
        first = int(draw.integers(min(self.length, room - self.length + 1)))
        starts = np.arange(first, room - self.length + 1, self.length)
        return torch.from_numpy(draw.permutation(starts))

    def n_batches(self, epoch: int) -> int:
        """How many batches there are; the last one may be smaller."""
        return -(-len(self.starts(epoch)) // self.rows)

    def __getitem__(self, place: tuple[int, int]) -> LanguageBatch:
        epoch, step = place
        starts = self.starts(epoch)[step * self.rows : (step + 1) * self.rows]
        window = starts[:, None] + torch.arange(self.length)
        return LanguageBatch(self.stream[window], self.stream[window + 1])


def whole(stream: Int[Tensor, "token"], length: int, max_tokens: int) -> list[LanguageBatch]:
    """Every token but the first predicted exactly once, in order: for validation."""
    room = len(stream) - 1
    rows = max(1, max_tokens // length)
    full = [stream[start : start + length + 1] for start in range(0, room - length + 1, length)]
    batches = [torch.stack(full[i : i + rows]) for i in range(0, len(full), rows)]
    rest = stream[len(full) * length :]
    if len(rest) > 1:
        batches.append(rest[None])
    return [LanguageBatch(tokens[:, :-1], tokens[:, 1:]) for tokens in batches]
