"""GPT-NeoX, a GPT with rotary positions, in Hugging Face's names and back.

Its layers must follow each other (`use_parallel_residual = false`) and rotate all features. Their
rotation pairs feature k of a head with k + d/2, ours 2k with 2k + 1, and turns the other way:

    theirs   (x_k, x_k+d/2)     by  +w_k t
    ours     (x_2k, x_2k+1)     by  -w_k t

Both are the same after a permutation of the rows of W_q and W_k in every head. W_q, W_k and W_v
are one matrix there, in which the three parts of each head lie below each other.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.convert.weight_names import (
    TABLES,
    Weights,
    WeightTable,
    flag,
    known_values,
    read_fields,
    reordered,
    require_exportable,
    shown,
    with_zero_biases,
    write_fields,
)
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPTConfig

NAMES = TABLES["gpt_neox"]
FUSED = ".query_key_value"
ROTATED = (".self_attention.w_q", ".self_attention.w_k")  # modules of ours
BIASED = (f"{FUSED}.weight", ".attention.dense.weight")
WEIGHTS = WeightTable(
    NAMES["weights"],
    prefix="gpt_neox.",
    ignored=(".attention.bias", ".masked_bias", ".inv_freq"),  # of old files
    tied="embed_out.weight",
    fused=FUSED,
)


def from_hf(state: Mapping[str, Tensor], config: GPTConfig) -> Weights:
    """Return the weights of GPTNeoXForCausalLM as those of our `GPT`."""
    return WEIGHTS.to_ours(reordered(state, FUSED, _rows(config.stack)), tie=config.tie)


def to_hf(weights: Mapping[str, Tensor], config: GPTConfig) -> Weights:
    """Return the weights of our `GPT` as GPTNeoXForCausalLM's."""
    return reordered(WEIGHTS.to_theirs(weights), FUSED, _rows(config.stack).argsort())


def paired(stack: StackConfig) -> Int[Tensor, "d_model"]:
    """Return the row in their W_q or W_k of each of our rows."""
    halves = torch.arange(stack.d_model).view(stack.n_heads, 2, -1)
    return halves.flip(1).transpose(1, 2).flatten()


def _rows(stack: StackConfig) -> Int[Tensor, "row"]:
    """Return the row in their fused matrix of each row of our W_q, W_k and W_v."""
    q, k, v = torch.arange(3 * stack.d_model).view(stack.n_heads, 3, -1).unbind(1)
    order = paired(stack)
    return torch.cat([q.flatten()[order], k.flatten()[order], v.flatten()])


def with_biases(state: Mapping[str, Tensor], values: Mapping[str, Any]) -> Weights:
    """Add biases of 0 to the attention of a model that was built without them."""
    has_biases = flag({**NAMES["defaults"], **values}, "attention_bias")
    return dict(state) if has_biases else with_zero_biases(state, BIASED)


def config_from_hf(values: Mapping[str, Any]) -> GPTConfig:
    """Return our configuration from the contents of their config.json."""
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise CheckpointError(
            f"config.json: rope_parameters = {shown(rope)}: expected a table",
            "invalid_config_value",
        )
    renamed = {NAMES["rope"][name]: value for name, value in rope.items() if name in NAMES["rope"]}
    values = known_values({**NAMES["defaults"], **values, **renamed}, "gpt_neox")
    flag(values, "attention_bias")
    stack = StackConfig(norm="pre", **read_fields(values, NAMES["stack"]))
    return GPTConfig(**read_fields(values, NAMES["fields"]), positions="rotary", stack=stack)


def config_to_hf(config: GPTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for GPTNeoXForCausalLM."""
    require_exportable(config.stack, "pre", {"positions": (config.positions, "rotary")})
    sizes = write_fields(config, NAMES["fields"]) | write_fields(config.stack, NAMES["stack"])
    only = {name: value for name, (value, _) in NAMES["only"].items() if name != "rope_type"}
    return sizes | only
