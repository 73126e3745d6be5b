"""FLOPs of a Transformer stack, and the memory it saves for backward, from its configuration.

    linear layer     2 n d_in d_out FLOPs forward, twice as many backward
    equation (1)     Q Kᵀ and A V: 2 n_queries n_keys h (d_k + d_v) FLOPs
    block            attention + feed-forward network, each with its residual (+ cross-attention)

Formulas and not a count of a running model, because a count takes seconds, needs real weights where
a kernel depends on the data (experts, hashing), and depends on the device's kernels. Tests compare
them with torch's counter and hooks.

FLOPs are those of matrix products, as in `torch.utils.flop_counter`: softmax, norms and activations
are left out (about 1 %). A causal mask changes nothing, nor does a fused kernel that computes Q Kᵀ
again in backward.

`saved` are the bytes that autograd keeps until backward: every input that a gradient needs. A
tensor that two parts need is counted once, by the part that needs it first. Short-lived tensors are
not counted. Everything is in float32.

A reversible stack (the Reformer's, Kitaev et al. 2020) computes every branch once more in backward,
and saves the two streams at its end, whatever the depth. What a position attends to depends on the
layer's attention (n positions, d_k numbers each):

    full     n keys
    local    block + window keys, for whole blocks of queries
    lsh      2 · chunk keys in every round, for whole chunks; 2 products forward, 5 backward
             (the weights are computed again), and hashing: n · d_k · Σ buckets / 2 a round

An LSH layer has no W_q. Its buckets are stored and not computed again. Local attention to very long
inputs, and a feed-forward network in chunks, are computed a third time, except the last of their
two products, which no gradient needs.
"""

from dataclasses import dataclass
from operator import attrgetter

from polyhead.errors import ConfigError
from polyhead.layers.local_attention import SMALLEST_BLOCK, SPAN
from polyhead.layers.lsh.hashing import factors
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import StackConfig

FLOAT, INTEGER, BOOLEAN = 4, 8, 1  # bytes
UNCOUNTED = ("attention", "score", "reversible", "feed_chunk", "experts.groups", "experts.gating")


@dataclass(frozen=True)
class Shape:
    """`batch` sequences of `length` positions, and of `source` positions in an encoder."""

    batch: int
    length: int
    source: int = 0

    def __post_init__(self) -> None:
        if self.batch < 1 or self.length < 1 or self.source < 0:
            given = f"batch {self.batch}, length {self.length}, source {self.source}"
            raise ConfigError(
                f"{given}: expected positive numbers (source may be 0)", "out_of_range"
            )

    @property
    def positions(self) -> int:
        """Positions of all sequences together."""
        return self.batch * self.length

    @property
    def source_positions(self) -> int:
        """Source positions of all sequences together."""
        return self.batch * self.source


@dataclass(frozen=True)
class Cost:
    """FLOPs, and bytes saved for backward. Costs of parts add up to the cost of the whole."""

    forward: int = 0
    backward: int = 0
    saved: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.forward + other.forward, self.backward + other.backward, self.saved + other.saved
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(self.forward * times, self.backward * times, self.saved * times)

    @property
    def training(self) -> int:
        """FLOPs of forward and backward."""
        return self.forward + self.backward


def product(n: int, d_in: int, d_out: int) -> int:
    """Return the FLOPs of an n x d_in matrix times a d_in x d_out matrix."""
    return 2 * n * d_in * d_out


def linear(n: int, d_in: int, d_out: int, *, saves: bool = True) -> Cost:
    """Cost of a linear layer at n positions; saves its input unless another part has."""
    work = product(n, d_in, d_out)
    return Cost(work, 2 * work, FLOAT * n * d_in if saves else 0)


def layer_norm(n: int, d_model: int) -> Cost:
    """Cost of a layer norm: saves its input, and mean and deviation of every position."""
    return Cost(saved=FLOAT * n * (d_model + 2))


def dropout(numbers: int, p: float) -> Cost:
    """Cost of dropout: saves a mask of one byte per number."""
    return Cost(saved=BOOLEAN * numbers if p > 0 else 0)


def embedding(positions: int, d_model: int, dropout_p: float) -> Cost:
    """Cost of looking up tokens: saves their ids and the dropout mask."""
    return Cost(saved=INTEGER * positions) + dropout(positions * d_model, dropout_p)


