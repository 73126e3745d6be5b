"""The cost of a `Stack`, from its `StackConfig` alone: the body of every family.

    block = attention + feed-forward network, each with its residual   (+ cross-attention)
    stack = n_layers · block                                           (+ a norm if pre-norm)

Per layer that is 4 d² + 2 d d_ff weights (8 d² + 2 d d_ff with cross-attention), besides biases and
norms. `Shape` says how much is computed at once.
"""

from dataclasses import dataclass

from polyhead.cost.experts import experts_cost
from polyhead.cost.parts import (
    BOOLEAN,
    FLOAT,
    INTEGER,
    NOTHING,
    Cost,
    attention_kernel,
    dropout,
    layer_norm,
    linear,
)
from polyhead.errors import ConfigError
from polyhead.layers.transformer_stack import StackConfig


@dataclass(frozen=True)
class Shape:
    """`batch` sequences of `length` positions, and of `source` positions on an encoder's side."""

    batch: int
    length: int
    source: int = 0

    def __post_init__(self) -> None:
        if self.batch < 1 or self.length < 1 or self.source < 0:
            given = f"batch {self.batch}, length {self.length}, source {self.source}"
            raise ConfigError(f"{given}: expected positive numbers (a source may be absent: 0)")

    @property
    def positions(self) -> int:
        """Positions of all sequences together."""
        return self.batch * self.length

    @property
    def source_positions(self) -> int:
        """The same on the encoder's side."""
        return self.batch * self.source

    @property
    def encoder(self) -> "Shape":
        """What an encoder sees of it."""
        return Shape(self.batch, self.source)


def stack_cost(
    config: StackConfig,
    shape: Shape,
    *,
    cross: bool = False,
    n_layers: int | None = None,
    asked: int | None = None,
) -> Cost:
    """A whole stack. Its output is kept by whoever reads it, and so not counted here.

    `asked` is how many positions are wanted of it: its last feed-forward network sees no others.
    """
    refuse_uncounted(config)
    depth = config.n_layers if n_layers is None else n_layers
    n = shape.positions if asked is None else asked
    last = layer_norm(n, config.d_model) if config.norm == "pre" else NOTHING
    before = block_cost(config, shape, cross=cross) * (depth - 1)
    return before + block_cost(config, shape, cross=cross, asked=asked) + last


def refuse_uncounted(config: StackConfig) -> None:
    """What has no formula here gets no number rather than a wrong one."""
    usual = StackConfig()
    for name in ("attention", "score", "reversible", "feed_chunk"):
        given = getattr(config, name)
        if given != getattr(usual, name):
            raise ConfigError(
                f"model.stack.{name} = {given!r}: only {getattr(usual, name)!r} can be counted; "
                "to compare sizes, count the model without it"
            )


def block_cost(
    config: StackConfig, shape: Shape, *, cross: bool = False, asked: int | None = None
) -> Cost:
    """One layer of Figure 1; which positions were asked for is kept as a number each."""
    n, d_model = shape.positions, config.d_model
    total = _attention(config, shape, shape.length) + linear(n, d_model, d_model, keeps=False) * 2
    total += _residual(config, n)
    if cross:
        total += _attention(config, shape, shape.source) + _residual(config, n)
        total += memory_projection(config, shape.source_positions)
    if asked is not None:
        n, total = asked, total + Cost(kept=INTEGER * asked)
    return total + _feed_forward(config, n) + _residual(config, n)


def memory_projection(config: StackConfig, source_positions: int) -> Cost:
    """Keys and values of an encoder's output: what a decoder's block computes for the source."""
    return linear(source_positions, config.d_model, config.d_model, keeps=False) * 2


def _attention(config: StackConfig, shape: Shape, n_keys: int) -> Cost:
    """W_q, the kernel and W_o; the input is kept here for W_k and W_v too.

    The fused kernel keeps its output, which is W_o's input; the other one's has to be copied.
    """
    n, d_model, p = shape.positions, config.d_model, config.attention_dropout
    d_head = d_model // config.n_heads
    kernel = attention_kernel(shape.batch, config.n_heads, shape.length, n_keys, d_head, p)
    return linear(n, d_model, d_model) + kernel + linear(n, d_model, d_model, keeps=False)


def _feed_forward(config: StackConfig, n: int) -> Cost:
    """One network for all positions, or the few of many that each of them asks."""
    if not config.experts.n:
        return _network(config, n)
    networks = _network(config, n * config.experts.k)
    return experts_cost(config.experts, n, config.d_model, networks)


def _network(config: StackConfig, n: int) -> Cost:
    """Two linear layers. What the activation needs for its gradient depends on which one it is.

    ReLU keeps its output, which is also what W_2 would keep, unless dropout has changed it; GELU
    keeps its input, or its slope.
    """
    wide, p = n * config.d_ff, config.activation_dropout
    shared = config.activation == "relu" and p == 0
    first = linear(n, config.d_model, config.d_ff)
    second = linear(n, config.d_ff, config.d_model, keeps=not shared)
    return first + Cost(kept=FLOAT * wide) + dropout(wide, p) + second


def _residual(config: StackConfig, n: int) -> Cost:
    """Norm and dropout of one sub-layer, wherever the norm stands."""
    return layer_norm(n, config.d_model) + dropout(n * config.d_model, config.dropout)


def cache_bytes(
    config: StackConfig, shape: Shape, *, beam: int = 1, n_layers: int | None = None
) -> int:
    """What decoding remembers: keys and values of every layer, and who may look at which slot.

    `length` slots for each hypothesis; those of the source once for all of them, and the encoder's
    output itself.
    """
    depth = config.n_layers if n_layers is None else n_layers
    slots = beam * shape.length
    keys_and_values = 2 * depth * config.d_model * (slots + shape.source)
    seen = BOOLEAN * beam * slots
    return shape.batch * (FLOAT * (keys_and_values + shape.source * config.d_model) + seen)
