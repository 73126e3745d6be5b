"""ELECTRA (Clark et al. 2020): a discriminator detects tokens replaced by a small generator.

    x̂_t ~ softmax(generator(masked text))_t     at the masked positions, x̂_t = x_t elsewhere
    D_t = discriminator(x̂)_t                     for *every* t: was x_t replaced?

    L   = L_fill + λ L_spot,   λ = 50
    L_fill   cross-entropy of the generator, mean over the masked positions
    L_spot   binary cross-entropy of [x̂_t ≠ x_t], mean over all tokens that are not padding

The training is not adversarial: the generator is trained by maximum likelihood, and no gradient
passes through the sample. A sampled token that equals the original counts as original. After
training the discriminator is kept and the generator dropped.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyhead.bounds import Length
from polyhead.layers.embeddings import PositionKind
from polyhead.layers.feed_forward import ACTIVATIONS
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.bert import BERT, BERTConfig, BERTEncoder, Ids, bert_stack, truncated_normal

SPOTTING_WEIGHT = 50.0  # λ: binary losses are small beside those of 30,000 words
Uniform = Float[Tensor, "chosen"] | None  # from 0 to 1: decide what the generator samples


@dataclass(frozen=True)
class ElectraConfig:
    """The defaults are ELECTRA-Small. `stack` is the discriminator's.

    sharing: "embeddings" shares token, position and segment tables and their norm, as in the paper;
        "all" the whole encoder, which needs a generator of the same size.
    generator_size: the generator's width as a fraction of the discriminator's; its depth is the
        same. A quarter to a half works best (Clark et al. 2020, section 3.2).
    spotting: λ. With a shared encoder a smaller λ is needed for the generator to learn.
    """

    vocab: int = 30_522
    max_length: Length = 512
    segments: int = 2
    pad: int = 0
    d_embed: int | None = 128  # default: as wide as the discriminator
    sharing: Literal["none", "embeddings", "all"] = "embeddings"
    generator_size: float = 0.25
    stack: StackConfig = bert_stack(12, 256, 4)
    positions: PositionKind = "learned"
    spotting: float = SPOTTING_WEIGHT

    def __post_init__(self) -> None:
        if not 0 < self.spotting < math.inf:
            raise ValueError(f"spotting = {self.spotting}: expected a number above 0")
        if not 0 < self.generator_size <= 1:
            raise ValueError(
                f"generator_size = {self.generator_size}: expected a fraction above 0 and up to 1"
            )
        if self.sharing == "all" and self.generator_size != 1:
            raise ValueError(
                f'sharing = "all" needs a generator of the same size, but generator_size = '
                f'{self.generator_size}; set it to 1 or use sharing = "embeddings"'
            )

    @property
    def discriminator(self) -> BERTConfig:
        """Configuration of the discriminator's encoder."""
        return BERTConfig(
            self.vocab, self.max_length, self.segments, self.pad, self.d_embed,
            positions=self.positions, stack=self.stack,
        )  # fmt: skip

    @property
    def generator(self) -> BERTConfig:
        """Configuration of the generator: narrower, with an embedding as wide, to be shared."""
        kept = self.discriminator
        return replace(
            kept, d_embed=kept.embedding_width, stack=narrowed(self.stack, self.generator_size)
        )


PUBLISHED = {
    "electra-small": ElectraConfig(),
    "electra-base": ElectraConfig(
        d_embed=None, generator_size=1 / 3, stack=bert_stack(12, 768, 12)
    ),
    "electra-large": ElectraConfig(d_embed=None, stack=bert_stack(24, 1024, 16)),
}


def narrowed(stack: StackConfig, fraction: float) -> StackConfig:
    """Return a stack of the same depth and a fraction of the width, one head per 64 features."""
    if fraction == 1:
        return stack
    d_model, d_ff = round(stack.d_model * fraction), round(stack.d_ff * fraction)
    n_heads = max(1, d_model // 64)
    while d_model % n_heads:
        n_heads -= 1
    return replace(stack, d_model=d_model, d_ff=d_ff, n_heads=n_heads)


class ElectraOutput(NamedTuple):
    """Outputs of generator and discriminator, and the discriminator's labels."""

    suspicion: Float[Tensor, "batch length"]  # logits of "this token was replaced"
    generated: Float[Tensor, "chosen vocab"]  # the generator's logits at the masked positions
    forged: Int[Tensor, "batch length"]  # the discriminator's input
    replaced: Bool[Tensor, "batch length"]  # True where it differs from the original


class Electra(nn.Module):
    """Generator and discriminator; `suspect` applies the discriminator alone."""

    def __init__(self, config: ElectraConfig) -> None:
        super().__init__()
        d_model, self.spotting = config.stack.d_model, config.spotting
        self.generator = BERT(config.generator)
        if config.sharing == "all":
            self.discriminator = self.generator.encoder
        else:
            self.discriminator = BERTEncoder(config.discriminator)
        if config.sharing == "embeddings":
            self.discriminator.embed = self.generator.encoder.embed
        self.spot = nn.Sequential(
            nn.Linear(d_model, d_model),
            ACTIVATIONS[config.stack.activation](),
            nn.Linear(d_model, 1),
        )
        truncated_normal(self.spot)

    def forward(
        self, ids: Ids, blanked: Ids, chosen: Bool[Tensor, "batch length"], u: Uniform = None
    ) -> ElectraOutput:
        """Run both models; `blanked` is the text `ids` with masks at the `chosen` positions."""
        generated = self.generator.fill(blanked, chosen)
        written = blanked[blanked != ids].unique().tolist()  # [MASK]
        never = [self.discriminator.pad, *written]
        forged = ids.masked_scatter(chosen, draw(generated, u, never=never))
        return ElectraOutput(self.suspect(forged), generated, forged, forged != ids)

    def suspect(self, ids: Ids, segments: Ids | None = None) -> Float[Tensor, "batch length"]:
        """Return for every token the logit of being replaced."""
        return self.spot(self.discriminator(ids, segments))[..., 0]


@torch.no_grad()
def draw(
    logits: Float[Tensor, "chosen vocab"], u: Uniform = None, *, never: list[int]
) -> Int[Tensor, "chosen"]:
    """Sample one token, not of `never`, from each softmax(z) by inversion of the distribution."""
    # This needs one random number per token; the Gumbel trick needs one per word of the vocabulary.
    shares = logits.float().index_fill(1, torch.tensor(never, device=logits.device), -torch.inf)
    sums = shares.softmax(-1).cumsum(-1)
    total = sums[:, -1:]  # nearly 1, so that rounding errors do not select the last word
    u = torch.rand(total.shape, device=total.device) if u is None else u[:, None]
    return torch.searchsorted(sums, u * total, right=True)[:, 0]
