"""The cost of a reversible stack that reads running text: the Reformer's (Kitaev et al. 2020).

    way forward    every branch once
    way back       every branch once more, and its gradients: 1 + 2 instead of 2
    kept           the two streams that come out, whatever the depth

What a position looks at depends on the layer's attention (n positions, d_head numbers each):

    full     n keys
    local    block + window keys, for whole blocks of queries
    lsh      2 · chunk keys in every round, for whole chunks; 2 products there, 5 on the way back
             (it computes the weights once more), and hashing: n · d_head · Σ buckets / 2 a round

An LSH layer has no W_q. Its buckets are noted and not found a second time. Local attention to very
long inputs, and a feed-forward network in chunks, are gone through a third time, up to the last of
their two products, which no gradient needs.
"""

from dataclasses import dataclass

from polyhead.cost.parts import FLOAT, NOTHING, Cost, attention_kernel, layer_norm, linear, product
from polyhead.cost.stack import Shape
from polyhead.errors import ConfigError
from polyhead.layers.local_attention import SMALLEST_BLOCK, SPAN
from polyhead.layers.lsh.hashing import factors
from polyhead.layers.transformer_stack import StackConfig


@dataclass(frozen=True)
class Kernel:
    """FLOPs of an attention: at first, when it is done again for its gradients, and of those."""

    first: int
    again: int
    back: int


def reversible_cost(config: StackConfig, shape: Shape) -> Cost:
    """All blocks, the norm at the end, and two streams to begin the way back from."""
    if config.score != "scaled_dot" or config.experts.n:
        raise ConfigError("cost: no formulas for other scores or experts in a reversible stack")
    blocks = (_block(config, shape, layer) for layer in range(config.n_layers))
    n, d_model = shape.positions, config.d_model
    ends = layer_norm(n, d_model) + Cost(kept=2 * FLOAT * n * d_model)
    return sum(blocks, start=NOTHING) + ends


def _block(config: StackConfig, shape: Shape, layer: int) -> Cost:
    """One layer: linear layers, two norms and the kernel, most of it computed twice."""
    n, d_model, kind = shape.positions, config.d_model, config.kind(layer)
    square = linear(n, d_model, d_model)
    work = square * (3 if kind == "lsh" else 4)
    work += linear(n, d_model, config.d_ff) + linear(n, config.d_ff, d_model)
    repeated = product(n, d_model, config.d_ff) if 0 < config.feed_chunk < n else 0
    kernel = {"full": _full, "local": _local, "lsh": _lsh}[kind](config, shape)
    return Cost(
        work.parameters + 2 * 2 * d_model,
        work.forward + kernel.first,
        work.forward + repeated + work.backward + kernel.again + kernel.back,
    )


def _full(config: StackConfig, shape: Shape) -> Kernel:
    cost = attention_kernel(
        shape.batch, config.n_heads, shape.length, shape.length, config.d_model // config.n_heads
    )
    return Kernel(cost.forward, cost.forward, cost.backward)


def _local(config: StackConfig, shape: Shape) -> Kernel:
    """Neighbourhoods of very long inputs overlap in spans: see `layers.local`."""
    block = max(SMALLEST_BLOCK, config.window // 2)
    if shape.length <= block:
        return _full(config, shape)
    span = -(-SPAN // block) * block
    long = shape.length > 2 * span
    n_blocks = _blocks(shape.length, block)
    if long:
        lows = (max(0, start - config.window) for start in range(0, shape.length, span))
        highs = (min(shape.length, end + span) for end in range(0, shape.length, span))
        n_blocks = sum(_blocks(high - low, block) for low, high in zip(lows, highs, strict=True))
    cost = attention_kernel(
        shape.batch * n_blocks,
        config.n_heads,
        block,
        block + config.window,
        config.d_model // config.n_heads,
    )
    repeated = cost.forward // 2 if long else 0
    return Kernel(cost.forward, cost.forward + repeated, cost.backward)


def _blocks(length: int, block: int) -> int:
    return -(-length // block)


def _lsh(config: StackConfig, shape: Shape) -> Kernel:
    lsh, d_head = config.lsh, config.d_model // config.n_heads
    chunk = min(lsh.chunk, shape.length)
    n_chunks = _blocks(shape.length, chunk)
    heads = shape.batch * config.n_heads
    near = heads * lsh.rounds * product(n_chunks * chunk, d_head, 2 * chunk)
    halves = sum(size // 2 for size in factors(lsh.buckets or 2 * n_chunks))
    hashing = heads * lsh.rounds * product(shape.length, d_head, halves)
    return Kernel(hashing + 2 * near, 2 * near, 5 * near)
