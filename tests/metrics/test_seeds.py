"""Student's t against its closed forms for one and two degrees of freedom."""

import math

import pytest

from polyhead.metrics.seeds import quantile


@pytest.mark.parametrize("confidence", [0.05, 0.3, 0.5, 0.95, 0.999])
def test_quantiles_are_those_of_the_closed_forms(confidence):
    assert quantile(1, confidence) == pytest.approx(math.tan(math.pi * confidence / 2))
    two = confidence * math.sqrt(2 / (1 - confidence**2))
    assert quantile(2, confidence) == pytest.approx(two)
