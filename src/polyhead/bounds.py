"""Bounds of numbers in configurations, as types of fields; `config.from_dict` checks them.

A configuration comes with a model, so it is not trusted. Sizes that no weight confirms (a window, a
beam, a dilation) would be used as they are. Other integers are at most `config.MAX_INTEGER`.
"""

from typing import Annotated

from pydantic import Field

Few = Annotated[int, Field(ge=0, le=2**10)]  # layers, rounds, beams: a loop over them is short
Length = Annotated[int, Field(ge=0, le=2**20)]  # positions, tokens, window
Factor = Annotated[float, Field(ge=0, le=100)]  # of a length
