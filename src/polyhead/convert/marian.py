"""Marian translation models (OPUS-MT) in Hugging Face's names and back.

Their position code has all sines first and then all cosines, ours takes turns. The order of the
features is a matter of taste as long as everyone agrees: one permutation of the residual stream,
applied to every weight that reads it (columns) or writes it (rows), turns one model into the other
exactly.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.weight_names import (
    TABLES,
    Weights,
    WeightTable,
    known_values,
    read_fields,
    require,
    require_exportable,
    whole,
    write_fields,
)
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import TransformerConfig

NAMES = TABLES["marian"]  # `stack` is the encoder's; the decoder may differ only in its depth
SIDES = {"encoder": NAMES["block"], "decoder": NAMES["block"] | NAMES["cross"]}
BLOCKS = {
    f"{side}.blocks.{{}}.{ours}": f"model.{side}.layers.{{}}.{theirs}"
    for side, names in SIDES.items()
    for ours, theirs in names.items()
}
Tie = Literal["none", "target", "all"]
COPIES = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
BIAS, OUR_BIAS = "final_logits_bias", "to_logits.bias"
WRITERS = (".w_o", ".w_2", ".norm")  # modules whose output is the residual stream


def _names(tie: Tie) -> WeightTable:
    names = BLOCKS | NAMES["embeddings"][tie]  # what is stored once, under which name
    copies = [f"{name}.weight" for name in COPIES if name not in names.values()]
    return WeightTable(names, ignored=(BIAS, "embed_positions.weight", *copies))


def from_hf(state: Mapping[str, Tensor], config: TransformerConfig) -> Weights:
    """Return the weights of MarianMTModel as those of our `Transformer`."""
    order = taking_turns(config.stack.d_model)
    converted = _permuted(_names(config.tie).to_ours(state), order)
    if config.output_bias:
        none = converted["embed_source.tokens.weight"].new_zeros(1, config.target_vocab)
        converted[OUR_BIAS] = state.get(BIAS, none)[0]
    return converted


def to_hf(weights: Mapping[str, Tensor], config: TransformerConfig) -> Weights:
    """Return the weights of our `Transformer` as MarianMTModel's."""
    order = taking_turns(config.stack.d_model).argsort()
    ours = dict(weights)
    bias = ours.pop(OUR_BIAS, torch.zeros(config.target_vocab))
    return _names(config.tie).to_theirs(_permuted(ours, order)) | {BIAS: bias[None]}


def taking_turns(d_model: int) -> Int[Tensor, "d_model"]:
    """Return the order of our features among theirs: sine 0, cosine 0, sine 1, and so on."""
    if d_model % 2:
        raise CheckpointError(
            f"config.json: d_model = {d_model}: expected an even number", "unsupported_config_value"
        )
    return torch.arange(d_model).unflatten(0, (2, -1)).t().flatten()


def _permuted(weights: Mapping[str, Tensor], order: Int[Tensor, "d_model"]) -> Weights:
    """Reorder the rows of what writes the residual stream, and the columns of what reads it."""
    converted = dict(weights)
    for name, tensor in weights.items():
        module, _, leaf = name.rpartition(".")
        axis = 0 if module.endswith(WRITERS) else -1
        if axis == 0 or leaf == "weight":
            if tensor.dim() == 0 or tensor.size(axis) != len(order):
                raise CheckpointError(
                    f"{name}: {tuple(tensor.shape)} does not fit d_model = {len(order)}",
                    "wrong_shape",
                )
            converted[name] = tensor.index_select(axis, order)
    return converted


def config_from_hf(values: Mapping[str, Any]) -> TransformerConfig:
    """Return our configuration from the contents of their config.json."""
    values = known_values(values, "marian")
    heads, d_ff = whole(values, "encoder_attention_heads"), whole(values, "encoder_ffn_dim")
    same = {"scale_embedding": True, "decoder_attention_heads": heads, "decoder_ffn_dim": d_ff}
    require(values, same)
    shared, tied = values["share_encoder_decoder_embeddings"], values["tie_word_embeddings"]
    if shared and not tied:
        raise CheckpointError(
            "config.json: shared embeddings with an output layer of its own",
            "unsupported_config_value",
        )
    if values.get("decoder_vocab_size") is None:
        values["decoder_vocab_size"] = values["vocab_size"]
    stack, n_layers = read_fields(values, NAMES["stack"]), whole(values, "decoder_layers")
    return TransformerConfig(
        **read_fields(values, NAMES["fields"]),
        tie="all" if shared else "target" if tied else "none",
        stack=StackConfig(norm="post", **stack),
        decoder_layers=None if n_layers == stack["n_layers"] else n_layers,
        output_bias=True,
    )


def config_to_hf(config: TransformerConfig) -> dict[str, Any]:
    """Return the contents of a config.json for MarianMTModel."""
    stack = config.stack
    others = {"positions": (config.positions, "sinusoidal"), "norm_eps": (stack.norm_eps, 1e-5)}
    for part in (config.encoder_stack, stack):
        require_exportable(part, "post", others)
    layers = stack.n_layers if config.decoder_layers is None else config.decoder_layers
    sizes = write_fields(config, NAMES["fields"]) | write_fields(stack, NAMES["stack"])
    return sizes | {
        "decoder_layers": layers,
        "decoder_ffn_dim": stack.d_ff,
        "decoder_attention_heads": stack.n_heads,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie == "all",
        "tie_word_embeddings": config.tie != "none",
    }


def generation(specials: SpecialIds) -> dict[str, Any]:
    """Return the contents of a generation_config.json."""
    return {
        "decoder_start_token_id": specials.bos,
        "eos_token_id": specials.eos,
        "pad_token_id": specials.pad,
        "bos_token_id": None,
        "forced_eos_token_id": None,
        "bad_words_ids": [[id] for id in sorted({specials.pad, specials.bos})],
    }
