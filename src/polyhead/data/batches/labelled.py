"""Batches of labelled texts: BOS ids EOS, similar lengths together, padded on the right.

A pair of texts is BOS ids EOS ids EOS; its second text is the segment 1. Labels are those of whole
texts, or of their positions.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.batches.base import Batch, SortedBatches, gather, pad
from polyhead.data.batches.epoch_plan import Numbers
from polyhead.data.batches.resampling import SubwordSampler
from polyhead.data.line_encoder import frame
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import BOS, EOS, PAD

BLUR = 0.5  # a class may have a typical length, and a batch must not hold one class only


def segments_of(ids: Int[Tensor, "batch length"]) -> Int[Tensor, "batch length"] | None:
    """Return 1 after the first EOS of a text, else 0; None if no text is a pair."""
    ends = (ids == EOS).long()
    segments = ((ends.cumsum(1) - ends) * (ids != PAD)).clamp(max=1)
    return segments if bool(segments.any()) else None


def split_pairs(
    ids: Int[Tensor, "batch length"],
) -> tuple[Int[Tensor, "batch first"], Int[Tensor, "batch second"]]:
    """Return both texts of each pair as BOS ids EOS."""
    ends = (ids == EOS).long()
    is_first = ends.cumsum(1) - ends == 0
    n_first = is_first.sum(1, keepdim=True)
    first = ids.masked_fill(~is_first, PAD)[:, : int(n_first.max())]
    n_second = int(((ids != PAD).sum(1, keepdim=True) - n_first).max())
    places = torch.arange(-1, n_second, device=ids.device) + n_first  # its BOS is at that EOS
    padded = F.pad(ids, (0, 1), value=PAD)
    second = padded.gather(1, places.clamp(max=ids.size(1)))
    second[:, 0] = BOS
    return first, second


@dataclass(frozen=True)
class TextBatch(Batch):
    """Texts, and of each the number of its class, all its classes as 0 or 1, or its number."""

    ids: Int[Tensor, "batch length"]
    labels: Shaped[Tensor, "batch *classes"]


class TextBatches(SortedBatches[TextBatch]):
    """Batches of at most `max_tokens`, padding included; texts of similar length together.

    labels: a class or a number for each text; of several classes the sequences of theirs.
    n_classes: of several.
    """

    def __init__(
        self,
        texts: TokenSequences,
        labels: npt.NDArray[Any] | TokenSequences,
        max_tokens: int,
        seed: int,
        sampler: SubwordSampler | None = None,
        n_classes: int = 0,
    ) -> None:
        super().__init__([texts], max_tokens, seed, BLUR)
        self.labels, self.sampler, self.n_classes = labels, sampler, n_classes

    def make(self, numbers: Numbers, epoch: int, _step: int, /) -> TextBatch:
        if self.sampler is None:
            ids = gather(self.sides[0], numbers)
        else:
            drawn = (self.sampler.draw(int(number), epoch) for number in numbers)
            ids = pad([frame(parts, self.sampler.max_length) for parts in drawn])
        return TextBatch(ids, self.labels_of(numbers))

    def labels_of(self, numbers: Numbers) -> Shaped[Tensor, "batch *classes"]:
        """Return the labels of the texts with these numbers."""
        if isinstance(self.labels, TokenSequences):
            classes = torch.zeros(len(numbers), self.n_classes)
            for row, number in zip(classes, numbers, strict=True):
                row[torch.from_numpy(self.labels[int(number)])] = 1
            return classes
        labels = self.labels[numbers]
        kind = np.float32 if labels.dtype.kind == "f" else np.int64
        return torch.from_numpy(labels.astype(kind))


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
