"""The paper's figures are written down as printed, and its own arithmetic gives them."""

import pytest
from expected_errors import raises

from polyhead.cost.published import (
    PublishedSystem,
    estimated_flops,
    table_2,
)
from polyhead.errors import ConfigError


@pytest.mark.parametrize("numbers", [(-1.0, 8, 1e12), (1.0, 0, 1e12), (1.0, 8, 0.0)])
def test_impossible_estimates_are_refused(numbers):
    with raises(ConfigError, "out_of_range"):
        estimated_flops(*numbers)


def test_the_table_ends_with_a_row_of_ones_own():
    lines = table_2(PublishedSystem("mine", 20.5, None, 1.25e15, None)).split("\n")
    assert len(lines) == 2 + 10 + 1
    assert lines[2] == "| ByteNet | 23.75 |  |  |  |"
    assert lines[11] == "| Transformer (big) | 28.4 | 41.8 | 2.3e19 | 2.3e19 |"
    assert lines[-1] == "| mine | 20.5 |  | 1.2e15 |  |"
    assert table_2().split("\n") == lines[:-1]
