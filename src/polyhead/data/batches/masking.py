"""Blanks for a model to fill in: which tokens are asked for, and what stands there instead.

    BERT       15 % are chosen; of these 80 % become [MASK], 10 % a random token, 10 % stay
    ELECTRA    15 % are chosen; of these 85 % become [MASK], 15 % stay, none is random

A model that only ever saw [MASK] at the places it is asked about would learn nothing for texts
without it: hence the other two. (Devlin et al. 2019, section 3.1; ELECTRA's shares are those of its
authors' code.)

Special tokens and padding are never chosen, and every text has at least one blank if it has a token
to spare. Masks are drawn anew whenever a text comes by (*dynamic*): pass the run's generator.
Validation wants the same blanks every time, or its curve is noise: see `fixed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from polyhead.special_tokens import SPECIALS


@dataclass(frozen=True)
class MaskingConfig:
    """The defaults are BERT's. Of the chosen tokens, whatever is neither masked nor random stays.

    share: how many of the tokens are asked for.
    masked: of those, how many become [MASK].
    random: of those, how many become some other token.
    """

    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share = {self.share}: expected a share above 0 and up to 1")
        if min(self.masked, self.random) < 0 or self.masked + self.random > 1:
            raise ValueError(
                f"masked = {self.masked} and random = {self.random}: expected two shares that add "
                "up to 1 at most"
            )


BERT = MaskingConfig()
ELECTRA = MaskingConfig(masked=0.85, random=0.0)


class Blanks(NamedTuple):
    """A text with blanks. The answers are `ids[chosen]`."""

    ids: Int[Tensor, "batch length"]  # the text as it was
    blanked: Int[Tensor, "batch length"]  # what the model reads
    chosen: Bool[Tensor, "batch length"]  # where it is asked

    def to(self, device: torch.device) -> "Blanks":
        """Move all tensors."""
        return Blanks(*(t.to(device, non_blocking=True) for t in self))


def blank(
    ids: Int[Tensor, "batch length"],
    config: MaskingConfig,
    generator: torch.Generator,
    *,
    mask: int,
    vocab: int,
    specials: Sequence[int] = tuple(range(len(SPECIALS))),
) -> Blanks:
    """Draw blanks for some texts. `mask` is [MASK]'s id; it and `specials` are never asked for.

    Each token is chosen by itself, so that the share holds on average; a text that came out empty
    gets the one token that was nearest to being chosen.
    """
    untouchable = torch.tensor(sorted({*specials, mask}), device=ids.device)
    ordinary = ~torch.isin(ids, untouchable)
    draws = torch.rand(ids.shape, generator=generator).to(ids.device)
    draws = draws.masked_fill(~ordinary, 2.0)  # never the smallest if another can be
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
    return Blanks(ids, blanked, chosen)


def fixed(
    ids: Int[Tensor, "batch length"],
    config: MaskingConfig,
    seed: int,
    *,
    mask: int,
    vocab: int,
    specials: Sequence[int] = tuple(range(len(SPECIALS))),
) -> Blanks:
    """The same blanks for the same texts and the same seed, every time: for validation."""
    generator = torch.Generator().manual_seed(seed)
    return blank(ids, config, generator, mask=mask, vocab=vocab, specials=specials)
