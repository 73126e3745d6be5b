"""Batches of labelled texts: BOS ids EOS, similar lengths together, padded on the right.

Labels are those of whole texts, or of their positions.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.base import Batch, SortedBatches, gather, pad
from polyhead.data.batches.epoch_plan import Numbers
from polyhead.data.batches.resampling import SubwordSampler
from polyhead.data.line_encoder import framed
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import EOS

BLUR = 0.5  # a class may have a typical length, and a batch must not hold one class only


@dataclass(frozen=True)
class TextBatch(Batch):
    """Texts, and the number of each text's class."""

    ids: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch"]


class TextBatches(SortedBatches[TextBatch]):
    """Batches of at most `max_tokens`, padding included; texts of similar length together."""

    def __init__(
        self,
        texts: TokenSequences,
        labels: Numbers,
        max_tokens: int,
        seed: int,
        sampler: SubwordSampler | None = None,
    ) -> None:
        super().__init__([texts], max_tokens, seed, BLUR)
        self.labels, self.sampler = labels, sampler

    def make(self, numbers: Numbers, epoch: int, _step: int, /) -> TextBatch:
        if self.sampler is None:
            ids = gather(self.sides[0], numbers)
        else:
            lines = (self.sampler.draw(int(number), epoch)[0] for number in numbers)
            ids = pad(list(framed(lines, self.sampler.max_length)))
        return TextBatch(ids, torch.from_numpy(self.labels[numbers].astype(np.int64)))


@dataclass(frozen=True)
class PositionBatch(Batch):
    """Texts, and of each either a class for every token, or the first and last token of an answer.

    labels: -1 at tokens without a class.
    """

    ids: Int[Tensor, "batch length"]
    labels: Int[Tensor, "batch labels"]


class PositionBatches(SortedBatches[PositionBatch]):
    """Batches as those of `TextBatches`; the labels of the store are numbers from 1 on."""

    def __init__(
        self, texts: TokenSequences, labels: TokenSequences, max_tokens: int, seed: int
    ) -> None:
        super().__init__([texts], max_tokens, seed, BLUR)
        self.labels = labels

    def make(self, numbers: Numbers, _epoch: int, _step: int, /) -> PositionBatch:
        return PositionBatch(gather(self.sides[0], numbers), gather(self.labels, numbers) - 1)


def segments_of(ids: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"]:
    """Return the segment of each token of BOS first EOS second EOS: 1 after the first EOS."""
    is_end = (ids == EOS).long()
    return ((is_end.cumsum(1) - is_end) > 0).long()
