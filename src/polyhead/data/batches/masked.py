"""Batches of masked sequences, for the pre-training of BERT and ELECTRA.

    line             BOS ids EOS      BOS stands for [CLS], EOS for [SEP]
    a long line      BOS ids EOS, BOS ids EOS, …      parts of at most `max_length` ids
    an empty line    nothing

    BERT       15 % are selected; of these 80 % become [MASK], 10 % a random token, 10 % stay
    ELECTRA    15 % are selected; of these 85 % become [MASK], 15 % stay, none is random

A model that saw [MASK] at every position it predicts would not learn to represent texts without
it: hence the other two. (Devlin et al. 2019, section 3.1; ELECTRA's shares are those of its
authors' code.) Special tokens and padding are never selected, and every text with an ordinary token
has at least one selected. Masks are a function of (seed, epoch, step): they differ between epochs
(*dynamic* masking) and are repeated by a resumed run. Validation masks each sequence by its number:
the same masks every time, in batches of any size.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from polyhead.data.batches.base import Batch, SortedBatches, gather, mix
from polyhead.data.batches.epoch_plan import Numbers
from polyhead.data.token_store import TokenSequences
from polyhead.special_tokens import PAD, SPECIALS

Ids = Int[Tensor, "batch length"]


@dataclass(frozen=True)
class MaskingConfig:
    """Shares of masked tokens; the defaults are BERT's. The remaining selected tokens stay."""

    share: float = 0.15  # of the tokens is selected for prediction
    masked: float = 0.8  # of the selected tokens become [MASK]
    random: float = 0.1  # of the selected tokens become a random token

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share = {self.share}: expected a share above 0 and up to 1")
        if min(self.masked, self.random) < 0 or self.masked + self.random > 1:
            raise ValueError(
                f"masked = {self.masked} and random = {self.random}: expected two shares that add "
                "up to 1 at most"
            )


BERT_MASKING = MaskingConfig()
ELECTRA_MASKING = MaskingConfig(masked=0.85, random=0.0)


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Texts and their masked copies. The answers are `ids[chosen]`.

    tokens_per_blank belongs to the whole batch, also in its halves: ELECTRA weighs its two losses
    by it, and the sum over both halves must be that of the whole.
    """

    ids: Ids  # the original text
    blanked: Ids  # the model's input
    chosen: Bool[Tensor, "batch length"]  # the positions to predict
    tokens_per_blank: float


def mask_tokens(
    ids: Ids, config: MaskingConfig, generator: torch.Generator, *, mask: int, vocab: int
) -> tuple[Ids, Ids, Bool[Tensor, "batch length"]]:
    """Draw masks for texts, and return the first three fields of `MaskedBatch`.

    Each token is selected independently; in a text without one, that with the smallest draw is.
    """
    untouchable = torch.tensor([*range(len(SPECIALS)), mask], device=ids.device)
    ordinary = ~torch.isin(ids, untouchable)
    draws = torch.rand(ids.shape, generator=generator).to(ids.device)
    draws = draws.masked_fill(~ordinary, 2.0)  # larger than every draw
    nearest = draws == draws.amin(1, keepdim=True)
    chosen = ((draws < config.share) | nearest) & ordinary

    fate = torch.rand(ids.shape, generator=generator).to(ids.device)
    blanked = ids.masked_fill(chosen & (fate < config.masked), mask)
    if config.random:
        becomes_random = chosen & (config.masked <= fate) & (fate < config.masked + config.random)
        others = torch.arange(vocab, device=ids.device)
        others = others[~torch.isin(others, untouchable)]
        pick = torch.randint(len(others), ids.shape, generator=generator).to(ids.device)
        blanked = torch.where(becomes_random, others[pick], blanked)
    return ids, blanked, chosen


@dataclass(frozen=True)
class Masker:
    """Masking with a vocabulary: `mask` is the id of [MASK], `vocab` counts the ids with it."""

    config: MaskingConfig
    mask: int
    vocab: int

    def draw(self, ids: Ids, seed: int) -> MaskedBatch:
        """Mask texts; the same texts and seed give the same masks."""
        generator = torch.Generator().manual_seed(seed)
        masked = mask_tokens(ids, self.config, generator, mask=self.mask, vocab=self.vocab)
        n_tokens, n_blanks = int((ids != PAD).sum()), int(masked[2].sum())
        return MaskedBatch(*masked, n_tokens / max(1, n_blanks))


class MaskedBatches(SortedBatches[MaskedBatch]):
    """Batches of sequences of similar length, with new masks in every epoch."""

    def __init__(
        self, sequences: TokenSequences, masker: Masker, max_tokens: int, seed: int
    ) -> None:
        super().__init__([sequences], max_tokens, seed)
        self.masker = masker

    def make(self, numbers: Numbers, epoch: int, step: int, /) -> MaskedBatch:
        ids = gather(self.sides[0], numbers)
        return self.masker.draw(ids, mix(mix(self.seed, epoch), step))
