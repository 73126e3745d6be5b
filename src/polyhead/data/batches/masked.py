"""Lines as sequences with blanks: what BERT and ELECTRA are pre-trained on.

    line             BOS ids EOS      BOS stands for [CLS], EOS for [SEP]
    a long line      BOS ids EOS, BOS ids EOS, …      pieces of at most `max_length` ids
    an empty line    nothing

Sequences of equal length share a batch, as many as a budget of tokens allows. Which of them meet,
and where the blanks are, is a pure function of (seed, epoch, step): a run that was interrupted sees
the same blanks again, and every epoch has new ones.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from polyhead.data.batches.masking import MaskingConfig, blank
from polyhead.data.batches.translation import IndexedBatches, mix, pad
from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, PAD

FIXED_SEED = 0  # of the blanks in validation


class BlankBatch(NamedTuple):
    """Texts with blanks. The answers are `ids[chosen]`.

    tokens_per_blank belongs to the whole batch, also when half of it is taken: ELECTRA weighs the
    losses of two players by it, and the sum over both halves must be that of the whole.
    """

    ids: Int[Tensor, "batch length"]
    blanked: Int[Tensor, "batch length"]
    chosen: Bool[Tensor, "batch length"]
    tokens_per_blank: float

    def to(self, device: torch.device) -> "BlankBatch":
        """Move all tensors."""
        ids, blanked, chosen = (t.to(device, non_blocking=True) for t in self[:3])
        return BlankBatch(ids, blanked, chosen, self.tokens_per_blank)

    @property
    def n_tokens(self) -> int:
        """All tokens that are not padding."""
        return int((self.ids != PAD).sum())

    def halves(self) -> tuple["BlankBatch", "BlankBatch"]:
        """The same texts in two batches, for when one does not fit into memory."""
        middle = len(self.ids) // 2
        return self._rows(slice(middle)), self._rows(slice(middle, None))

    def _rows(self, rows: slice) -> "BlankBatch":
        ids, blanked, chosen = (t[rows] for t in self[:3])
        return BlankBatch(ids, blanked, chosen, self.tokens_per_blank)


def pieces_of(lines: Iterable[list[int]], max_length: int) -> list[list[int]]:
    """Encoded lines, each closed by EOS, as sequences of at most `max_length` ids."""
    room = max(1, max_length - 2)
    found = []
    for ids in lines:
        body = ids[:-1]
        found += [[BOS, *body[i : i + room], EOS] for i in range(0, len(body), room)]
    if not found:
        raise DataError("all lines are empty; give at least one line of text")
    return found


def by_length(
    lengths: Sequence[int], max_tokens: int, seed: int, blur: float = 0.0
) -> list[list[int]]:
    """The numbers of the sequences in each batch, batches in random order.

    A batch costs its padded tokens, at most `max_tokens` unless one sequence alone is longer.
    With a `blur`, lengths that differ by such a share may meet: more padding, more mixture.
    """
    rng = np.random.default_rng(seed)
    draws = rng.random(len(lengths))
    order = np.lexsort((draws, np.asarray(lengths) * (1 + blur * draws)))
    batches = list(_cut(order.tolist(), lengths, max_tokens))
    rng.shuffle(batches)
    return batches


def _cut(order: Sequence[int], lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    batch: list[int] = []
    longest = 0  # in this batch
    for number in order:
        longest = max(longest, lengths[number])
        if batch and longest * (len(batch) + 1) > max_tokens:
            yield batch
            batch, longest = [], lengths[number]
        batch.append(number)
    if batch:
        yield batch


@dataclass(frozen=True)
class Blanking:
    """How blanks are made: `mask` is [MASK]'s id, `vocab` how many ids there are with it."""

    config: MaskingConfig
    mask: int
    vocab: int

    def draw(self, ids: Int[Tensor, "batch length"], seed: int) -> BlankBatch:
        """Blanks for some texts; the same texts and the same seed give the same ones."""
        generator = torch.Generator().manual_seed(seed)
        found = blank(ids, self.config, generator, mask=self.mask, vocab=self.vocab)
        n_tokens, n_blanks = int((ids != PAD).sum()), int(found.chosen.sum())
        return BlankBatch(*found, n_tokens / max(1, n_blanks))


class Sequences(IndexedBatches):
    """Batches of sequences with blanks that are drawn anew in every epoch."""

    def __init__(
        self, sequences: Sequence[list[int]], blanking: Blanking, max_tokens: int, seed: int
    ) -> None:
        self.sequences = sequences
        self.lengths = [len(sequence) for sequence in sequences]
        self.blanking = blanking
        self.max_tokens = max_tokens
        self.seed = seed
        self._drawn: tuple[int, list[list[int]]] | None = None  # the last epoch

    def draw(self, epoch: int) -> list[list[int]]:
        """Which sequences stand in which batch of an epoch."""
        if self._drawn is None or self._drawn[0] != epoch:
            batches = by_length(self.lengths, self.max_tokens, mix(self.seed, epoch))
            self._drawn = epoch, batches
        return self._drawn[1]

    def n_batches(self, epoch: int) -> int:
        """How many batches this epoch has; always the same."""
        return len(self.draw(epoch))

    def __getitem__(self, place: tuple[int, int]) -> BlankBatch:
        epoch, step = place
        ids = pad([self.sequences[number] for number in self.draw(epoch)[step]])
        return self.blanking.draw(ids, mix(mix(self.seed, epoch), step))


def fixed_batches(
    sequences: Sequence[list[int]], blanking: Blanking, max_tokens: int
) -> list[BlankBatch]:
    """Every sequence once, with the same blanks every time: for validation."""
    source = Sequences(sequences, blanking, max_tokens, FIXED_SEED)
    found = [source[(0, step)] for step in range(source.n_batches(0))]
    if not any(batch.chosen.any() for batch in found):  # a loss of nothing would be the best of all
        raise DataError(
            "nothing in this text can be made a blank: none of it is in the vocabulary; give "
            "other text to be judged by"
        )
    return found
