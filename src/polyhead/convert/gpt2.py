"""GPT-2 in Hugging Face's names and back.

Their linear layers are stored as (in, out), the transpose of ours, and W_q, W_k and W_v lie side by
side in one matrix.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.weight_names import (
    Weights,
    WeightTable,
    read_fields,
    require,
    require_classic,
    whole,
    write_fields,
)
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPTConfig

FIELDS = {"vocab": "vocab_size", "max_length": "n_positions", "tie": "tie_word_embeddings"}
STACK = {
    "d_model": "n_embd",
    "n_layers": "n_layer",
    "n_heads": "n_head",
    "d_ff": "n_inner",
    "activation": "activation_function",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "norm_eps": "layer_norm_epsilon",
}
WEIGHTS = WeightTable(
    {
        "embed.tokens": "transformer.wte",
        "embed.positions.table": "transformer.wpe",
        "stack.blocks.{}.self_residual.norm": "transformer.h.{}.ln_1",
        "stack.blocks.{}.self_attention.w_q": "transformer.h.{}.attn.c_attn.0",
        "stack.blocks.{}.self_attention.w_k": "transformer.h.{}.attn.c_attn.1",
        "stack.blocks.{}.self_attention.w_v": "transformer.h.{}.attn.c_attn.2",
        "stack.blocks.{}.self_attention.w_o": "transformer.h.{}.attn.c_proj",
        "stack.blocks.{}.feed_residual.norm": "transformer.h.{}.ln_2",
        "stack.blocks.{}.feed_forward.w_1": "transformer.h.{}.mlp.c_fc",
        "stack.blocks.{}.feed_forward.w_2": "transformer.h.{}.mlp.c_proj",
        "stack.norm": "transformer.ln_f",
        "to_logits": "lm_head",
    },
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),  # masks that old files carry along
    fused=".c_attn",
    transposed=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),
)
DEFAULTS: dict[str, Any] = {
    "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.1, "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
}  # fmt: skip
ONLY = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def from_hf(state: Mapping[str, Tensor], config: GPTConfig) -> Weights:
    """Return the weights of GPT2LMHeadModel or GPT2Model as ours."""
    return WEIGHTS.to_ours(state, ("lm_head.weight",) if config.tie else ())


def config_from_hf(values: Mapping[str, Any]) -> GPTConfig:
    """Return our configuration from the contents of their config.json."""
    require(values, ONLY)
    values = {**DEFAULTS, **values}
    if values["n_inner"] is None:
        values["n_inner"] = 4 * whole(values, "n_embd")
    stack = StackConfig(norm="pre", **read_fields(values, STACK))
    return GPTConfig(**read_fields(values, FIELDS), stack=stack)


def config_to_hf(config: GPTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for GPT2LMHeadModel."""
    require_classic(config.stack, norm="pre", positions="learned", own=config.positions)
    sizes = write_fields(config, FIELDS) | write_fields(config.stack, STACK)
    return sizes | {"embd_pdrop": config.stack.dropout}


def generation(specials: SpecialIds) -> dict[str, Any]:
    """Return the contents of a generation_config.json."""
    return {"bos_token_id": specials.eos, "eos_token_id": specials.eos}
