"""Batches of sentence pairs: sorted by length, filled up to a token budget, padded and shifted."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from polyhead.data.batches.base import Batch, SortedBatches, gather, pad
from polyhead.data.batches.epoch_plan import Numbers
from polyhead.data.batches.resampling import SubwordSampler
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import BOS, PAD

Pair = tuple[list[int], list[int]]  # source and target ids, both closed by EOS


@dataclass(frozen=True)
class TranslationBatch(Batch):
    """Source sentences, decoder inputs `target`, and `labels`, the same one step later."""

    source: Int[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]
    labels: Int[Tensor, "batch target"]

    @property
    def n_tokens(self) -> int:
        return int((self.source != PAD).sum() + (self.labels != PAD).sum())


def shift_right(labels: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
    """Put BOS before every target and drop its last token."""
    return F.pad(labels[:, :-1], (1, 0), value=BOS).masked_fill(labels == PAD, PAD)


def collate(pairs: Sequence[Pair]) -> TranslationBatch:
    """Pad pairs on the right, and shift the targets."""
    source, labels = (pad(side) for side in zip(*pairs, strict=True))
    return TranslationBatch(source, shift_right(labels), labels)


class TranslationBatches(SortedBatches[TranslationBatch]):
    """Sentence pairs in batches of similar length; all sentences are closed by EOS."""

    def __init__(
        self,
        source: TokenSequences,
        target: TokenSequences,
        max_tokens: int,
        seed: int,
        sampler: SubwordSampler | None = None,
    ) -> None:
        super().__init__([source, target], max_tokens, seed)
        self.sampler = sampler

    def make(self, numbers: Numbers, epoch: int, _step: int, /) -> TranslationBatch:
        if self.sampler is not None:
            return collate([self._sampled(self.sampler, int(n), epoch) for n in numbers])
        source, labels = (gather(side, numbers) for side in self.sides)
        return TranslationBatch(source, shift_right(labels), labels)

    def _sampled(self, sampler: SubwordSampler, number: int, epoch: int) -> Pair:
        source, target = sampler.draw(number, epoch)
        if max(len(source), len(target)) > sampler.max_length:  # then without sampling
            source, target = (side[number].tolist() for side in self.sides)
        return source, target
