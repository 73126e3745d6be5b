"""Match errors by class and stable code; their prose may change."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from polyhead.errors import PolyheadError


@contextmanager
def raises(
    kind: type[PolyheadError], code: str, *mentions: str
) -> Iterator[pytest.ExceptionInfo[PolyheadError]]:
    """Expect an error of this class and code, whose message has these names or values in it."""
    with pytest.raises(kind) as info:
        yield info
    assert info.value.code == code, f"code {info.value.code!r}, message: {info.value}"
    for value in mentions:
        assert value in str(info.value), f"no {value!r} in: {info.value}"
