"""FLOPs of a reversible stack that reads running text: the Reformer's (Kitaev et al. 2020).

    forward     every branch once
    backward    every branch once more, and its gradients: 1 + 2 instead of 2
    saved       the two streams at the end, whatever the depth

What a position attends to depends on the layer's attention (n positions, d_head numbers each):

    full     n keys
    local    block + window keys, for whole blocks of queries
    lsh      2 · chunk keys in every round, for whole chunks; 2 products forward, 5 backward
             (the weights are computed again), and hashing: n · d_head · Σ buckets / 2 a round

An LSH layer has no W_q. Its buckets are stored and not computed again. Local attention to very long
inputs, and a feed-forward network in chunks, are computed a third time, except the last of their
two products, which no gradient needs.
"""

from polyhead.cost.formulas import FLOAT, Cost, Shape, attention_kernel, layer_norm, linear, product
from polyhead.errors import ConfigError
from polyhead.layers.local_attention import SMALLEST_BLOCK, SPAN
from polyhead.layers.lsh.hashing import factors
from polyhead.layers.transformer_stack import StackConfig


def reversible_cost(config: StackConfig, shape: Shape) -> Cost:
    """Cost of all blocks, the norm at the end, and the two saved streams."""
    if config.score != "scaled_dot" or config.experts.n:
        raise ConfigError("no cost formula for this reversible stack", "no_formula")
    total = layer_norm(shape.positions, config.d_model)
    total += Cost(saved=2 * FLOAT * shape.positions * config.d_model)
    for layer in range(config.n_layers):
        total += _block(config, shape, layer)
    return total


def _block(config: StackConfig, shape: Shape, layer: int) -> Cost:
    """Linear layers and the kernel, most of it computed twice."""
    n, d_model, kind = shape.positions, config.d_model, config.kind(layer)
    work = linear(n, d_model, d_model) * (3 if kind == "lsh" else 4)
    work += linear(n, d_model, config.d_ff) + linear(n, config.d_ff, d_model)
    chunked = product(n, d_model, config.d_ff) if 0 < config.feed_chunk < n else 0
    kernel = {"full": _full, "local": _local, "lsh": _lsh}[kind](config, shape)
    backward = work.forward + chunked + work.backward + kernel.backward
    return Cost(work.forward + kernel.forward, backward)


def _full(config: StackConfig, shape: Shape) -> Cost:
    d_head = config.d_model // config.n_heads
    cost = attention_kernel(shape.batch, config.n_heads, shape.length, shape.length, d_head)
    return Cost(cost.forward, cost.forward + cost.backward)


def _local(config: StackConfig, shape: Shape) -> Cost:
    """Neighbourhoods of very long inputs overlap in spans (`layers.local_attention`)."""
    block = max(SMALLEST_BLOCK, config.window // 2)
    if shape.length <= block:
        return _full(config, shape)
    span = _round_up(SPAN, block)
    is_long = shape.length > 2 * span
    n_blocks = _round_up(shape.length, block) // block
    if is_long:
        starts = range(0, shape.length, span)
        ranges = [(max(0, s - config.window), min(shape.length, s + span)) for s in starts]
        n_blocks = sum(_round_up(high - low, block) // block for low, high in ranges)
    d_head, n_keys = config.d_model // config.n_heads, block + config.window
    cost = attention_kernel(shape.batch * n_blocks, config.n_heads, block, n_keys, d_head)
    repeated = cost.forward // 2 if is_long else 0
    return Cost(cost.forward, cost.forward + repeated + cost.backward)


def _lsh(config: StackConfig, shape: Shape) -> Cost:
    lsh, d_head = config.lsh, config.d_model // config.n_heads
    chunk = min(lsh.chunk, shape.length)
    padded = _round_up(shape.length, chunk)
    heads = shape.batch * config.n_heads * lsh.rounds
    scores = heads * product(padded, d_head, 2 * chunk)
    halves = sum(size // 2 for size in factors(lsh.buckets or 2 * padded // chunk))
    hashing = heads * product(shape.length, d_head, halves)
    return Cost(hashing + 2 * scores, (2 + 5) * scores)


def _round_up(length: int, block: int) -> int:
    return -(-length // block) * block