def output_layer(n: int, d_model: int, vocab: int) -> Cost:
    """Cost of the logits and the loss of n positions (`layers.cross_entropy`).

    Gradients are computed with the loss: those of input and weight are saved, the logits are not.
    """
    return linear(n, d_model, vocab, saves=False) + Cost(saved=FLOAT * d_model * (n + vocab))


def attention_kernel(
    config: StackConfig, batch: int, n_queries: int, n_keys: int, dropout_p: float = 0.0
) -> Cost:
    """Cost of equation (1) in every head.

    The fused kernel saves Q, K, V, its output, and one number for each query and head. With dropout
    on the weights a CPU has no fused kernel: the weights are saved thrice (before dropout, its
    factors, and after); nor if d_k and d_v differ: they are saved once.
    """
    heads, d_both = batch * config.n_heads, config.d_key + config.d_value
    work = heads * product(n_queries, d_both, n_keys)
    in_and_out = heads * d_both * (n_queries + n_keys)
    n_weights = 3 if dropout_p > 0 else int(config.d_key != config.d_value)
    others = heads * n_queries * (n_weights * n_keys or 1)
    return Cost(work, 2 * work, FLOAT * (in_and_out + others))


def activation(config: StackConfig, numbers: int) -> Cost:
    """Cost of an activation function: ReLU saves its output, which the next layer saves anyway."""
    return Cost(saved=0 if config.activation == "relu" else FLOAT * numbers)


def stack_cost(
    config: StackConfig,
    shape: Shape,
    *,
    cross: bool = False,
    n_layers: int | None = None,
    outputs: int | None = None,
) -> Cost:
    """Cost of a whole stack; its output is saved by the next part.

    outputs: number of positions that are read from it, if not all: the last feed-forward network
        processes only these.
    """
    for name in UNCOUNTED:
        if (value := attrgetter(name)(config)) != attrgetter(name)(StackConfig()):
            raise ConfigError(f"model.stack.{name} = {value!r}: no cost formula", "no_formula")
    depth = config.n_layers if n_layers is None else n_layers
    n = shape.positions if outputs is None else outputs
    last = layer_norm(n, config.d_model) if config.norm == "pre" else Cost()
    before = block_cost(config, shape, cross=cross) * (depth - 1)
    return before + block_cost(config, shape, cross=cross, outputs=outputs) + last


def block_cost(
    config: StackConfig, shape: Shape, *, cross: bool = False, outputs: int | None = None
) -> Cost:
    """Cost of one layer of Figure 1; the indices of `outputs` are saved."""
    n, d_model = shape.positions, config.d_model
    total = _attention(config, shape, shape.length) + memory_projection(config, n)
    total += _residual(config, n)
    if cross:
        total += _attention(config, shape, shape.source) + _residual(config, n)
        total += memory_projection(config, shape.source_positions)
    if outputs is not None:
        n, total = outputs, total + Cost(saved=INTEGER * outputs)
    total += _residual(config, n)
    if config.experts.n:  # k networks for each position
        total += experts_cost(config.experts, n, d_model)
        n *= config.experts.k
    return total + _network(config, n)


def memory_projection(config: StackConfig, positions: int) -> Cost:
    """Cost of keys and values, as those that a decoder block computes from the encoder's output."""
    d_both = config.n_heads * (config.d_key + config.d_value)
    return linear(positions, config.d_model, d_both, saves=False)


def _attention(config: StackConfig, shape: Shape, n_keys: int) -> Cost:
    """W_q, the kernel and W_o; W_q saves the input for W_k and W_v too, the kernel that of W_o."""
    n, d_model, n_heads = shape.positions, config.d_model, config.n_heads
    kernel = attention_kernel(config, shape.batch, shape.length, n_keys, config.attention_dropout)
    into, back = n_heads * config.d_key, n_heads * config.d_value
    return linear(n, d_model, into) + kernel + linear(n, back, d_model, saves=False)


def _network(config: StackConfig, n: int) -> Cost:
    """Two linear layers: ReLU saves its output, which W_2 would save too without dropout."""
    wide, p = n * config.d_ff, config.activation_dropout
    shared = config.activation == "relu" and p == 0
    first = linear(n, config.d_model, config.d_ff) + Cost(saved=FLOAT * wide)
    return first + dropout(wide, p) + linear(n, config.d_ff, config.d_model, saves=not shared)


