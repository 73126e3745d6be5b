"""Bounds of numbers in configurations, as types of fields; `config.from_dict` checks them.

A configuration comes with a model, so it is not trusted. Sizes that no weight confirms (a window, a
beam, a dilation) would be used as they are. Other integers are at most `config.MAX_INTEGER`.
"""

from typing import Annotated, Any, NamedTuple


class Bounds(NamedTuple):
    """The smallest and the largest value of a field; for pydantic too, which is not imported."""

    low: float
    high: float

    def __get_pydantic_core_schema__(self, kind: Any, schema_of: Any) -> Any:
        return {**schema_of(kind), "ge": self.low, "le": self.high}


Few = Annotated[int, Bounds(0, 2**10)]  # layers, rounds, beams: a loop over them is short
Length = Annotated[int, Bounds(0, 2**20)]  # positions, tokens, window
Factor = Annotated[float, Bounds(0, 100)]  # of a length
