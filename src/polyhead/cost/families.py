"""The bill of every family: its tables, its stacks and its output layer, added up.

A new family is one function of a few lines, from its configuration to a `Bill`, and one line in
`BILLS`. An encoder with a classifier, for instance, is

    Bill(shape, {
        "embeddings": table(vocab, d) + embedding(batch, length, d, dropout),
        "encoder": stack_cost(config.stack, shape),
        "output": linear(batch, d, n_classes),
    })

and one line in `CACHES` if it decodes. A part that several others share is counted where it stands
first. Families without a bill, and attention without a formula, are measured (`cost.built`).
"""

from collections.abc import Callable
from typing import Any

from polyhead.cost.bills import Bill, position_tables
from polyhead.cost.encoders import BLANKS, bert_bill, classifier_bill, electra_bill, vit_bill
from polyhead.cost.parts import FLOAT, Cost, embedding, output_layer, table
from polyhead.cost.reversible import reversible_cost
from polyhead.cost.stack import Shape, cache_bytes, memory_projection, stack_cost
from polyhead.errors import ConfigError
from polyhead.models.gpt import GPTConfig
from polyhead.models.registry import FAMILIES
from polyhead.models.transformer import TransformerConfig


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


def transformer_cache(config: TransformerConfig, shape: Shape, beam: int) -> int:
    """Bytes that decoding remembers."""
    return cache_bytes(config.stack, shape, beam=beam, n_layers=config.decoder_layers)


def gpt_bill(config: GPTConfig, shape: Shape) -> Bill:
    """Radford et al. 2019: one embedding, one stack, one output layer; the Reformer too."""
    d_model = config.stack.d_model
    stack_of = reversible_cost if config.stack.reversible else stack_cost
    tables = table(config.vocab, d_model)
    tables += position_tables(config.positions, d_model, config.max_length, config.axial)
    parts = {
        "embeddings": tables + embedding(shape.batch, shape.length, d_model, config.stack.dropout),
        "stack": stack_of(config.stack, shape),
        "output": output_layer(shape.positions, d_model, config.vocab, tied=config.tie),
    }
    return Bill(shape, parts, vocab=config.vocab)


def gpt_cache(config: GPTConfig, shape: Shape, beam: int) -> int:
    """Bytes that decoding remembers."""
    return cache_bytes(config.stack, shape, beam=beam)


BILLS: dict[str, Callable[[Any, Shape], Bill]] = {
    "transformer": transformer_bill,
    "gpt": gpt_bill,
    "reformer": gpt_bill,
    "classifier": classifier_bill,
    "vit": vit_bill,
}
BLANKED: dict[str, Callable[[Any, Shape, float], Bill]] = {  # asked at a share of the positions
    "bert": bert_bill,
    "electra": electra_bill,
}
CACHES: dict[str, Callable[[Any, Shape, int], int]] = {
    "transformer": transformer_cache,
    "gpt": gpt_cache,
    "reformer": gpt_cache,
}
TWO_SIDED = tuple(  # families whose input has a source and a target
    family for family, entry in FAMILIES.items() if entry.task == "translation"
)


def bill(family: str, config: Any, shape: Shape, *, blanks: float = BLANKS) -> Bill:
    """The bill of a family, by its name; `blanks` is the share of tokens that some are asked."""
    if family in BLANKED:
        return BLANKED[family](config, shape, blanks)
    if family not in BILLS:
        known = ", ".join([*BILLS, *BLANKED])
        raise ConfigError(f"cost: no formulas for the family {family!r}; there are {known}")
    return BILLS[family](config, shape)