def _residual(config: StackConfig, n: int) -> Cost:
    """Norm and dropout of one sub-layer."""
    return layer_norm(n, config.d_model) + dropout(n * config.d_model, config.dropout)


def experts_cost(config: ExpertsConfig, n: int, d_model: int) -> Cost:
    """Cost of routing n positions to their experts and back (`layers.mixture_of_experts`)."""
    gate = linear(n, d_model, config.n)
    n_largest = min(config.k + 1, config.n)
    n_copied = config.k if 1 < config.k < config.n else 0  # for the importance
    gate += Cost(saved=INTEGER * n * (n_largest + n_copied) + FLOAT * n * config.k)  # and softmax
    if config.noise:
        gate += linear(n, d_model, config.n, saves=False)
        numbers = 2 if config.k == config.n else 5  # input of softplus, ε; and three of equation 9
        flags = 0 if config.k == config.n else BOOLEAN
        gate += Cost(saved=n * config.n * (FLOAT * numbers + flags))
    routed = n * config.k
    # outputs, their weights in the order of the experts, and indices
    return gate + Cost(saved=FLOAT * routed * (d_model + 1) + 2 * INTEGER * routed)


def cache_bytes(
    config: StackConfig, shape: Shape, *, beam: int = 1, n_layers: int | None = None
) -> int:
    """Return the bytes of the decoding cache: keys and values of every layer, and the mask.

    Each hypothesis has `length` slots; those of the source, and the encoder's output, are shared.
    """
    depth = config.n_layers if n_layers is None else n_layers
    slots = beam * shape.length
    d_both = config.n_heads * (config.d_key + config.d_value)
    keys_and_values = depth * d_both * (slots + shape.source)
    mask = BOOLEAN * beam * slots
    return shape.batch * (FLOAT * (keys_and_values + shape.source * config.d_model) + mask)


def reversible_cost(config: StackConfig, shape: Shape) -> Cost:
    """Cost of a reversible stack: all blocks, the norm at the end, and the two saved streams."""
    if config.score != "scaled_dot" or config.experts.n:
        raise ConfigError("no cost formula for this reversible stack", "no_formula")
    total = layer_norm(shape.positions, config.d_model)
    total += Cost(saved=2 * FLOAT * shape.positions * config.d_model)
    for layer in range(config.n_layers):
        total += _reversible_block(config, shape, layer)
    return total


def _reversible_block(config: StackConfig, shape: Shape, layer: int) -> Cost:
    """Linear layers and the kernel, most of it computed twice."""
    n, d_model, kind = shape.positions, config.d_model, config.kind(layer)
    work = linear(n, d_model, config.n_heads * config.d_key) * (1 if kind == "lsh" else 2)
    work += linear(n, d_model, config.n_heads * config.d_value) * 2
    work += linear(n, d_model, config.d_ff) + linear(n, config.d_ff, d_model)
    chunked = product(n, d_model, config.d_ff) if 0 < config.feed_chunk < n else 0
    kernel = {"full": _full, "local": _local, "lsh": _lsh}[kind](config, shape)
    backward = work.forward + chunked + work.backward + kernel.backward
    return Cost(work.forward + kernel.forward, backward)


def _full(config: StackConfig, shape: Shape) -> Cost:
    cost = attention_kernel(config, shape.batch, shape.length, shape.length)
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
    cost = attention_kernel(config, shape.batch * n_blocks, block, block + config.window)
    share = config.d_key / (config.d_key + config.d_value)  # the last product is not repeated
    repeated = round(cost.forward * share) if is_long else 0
    return Cost(cost.forward, cost.forward + repeated + cost.backward)


def _lsh(config: StackConfig, shape: Shape) -> Cost:
    lsh = config.lsh
    chunk = min(lsh.chunk, shape.length)
    padded = _round_up(shape.length, chunk)
    heads = shape.batch * config.n_heads * lsh.rounds
    scores = heads * product(padded, config.d_key, 2 * chunk)
    values = heads * product(padded, config.d_value, 2 * chunk)
    halves = sum(size // 2 for size in factors(lsh.buckets or 2 * padded // chunk))
    hashing = heads * product(shape.length, config.d_key, halves)
    return Cost(hashing + scores + values, 4 * scores + 3 * values)


def _round_up(length: int, block: int) -> int:
    return -(-length // block) * block
