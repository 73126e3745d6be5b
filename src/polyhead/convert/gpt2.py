"""GPT-2 in Hugging Face's names and back.

Their linear layers are stored as (in, out), the transpose of ours, and W_q, W_k and W_v lie side by
side in one matrix.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyhead.convert.weight_names import (
    Weights,
    renamed,
    require,
    require_classic,
    split_rows,
    stack_from_hf,
    stack_to_hf,
    swapped,
    whole,
    without_prefix,
)
from polyhead.models.gpt import GPTConfig

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
NAMES = {
    "embed.tokens": "wte",
    "embed.positions.table": "wpe",
    "stack.blocks.{}.self_residual.norm": "h.{}.ln_1",
    "stack.blocks.{}.self_attention.w_q": "h.{}.attn.c_attn.0",
    "stack.blocks.{}.self_attention.w_k": "h.{}.attn.c_attn.1",
    "stack.blocks.{}.self_attention.w_v": "h.{}.attn.c_attn.2",
    "stack.blocks.{}.self_attention.w_o": "h.{}.attn.c_proj",
    "stack.blocks.{}.feed_residual.norm": "h.{}.ln_2",
    "stack.blocks.{}.feed_forward.w_1": "h.{}.mlp.c_fc",
    "stack.blocks.{}.feed_forward.w_2": "h.{}.mlp.c_proj",
    "stack.norm": "ln_f",
    "to_logits": "lm_head",
}
PREFIX = "transformer."
BUFFERS = (".attn.bias", ".attn.masked_bias")  # masks that old files carry along
TRANSPOSED = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
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
    theirs: Weights = {}
    for name, tensor in without_prefix(state, PREFIX).items():
        if name.endswith(BUFFERS) or (config.tie and name == "lm_head.weight"):
            continue
        turned = tensor.t() if name.endswith(TRANSPOSED) else tensor
        if ".c_attn." in name:
            module, _, leaf = name.rpartition(".")
            for i, part in enumerate(split_rows(turned, 3, name)):
                theirs[f"{module}.{i}.{leaf}"] = part.contiguous()
        else:
            theirs[name] = turned.contiguous()
    return renamed(theirs, swapped(NAMES))


def to_hf(weights: Mapping[str, Tensor]) -> Weights:
    """Our weights as GPT2LMHeadModel's."""
    theirs: Weights = {}
    parts = renamed(weights, NAMES)
    for name, tensor in parts.items():
        fused, _, rest = name.partition(".c_attn.")
        if rest in ("1.weight", "1.bias", "2.weight", "2.bias"):
            continue
        if rest:
            leaf = rest.removeprefix("0.")
            name = f"{fused}.c_attn.{leaf}"
            tensor = torch.cat([parts[f"{fused}.c_attn.{i}.{leaf}"] for i in range(3)])
        turned = tensor.t() if name.endswith(TRANSPOSED) else tensor
        theirs[name if name == "lm_head.weight" else PREFIX + name] = turned.contiguous()
    return theirs


def config_from_hf(values: Mapping[str, Any]) -> GPTConfig:
    """Return our configuration from the contents of their config.json."""
    require(values, ONLY)
    values = {**DEFAULTS, **values}
    if values["n_inner"] is None:
        values = {**values, "n_inner": 4 * whole(values, "n_embd")}
    return GPTConfig(
        vocab=whole(values, "vocab_size"),
        max_length=whole(values, "n_positions"),
        tie=bool(values["tie_word_embeddings"]),
        stack=stack_from_hf(values, STACK, norm="pre"),
    )


def config_to_hf(config: GPTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for GPT2LMHeadModel."""
    require_classic(config.stack, norm="pre", positions="learned", own=config.positions)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": config.vocab,
        "n_positions": config.max_length,
        **stack_to_hf(config.stack, STACK),
        "embd_pdrop": config.stack.dropout,
        "tie_word_embeddings": config.tie,
    }
