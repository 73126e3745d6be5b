"""Table 1 of Vaswani et al. 2017: four kinds of layer, what they cost, how far a signal must go.

    layer            work            sequential steps    longest path between two positions
    self-attention   n² d            1                   1
    recurrent        n d²            n                   n
    convolution      k n d²          1                   n / k, or log_k n if dilated
    restricted       r n d           1                   n / r

n positions, d numbers each, kernels of k positions, neighbourhoods of r. The table is about one
layer without its projections (W_q, W_k, W_v, W_o: n d² more). *Sequential steps* are operations
that must wait for each other, however many processors there are; work is done all the same.

Paths are measured: `layers_until_reached` stacks layers until a gradient arrives.
"""

import math
import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from polyhead.cost.counter import graph_depth
from polyhead.cost.formulas import attention_kernel, product
from polyhead.layers.transformer_stack import StackConfig

Layer = Callable[[Tensor], Tensor]  # (batch, length, d_model) → the same


def self_attention_work(n: int, d_model: int) -> int:
    """Return the FLOPs of Q Kᵀ and A V."""
    return restricted_work(n, d_model, n)


def recurrent_work(n: int, d_model: int) -> int:
    """Return the FLOPs of W_x x and W_h h at every position."""
    return 2 * product(n, d_model, d_model)


def restricted_work(n: int, d_model: int, neighbours: int) -> int:
    """Return the FLOPs if every position looks at `neighbours` positions, itself included."""
    one_head = StackConfig(d_model=d_model, n_heads=1)
    return attention_kernel(one_head, 1, n, neighbours).forward


def layers_to_see(n: int, kernel: int, *, dilated: bool) -> int:
    """Return the number of convolutions until the last of n positions depends on the first."""
    if not dilated:
        return math.ceil((n - 1) / (kernel - 1))
    layers = 0
    while kernel**layers < n:  # no logarithm: that of 3**5 to base 3 is a little more than 5
        layers += 1
    return layers


def layers_until_reached(
    layer: Callable[[int], Layer], n: int, d_model: int, *, most: int = 1000
) -> int:
    """Return the number of layers until the last position depends on the first; `layer` makes one.

    Depends means that the gradient is not exactly zero. In double precision, for it may be tiny.
    """
    x = torch.randn(1, n, d_model, dtype=torch.float64, requires_grad=True)
    h = x
    for number in range(most):
        made = layer(number)
        h = made.double()(h) if isinstance(made, nn.Module) else made(h)
        (gradient,) = torch.autograd.grad(h[0, -1].sum(), x, retain_graph=True)
        if gradient[0, 0].abs().sum() > 0:
            return number + 1
    raise ValueError(f"after {most} layers position {n} still does not depend on position 1")


def sequential_steps(layer: Layer, n: int, d_model: int) -> int:
    """Return the longest chain of operations in one layer, each waiting for the one before."""
    x = torch.randn(1, n, d_model, requires_grad=True)
    return graph_depth(layer(x))


def fit(sizes: Sequence[int | float], values: Sequence[int | float]) -> tuple[float, float]:
    """Return exponent and R² of the power law through these points.

    R² is the part of the values' variation (of their logarithms) that the law explains.
    """
    if len(sizes) < 2 or len(sizes) != len(values) or min(*sizes, *values) <= 0:
        raise ValueError(f"a power law needs two or more positive points, got {list(values)}")
    x, y = ([math.log(number) for number in numbers] for numbers in (sizes, values))
    explained = statistics.correlation(x, y) ** 2 if len(set(y)) > 1 else 1.0
    return statistics.linear_regression(x, y).slope, explained
