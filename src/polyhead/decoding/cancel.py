"""A model that stops when nobody waits for its answer any more.

A search cannot be stopped from outside, but it asks its model for every token. `CancellableModel`
passes these questions on as long as somebody wants the answers, and then raises `Cancelled`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from polyhead.decoding.protocol import Decodable


class Cancelled(Exception):
    """The search was given up; there is no result."""


@dataclass(frozen=True)
class CancellableModel:
    """Decodable like the model inside; `wanted` is asked before every step."""

    model: Decodable[Any]
    wanted: Callable[[], bool]

    def begin(self, source: Int[Tensor, "batch source"], *, width: int, max_length: int) -> Any:
        """Let the model read the source."""
        return self.model.begin(source, width=width, max_length=max_length)

    def step(
        self, last: Int[Tensor, "batch beam"], state: Any
    ) -> Float[Tensor, "batch beam vocab"]:
        """One more step, if anybody wants it."""
        if not self.wanted():
            raise Cancelled
        return self.model.step(last, state)
