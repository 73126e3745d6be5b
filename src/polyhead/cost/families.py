"""The bill of every family: its tables, its stacks and its output layer, added up.

A new family is one function of a few lines, from its configuration to a `Bill`, and one line in
`BILLS`. An encoder with a classifier, for instance, is

    Bill(shape, {
        "embeddings": table(vocab, d) + embedding(batch, length, d, dropout),
        "encoder": stack_cost(config.stack, shape),
        "output": linear(batch, d, n_classes),
    })

and one line in `CACHES` if it decodes. A part that several others share is counted where it stands
first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from polyhead.cost.parts import FLOAT, NOTHING, Cost, embedding, output_layer, table
from polyhead.cost.stack import Shape, cache_bytes, memory_projection, stack_cost
from polyhead.errors import ConfigError
from polyhead.layers.axial import AxialConfig, grid_of
from polyhead.layers.cross_entropy import CHUNK
from polyhead.layers.positions import PositionKind
from polyhead.models.gpt import GPTConfig
from polyhead.models.transformer import TransformerConfig


class PerToken(NamedTuple):
    """Training FLOPs that one token causes."""

    source: float
    target: float


@dataclass(frozen=True)
class Bill:
    """What each part costs, in the order of the picture.

    `vocab` is that of the output layer; `for_source` are the training FLOPs, of all, that positions
    of the source cause: the encoder, and its keys and values in the decoder.
    """

    shape: Shape
    parts: dict[str, Cost]
    vocab: int = 0
    for_source: int = 0

    @property
    def total(self) -> Cost:
        """All parts together."""
        return sum(self.parts.values(), start=NOTHING)

    @property
    def per_token(self) -> PerToken:
        """Training FLOPs that one source token and one target token cause."""
        of_source = self.for_source / max(1, self.shape.source_positions)
        return PerToken(of_source, (self.total.training - self.for_source) / self.shape.positions)


@dataclass(frozen=True)
class Memory:
    """Bytes of one training step with Adam, in float32."""

    parameters: int
    gradients: int
    moments: int  # Adam's two averages
    activations: int  # what autograd keeps until the way back
    logits: int  # the chunk of them that exists at any time

    @property
    def total(self) -> int:
        """All of it; short-lived tensors come on top."""
        return self.parameters + self.gradients + self.moments + self.activations + self.logits


def transformer_bill(config: TransformerConfig, shape: Shape) -> Bill:
    """Vaswani et al. 2017: two embeddings, two stacks, one output layer."""
    d_model, p = config.stack.d_model, config.stack.dropout
    tables = table(config.target_vocab, d_model)
    if config.tie != "all":
        tables += table(config.source_vocab, d_model)
    tables += position_tables(config.positions, d_model, config.max_length) * 2
    looking_up = embedding(shape.batch, shape.source, d_model, p)
    looking_up += embedding(shape.batch, shape.length, d_model, p)
    memory = Cost(kept=FLOAT * shape.source_positions * d_model)  # once for all decoder blocks
    encoder = stack_cost(config.encoder_stack, shape.encoder) + memory
    depth = config.stack.n_layers if config.decoder_layers is None else config.decoder_layers
    projected = memory_projection(config.stack, shape.source_positions) * depth
    tied = config.tie != "none"
    return Bill(
        shape,
        {
            "embeddings": tables + looking_up,
            "encoder": encoder,
            "decoder": stack_cost(config.stack, shape, cross=True, n_layers=depth),
            "output": output_layer(
                shape.positions, d_model, config.target_vocab, tied=tied, bias=config.output_bias
            ),
        },
        vocab=config.target_vocab,
        for_source=encoder.training + projected.training,
    )


def position_tables(
    kind: PositionKind, d_model: int, max_length: int, axial: AxialConfig | None = None
) -> Cost:
    """The parameters of a position code; waves and rotations have none."""
    if kind == "learned":
        return table(max_length, d_model)
    if kind != "axial":
        return NOTHING
    shape, widths = grid_of(axial or AxialConfig(), d_model, max_length)
    return sum((table(side, d) for side, d in zip(shape, widths, strict=True)), start=NOTHING)


def transformer_cache(config: TransformerConfig, shape: Shape, beam: int) -> int:
    """Bytes that decoding remembers."""
    return cache_bytes(config.stack, shape, beam=beam, n_layers=config.decoder_layers)


def gpt_bill(config: GPTConfig, shape: Shape) -> Bill:
    """Radford et al. 2019: one embedding, one stack, one output layer."""
    d_model = config.stack.d_model
    tables = table(config.vocab, d_model)
    tables += position_tables(config.positions, d_model, config.max_length, config.axial)
    parts = {
        "embeddings": tables + embedding(shape.batch, shape.length, d_model, config.stack.dropout),
        "stack": stack_cost(config.stack, shape),
        "output": output_layer(shape.positions, d_model, config.vocab, tied=config.tie),
    }
    return Bill(shape, parts, vocab=config.vocab)


def gpt_cache(config: GPTConfig, shape: Shape, beam: int) -> int:
    """Bytes that decoding remembers."""
    return cache_bytes(config.stack, shape, beam=beam)


BILLS: dict[str, Callable[[Any, Shape], Bill]] = {
    "transformer": transformer_bill,
    "gpt": gpt_bill,
    "reformer": gpt_bill,  # of other attention than full there is no bill, as for every family
}
CACHES: dict[str, Callable[[Any, Shape, int], int]] = {
    "transformer": transformer_cache,
    "gpt": gpt_cache,
    "reformer": gpt_cache,
}


TWO_SIDED = ("transformer",)  # families whose input has a source and a target


def bill(family: str, config: Any, shape: Shape) -> Bill:
    """The bill of a family, by its name."""
    if family not in BILLS:
        raise ConfigError(
            f"cost: no formulas for the family {family!r}; there are {', '.join(BILLS)}"
        )
    return BILLS[family](config, shape)


def step_memory(bill: Bill) -> Memory:
    """Memory of one training step."""
    numbers = bill.total.parameters
    rows = min(bill.shape.positions, max(1, CHUNK // bill.vocab)) if bill.vocab else 0
    return Memory(
        FLOAT * numbers,
        FLOAT * numbers,
        2 * FLOAT * numbers,
        bill.total.kept,
        FLOAT * rows * bill.vocab,
    )
