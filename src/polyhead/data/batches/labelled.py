"""Batches of labelled texts: BOS ids EOS, similar lengths together, padded on the right."""

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
