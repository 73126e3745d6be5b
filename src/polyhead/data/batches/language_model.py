"""Batches for language models: lines joined into one sequence of ids and cut into windows.

    line EOS line EOS line …         an empty line is a single EOS
    ├── window ──┤├── window ──┤     labels are the same ids, one token later

Where a line end has its own id, as in GPT-2's bytes, it replaces EOS. There is no padding. The
first window's start is drawn for every epoch, so that window boundaries vary.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.base import Batch, IndexedBatches
from polyhead.data.batches.epoch_plan import BlockPlan, Numbers
from polyhead.data.token_store import Ids, TokenSequences
from polyhead.errors import DataError

BLOCK = 2**20  # windows that are shuffled together


@dataclass(frozen=True)
class LanguageBatch(Batch):
    """Windows of ids, and as labels the token that follows each."""

    ids: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch length"]

    @property
    def n_tokens(self) -> int:
        return self.labels.numel()


class WindowBatches(IndexedBatches[LanguageBatch]):
    """Batches of windows of `length` tokens, at most `max_tokens` each; a remainder is left out."""

    def __init__(
        self, stream: Ids | TokenSequences, length: int, max_tokens: int, seed: int
    ) -> None:
        """stream: the ids of the text, or a store of them."""
        super().__init__(seed)
        if not isinstance(stream, TokenSequences):
            stream = TokenSequences(stream, np.zeros(0, np.int32))
        self.store = stream
        if len(self.stream) < 2:
            message = f"the text has {len(self.stream)} tokens, at least 2 needed"
            raise DataError(message, "too_short")
        self.length = min(length, len(self.stream) - 1)
        self.rows = max(1, max_tokens // self.length)
        self.block = -(-BLOCK // self.rows) * self.rows  # windows; full batches only

    @property
    def stream(self) -> Ids:
        """All ids."""
        return self.store.ids

    def _first(self, rng: np.random.Generator) -> int:
        """Draw the start of the first window."""
        return int(rng.integers(min(self.length, len(self.stream) - self.length)))

    def n_windows(self, epoch: int) -> int:
        first = self._first(np.random.default_rng(self.block_seed(epoch, 0)))
        return (len(self.stream) - 1 - first) // self.length  # the last token has no successor

    def counts(self, epoch: int) -> Numbers:
        edges = np.arange(0, self.n_windows(epoch), self.block)
        windows = np.diff(edges, append=self.n_windows(epoch))
        return -(-windows // self.rows)

    def plan(self, epoch: int, block: int, /) -> BlockPlan:
        rng = np.random.default_rng(self.block_seed(epoch, block))
        self._first(rng)  # so that the first block has the numbers that follow
        before = block * self.block
        order = rng.permutation(min(self.block, self.n_windows(epoch) - before)).astype(np.int32)
        starts = np.arange(0, len(order), self.rows)
        return BlockPlan(order, starts, starts + self.rows, before)

    def make(self, numbers: Numbers, epoch: int, _step: int, /) -> LanguageBatch:
        first = self._first(np.random.default_rng(self.block_seed(epoch, 0)))
        windows = first + numbers[:, None] * self.length + np.arange(self.length + 1)
        self.store.check(windows[:, 0], windows[:, -1] + 1)
        ids = torch.from_numpy(np.asarray(self.stream[windows], dtype=np.int64))
        return LanguageBatch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())


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
