"""Attention of an image model by patch, and attention roll-out.

    Â_l = (Ā_l + I) / 2                    Ā_l the mean over the heads of layer l, I the residual
    R   = Â_L Â_(L-1) … Â_1                R_ij: how much of patch j is in token i at the end

(Abnar & Zuidema 2020.) The tokens that a layer attends to are already mixtures of patches; roll-out
follows the mixtures down to the patches. It weights all heads equally and ignores values and
feed-forward layers, so it is an approximation.

Attention by patch is the row of the class token, or the mean over all rows if the model pools by
the mean.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def rollout(layers: Sequence[Float[Tensor, "head token token"]]) -> Float[Tensor, "token token"]:
    """Return the share of each input token in each output token. Rows sum to one."""
    identity = torch.eye(layers[0].size(-1), dtype=torch.float64)
    shares = identity
    for weights in layers:
        shares = (weights.double().mean(0) + identity) / 2 @ shares
    return shares.float()


def by_patch(
    weights: Float[Tensor, "*batch token token"], grid: tuple[int, int]
) -> Float[Tensor, "*batch row column"]:
    """Return the weight of each patch: the mean of the class tokens' rows, or of all rows.

    Tokens beyond the number of patches are class tokens, and come first. Their weights for
    themselves are left out, so the patches may sum to less than one.
    """
    extra = weights.size(-1) - grid[0] * grid[1]
    if extra not in (0, 1, 2):
        raise ValueError(
            f"{weights.size(-1)} tokens: expected {grid[0]} x {grid[1]} patches, with or without "
            "class tokens"
        )
    row = weights[..., :extra, extra:].mean(-2) if extra else weights.mean(-2)
    return row.unflatten(-1, grid)
