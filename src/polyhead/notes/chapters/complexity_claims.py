"""Complexity (rows I1 to I6): Table 1 of the paper, counted by torch and traced by gradients."""

from functools import partial

import torch
from torch import Tensor

from polyhead.cost.complexity import (
    fit,
    layers_to_see,
    layers_until_reached,
    recurrent_work,
    restricted_work,
    self_attention_work,
    sequential_steps,
)
from polyhead.cost.counter import count_flops, saved_bytes
from polyhead.layers.attention import FullAttention, Mask, attention
from polyhead.layers.convolution import Convolution
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.recurrent import Recurrence
from polyhead.notes.claims import ClaimResult, claim, close, same


def attend(x: Tensor) -> Tensor:
    """Compute self-attention of one head."""
    return attention(*(x[:, None],) * 3)[:, 0]


@claim("I1", attention, self_attention_work)
def attention_is_quadratic() -> ClaimResult:
    """Count the products of equation (1) with torch for four lengths."""
    lengths, d = [32, 64, 128, 256], 16
    work = [count_flops(lambda n=n: attend(torch.randn(1, n, d))) for n in lengths]  # type: ignore[misc]
    power, explained = fit(lengths, work)
    deeper = sequential_steps(attend, 256, d) - sequential_steps(attend, 32, d)
    exact = work == [4 * n * n * d for n in lengths] == [self_attention_work(n, d) for n in lengths]
    got = f"n^{power:.2f}, R² = {explained:.3f}, {deeper} more steps"
    return ClaimResult("n^2.00, 0 more steps", got, exact and explained > 0.99 and deeper == 0)


@claim("I2", Recurrence, recurrent_work, sequential_steps)
def sequential_recurrence() -> ClaimResult:
    """Measure the longest chain of the graph for 64 more words."""
    layer = Recurrence("rnn", 8, 1, 0.0)

    def read(x: Tensor) -> Tensor:
        return layer(x, (torch.zeros(1, 1, 8),))[0]

    depth = {n: sequential_steps(read, n, 8) for n in (64, 65, 128)}
    steps = (depth[128] - depth[64]) / (depth[65] - depth[64])
    work = count_flops(lambda: read(torch.randn(1, 64, 8)))
    return same(expected=64.0, got=steps).if_also(work == recurrent_work(64, 8) == 4 * 64 * 8**2)


@claim("I3", Convolution, layers_until_reached, layers_to_see)
def layers_of_convolution() -> ClaimResult:
    """Count layers until position 27 depends on position 1, dilated and contiguous, k = 3."""

    def reached(dilation: int) -> int:
        made = partial(Convolution, 4, 4, 3, causal=True)
        return layers_until_reached(lambda layer: made(dilation=dilation**layer), 27, 4)

    dilated, contiguous = reached(3), reached(1)
    computed = [layers_to_see(27, 3, dilated=True), layers_to_see(27, 3, dilated=False)]
    result = same(expected=[3, 13], got=[dilated, contiguous]).if_also(computed == [3, 13])
    return result.with_note([3, 3], differs=contiguous != 3)


@claim("I4", LocalAttention, restricted_work)
def restricted_attention() -> ClaimResult:
    """Measure the work's exponent, and layers until position 65 depends on 1, r = 16."""
    local = LocalAttention(window=16)

    def attend_locally(x: Tensor) -> Tensor:
        return local(*(x[:, None],) * 3)[:, 0]

    x, place = torch.randn(1, 1, 100, 8), torch.arange(100)
    band = (place[:, None] - place).abs() <= 16
    right = close(attention(x, x, x, Mask(pairs=band[None])), local(x, x, x), within=1e-5)
    lengths = [256, 512, 1024]
    work = [count_flops(lambda n=n: attend_locally(torch.randn(1, n, 8))) for n in lengths]  # type: ignore[misc]
    enough = all(w >= restricted_work(n, 8, 2 * 16) for n, w in zip(lengths, work, strict=True))
    layers = layers_until_reached(lambda _: attend_locally, 65, 2)
    power = fit(lengths, work)[0]
    result = same("n^1.00, 4 layers", f"n^{power:.2f}, {layers} layers")
    return result.if_also(right).if_also(enough)


@claim("I5", attention, sequential_steps)
def steps_and_work() -> ClaimResult:
    """Compare how steps and work grow when the input becomes four times as long."""
    steps = sequential_steps(attend, 256, 8) / sequential_steps(attend, 64, 8)
    short, long = (count_flops(lambda n=n: attend(torch.randn(1, n, 8))) for n in (64, 256))  # type: ignore[misc]
    result = same("steps x 1, work x 16", f"steps x {steps:g}, work x {long / short:g}")
    return result.with_note("work x 1", differs=long != short)


@claim("I6", attention, FullAttention, saved_bytes)
def memory_of_weights() -> ClaimResult:
    """Count the bytes that autograd saves beyond Q, K and V."""
    batch, heads, n, d_head = 2, 4, 256, 16
    q, k, v = (torch.randn(batch, heads, n, d_head, requires_grad=True) for _ in range(3))
    printed = saved_bytes(lambda: attention(q, k, v), without=(q, k, v))
    fused = saved_bytes(lambda: FullAttention()(q, k, v), without=(q, k, v))
    output_and_sums = 4 * batch * heads * n * (d_head + 1)
    return same(expected=[4 * batch * heads * n**2, output_and_sums], got=[printed, fused])
