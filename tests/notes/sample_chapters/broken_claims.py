"""A chapter with a claim that does not hold and one that raises an exception."""

from polyhead.layers.attention import FullAttention, MultiHeadAttention
from polyhead.notes.claims import ClaimResult, claim, same


@claim("Z1", MultiHeadAttention)
def does_not_hold() -> ClaimResult:
    return same(expected=1, got=2)


@claim("Z2", MultiHeadAttention)
def raises_an_exception() -> ClaimResult:
    return same(expected=1, got=MultiHeadAttention(512, 7, FullAttention()))
