"""Bounds of numbers and choices of names in configurations, as types of fields.

`config.from_dict` checks them. A configuration comes with a model, so it is not trusted. Sizes that
no weight confirms (a window, a beam, a dilation) would be used as they are. Other integers are at
most `config.MAX_INTEGER`.
"""

from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable


class Bounds(NamedTuple):
    """The smallest and the largest value of a field; for pydantic too, which is not imported."""

    low: float
    high: float

    def __get_pydantic_core_schema__(self, kind: Any, schema_of: Any) -> Any:
        return {**schema_of(kind), "ge": self.low, "le": self.high}


Few = Annotated[int, Bounds(0, 2**10)]  # layers, rounds, beams: a loop over them is short
Length = Annotated[int, Bounds(0, 2**20)]  # positions, tokens, window
Factor = Annotated[float, Bounds(0, 100)]  # of a length


@runtime_checkable
class Choices(Protocol):
    """The names that a field may have, such as those of a registry: Annotated[str, CHOICES]."""

    def check(self, name: str, path: str) -> None:
        """Raise ConfigError if the value of the setting `path` is not one of the names."""
        ...

    def plugin_of(self, name: str) -> str | None:
        """Return the plug-in that registered a name; None for a part of the package."""
        ...
