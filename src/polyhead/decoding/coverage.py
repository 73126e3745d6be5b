"""Whether an output has dealt with all of the source: the coverage penalty.

    cp(x, y) = β Σ_i log(min(Σ_j α_ij, 1))    (Wu et al. 2016, eq. 14)

α_ij is how much of its attention word j of the output gave to word i of the source. A source word
that got 1 in all is dealt with and costs nothing; one that was never looked at costs much.

Axes: batch (sentences), beam (hypotheses of one sentence), source.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from polyhead.decoding.protocol import Attentive
from polyhead.errors import ConfigError


def coverage_penalty(
    covered: Float[Tensor, "batch beam source"], real: Bool[Tensor, "batch source"], beta: float
) -> Float[Tensor, "batch beam"]:
    """What is to be added to each hypothesis' score; `covered` are the sums over its words."""
    least = torch.finfo(covered.dtype).tiny  # a weight too small for a float is not quite nothing
    each = covered.clamp(min=least, max=1.0).log()
    return beta * each.masked_fill(~real[:, None], 0.0).sum(-1)


def looked_at(state: Any, beta: float) -> Float[Tensor, "batch beam source"]:
    """What the last step looked at, if the model tells."""
    if not isinstance(state, Attentive):
        raise ConfigError(
            f"decode.coverage = {beta}: this model does not tell what it looks at; set it to 0"
        )
    return state.looked
