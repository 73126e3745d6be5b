"""Where an image model looks, and what of it arrives: attention by patch, and attention roll-out.

    Â_l = (Ā_l + I) / 2                    Ā_l the mean over the heads of layer l, I the residual
    R   = Â_L Â_(L-1) … Â_1                R_ij: how much of patch j is in token i at the end

(Abnar & Zuidema 2020.) A layer's weights tell whom a token asks in that layer, but what it gets
from them is already a mixture; roll-out follows the mixtures down to the patches. It takes every
head for equally important and leaves values and feed-forward layers out: a sketch, not a proof.

What is shown is the row of the class token; a model that pools by the mean is shown by the mean
over all rows, because all of them make the answer.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def rollout(layers: Sequence[Float[Tensor, "head token token"]]) -> Float[Tensor, "token token"]:
    """How much of each token of the first layer is in each one after the last. Rows sum to one."""
    n_tokens = layers[0].size(-1)
    same = torch.eye(n_tokens, dtype=torch.float64)
    found = same
    for weights in layers:
        found = (weights.double().mean(0) + same) / 2 @ found
    return found.float()


def by_patch(
    weights: Float[Tensor, "*some token token"], grid: tuple[int, int]
) -> Float[Tensor, "*some row column"]:
    """What the answer takes from each patch: the class token's row, or the mean of all rows.

    Whether there is a class token shows by the numbers: it is the one token more than patches.
    The class token's own share is left out, so that the patches may sum to less than one.
    """
    extra = weights.size(-1) - grid[0] * grid[1]
    if extra not in (0, 1):
        raise ValueError(
            f"{weights.size(-1)} tokens are not a grid of {grid[0]} x {grid[1]} patches, with or "
            "without a class token"
        )
    row = weights[..., 0, 1:] if extra else weights.mean(-2)
    return row.unflatten(-1, grid)
