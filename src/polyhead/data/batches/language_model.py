"""Batches for language models: lines joined into one sequence of ids and cut into windows.

    line EOS line EOS line …         an empty line is a single EOS
    ├── window ──┤├── window ──┤     labels are the same ids, one token later

Where a line end has its own id, as in GPT-2's bytes, it replaces EOS. There is no padding. The
first window's start is drawn for every epoch, so that window boundaries vary.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.base import Batch, IndexedBatches, mix
from polyhead.errors import DataError


@dataclass(frozen=True)
class LanguageBatch(Batch):
    """Windows of ids, and as labels the token that follows each."""

    ids: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch length"]

    @property
    def n_tokens(self) -> int:
        return self.labels.numel()


def join_lines(lines: Iterable[list[int]]) -> Int[Tensor, "token"]:
    """Join encoded lines into one sequence."""
    return torch.from_numpy(np.concatenate([np.asarray(ids, dtype=np.int64) for ids in lines]))


class WindowBatches(IndexedBatches[Tensor, LanguageBatch]):
    """Batches of windows of `length` tokens, at most `max_tokens` each; a remainder is left out."""

    def __init__(
        self, stream: Int[Tensor, "token"], length: int, max_tokens: int, seed: int
    ) -> None:
        if len(stream) < 2:
            raise DataError(f"the text has {len(stream)} tokens, at least 2 needed", "too_short")
        super().__init__(seed)
        self.stream = stream
        self.length = min(length, len(stream) - 1)
        self.rows = max(1, max_tokens // self.length)

    def starts(self, epoch: int) -> Int[Tensor, "window"]:
        """Draw the starts of an epoch's windows, in reading order."""
        rng = np.random.default_rng(mix(self.seed, epoch))
        room = len(self.stream) - 1  # the last token has no successor
        first = int(rng.integers(min(self.length, room - self.length + 1)))
        starts = np.arange(first, room - self.length + 1, self.length)
        return torch.from_numpy(rng.permutation(starts))

    def draw(self, epoch: int) -> Sequence[Tensor]:
        return self.starts(epoch).split(self.rows)

    def make(self, examples: Tensor, _epoch: int, _step: int, /) -> LanguageBatch:
        window = examples[:, None] + torch.arange(self.length)
        return LanguageBatch(self.stream[window], self.stream[window + 1])


def consecutive_windows(
    stream: Int[Tensor, "token"], length: int, max_tokens: int
) -> list[LanguageBatch]:
    """Return windows that predict every token but the first exactly once, in order."""
    room = len(stream) - 1
    rows = max(1, max_tokens // length)
    full = [stream[start : start + length + 1] for start in range(0, room - length + 1, length)]
    batches = [torch.stack(full[i : i + rows]) for i in range(0, len(full), rows)]
    rest = stream[len(full) * length :]
    if len(rest) > 1:
        batches.append(rest[None])
    return [LanguageBatch(tokens[:, :-1], tokens[:, 1:]) for tokens in batches]
