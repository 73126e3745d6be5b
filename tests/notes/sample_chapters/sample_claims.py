"""A chapter with a claim for each status of a note."""

import math
import os.path as paths  # noqa: F401
from math import sqrt as root

import torch
from torch.nn import functional as F

from polyhead.layers.attention import CAUSAL, Mask, attention_weights
from polyhead.notes.claims import ClaimResult, claim, close, same

HALF = 0.5


def twice(x: float) -> float:
    return 2 * x


@claim("A1", twice)
def imprecise_note() -> ClaimResult:
    x = torch.rand(())
    if x < 0:
        return same(1, 2)
    return same(expected=F.relu(x), got=x)


@claim("B2", attention_weights, Mask.dense)
def right_note() -> ClaimResult:
    # a comment
    weights = attention_weights(torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4), CAUSAL)
    total = 0.0
    for row in weights[0, 0]:
        if row.sum() > HALF:
            total += row.sum().item()
        else:
            total = math.nan

    return close(
        expected=twice(1.0),
        got=total,
        within=1e-6,
    )  # fmt: skip


@claim("B10", Mask)
def wrong_note() -> ClaimResult:
    def squared(x):

        return x * x

    result = same(expected=2.0, got=root(squared(2.0)))
    return result.with_note("<script>alert(1)</script>", differs=True)
