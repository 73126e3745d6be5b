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
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.cost.counter import graph_depth
from polyhead.cost.formulas import attention_kernel, product

Layer = Callable[[Tensor], Tensor]  # (batch, length, d_model) → the same


def self_attention_work(n: int, d_model: int) -> int:
    """Return the FLOPs of Q Kᵀ and A V."""
    return attention_kernel(1, 1, n, n, d_model).forward


def recurrent_work(n: int, d_model: int) -> int:
    """Return the FLOPs of W_x x and W_h h at every position."""
    return 2 * product(n, d_model, d_model)


def convolution_work(n: int, d_model: int, kernel: int) -> int:
    """Return the FLOPs of a convolution: k matrices at every position, dilated or not."""
    return product(n, kernel * d_model, d_model)


def restricted_work(n: int, d_model: int, neighbours: int) -> int:
    """Return the FLOPs if every position looks at `neighbours` positions, itself included."""
    return attention_kernel(1, 1, n, neighbours, d_model).forward


class ConvolutionLayer(nn.Module):
    """A convolution over the present and k - 1 positions of the past, `dilation` apart."""

    def __init__(self, d_model: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        if kernel < 2:
            raise ValueError(
                f"kernel = {kernel}: at least 2 are needed to look at another position"
            )
        self.past = (kernel - 1) * dilation
        self.convolve = nn.Conv1d(d_model, d_model, kernel, dilation=dilation)

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        return self.convolve(F.pad(x.transpose(1, 2), (self.past, 0))).transpose(1, 2)


def receptive_field(kernel: int, n_layers: int, *, dilated: bool) -> int:
    """Return the positions that the top of a stack of convolutions sees: 1 + (k - 1) Σ dilations.

    Contiguous layers add k - 1 each. With dilations 1, k, k², … it is k^layers: no position twice.
    """
    return kernel**n_layers if dilated else 1 + (kernel - 1) * n_layers


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
    """Return the number of layers until the last position depends on the first.

    layer: makes the i-th layer.

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


def exponent(
    sizes: Sequence[int | float], values: Sequence[int | float], *, larger: int | None = None
) -> float:
    """Return the exponent of a power law through the `larger` last points."""
    return fit(sizes, values, larger=larger)[0]


def fit(
    sizes: Sequence[int | float], values: Sequence[int | float], *, larger: int | None = None
) -> tuple[float, float]:
    """Return exponent and R² of the power law through the `larger` last points; all if not given.

    R² is the part of the values' variation (of their logarithms) that the law explains.
    """
    count = min(larger or len(sizes), len(sizes))
    if count < 2 or len(sizes) != len(values) or min(*sizes, *values) <= 0:
        raise ValueError(f"a power law needs two or more positive points, got {list(values)}")
    x = torch.tensor(sizes[-count:], dtype=torch.float64).log()
    y = torch.tensor(values[-count:], dtype=torch.float64).log()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    rest = ((y - y.mean() - slope * (x - x.mean())) ** 2).sum()
    whole = ((y - y.mean()) ** 2).sum()
    explained = 1.0 - (rest / whole).item() if whole > 0 else 1.0
    return slope.item(), explained
