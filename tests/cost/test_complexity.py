"""Table 1 of the paper: work as torch counts it, and paths as gradients find them."""

import math

import pytest
from torch import nn

from polyhead.cost.complexity import (
    fit,
    layers_to_see,
    layers_until_reached,
)
from polyhead.layers.attention import attention
from polyhead.layers.convolution import Convolution


def attend(x):
    return attention(*(x[:, None],) * 3)[:, 0]


def convolution(d, kernel, dilation=1):
    return Convolution(d, d, kernel, dilation=dilation, causal=True)


@pytest.mark.parametrize("kernel", [2, 3, 5])
@pytest.mark.parametrize("n", [2, 9, 17, 27, 28])
@pytest.mark.parametrize("dilated", [False, True])
def test_gradients_arrive_after_as_many_convolutions_as_computed(kernel, n, dilated):
    def layer(number):
        made = convolution(2, kernel, kernel**number if dilated else 1)
        nn.init.constant_(made.v, 0.5)  # nothing may cancel out
        return made

    needed = layers_to_see(n, kernel, dilated=dilated)
    assert layers_until_reached(layer, n, 2) == needed
    fields = [kernel**i if dilated else 1 + (kernel - 1) * i for i in (needed - 1, needed)]
    assert fields[0] < n <= fields[1]  # 1 + (k - 1) Σ dilations
    if dilated:
        assert needed == math.ceil(math.log(n) / math.log(kernel) - 1e-9)


def test_attention_connects_everything_and_a_pointwise_layer_nothing():
    assert layers_until_reached(lambda _: attend, 50, 2) == 1
    with pytest.raises(ValueError, match="after 3 layers position 5 still does not depend"):
        layers_until_reached(lambda _: nn.Linear(2, 2), 5, 2, most=3)


def test_exponents_of_power_laws_are_found():
    sizes = [64, 128, 256, 512]
    assert fit(sizes, [3 * n**2 for n in sizes]) == pytest.approx((2, 1))
    slope, explained = fit(sizes, [1.0, 5.0, 2.0, 9.0])
    assert 0 < explained < 0.9 < 1 == fit(sizes, [7.0] * 4)[1]
    assert slope > 0 == fit(sizes, [7.0] * 4)[0]


@pytest.mark.parametrize(("sizes", "values"), [([1], [1]), ([1, 2], [0, 1]), ([1, 2], [1, 2, 3])])
def test_too_little_or_impossible_points_are_refused(sizes, values):
    with pytest.raises(ValueError, match="two or more positive points"):
        fit(sizes, values)
