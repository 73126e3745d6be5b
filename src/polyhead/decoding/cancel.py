"""Cancellation of a running search.

A search calls its model for every token; `CancellableModel` raises `Cancelled` in such a call.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from polyhead.decoding.protocol import Decodable


class Cancelled(Exception):
    """The search was cancelled; there is no result."""


@dataclass(frozen=True)
class CancellableModel:
    """A decodable model that calls `is_cancelled` before every step of another."""

    model: Decodable[Any]
    is_cancelled: Callable[[], bool]

    def begin(self, source: Int[Tensor, "batch source"], *, width: int, max_length: int) -> Any:
        """Read the source."""
        return self.model.begin(source, width=width, max_length=max_length)

    def step(
        self, last: Int[Tensor, "batch beam"], state: Any
    ) -> Float[Tensor, "batch beam vocab"]:
        """Take one step, or raise `Cancelled`."""
        if self.is_cancelled():
            raise Cancelled
        return self.model.step(last, state)
