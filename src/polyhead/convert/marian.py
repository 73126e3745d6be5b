"""Marian (OPUS-MT, post-norm) and Pegasus (pre-norm) in Hugging Face's names and back.

Their position code has all sines first and then all cosines, ours takes turns. The order of the
features is a matter of taste as long as everyone agrees: one permutation of the residual stream,
applied to every weight that reads it (columns) or writes it (rows), turns one model into the other
exactly.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.weight_names import (
    TABLES,
    Weights,
    WeightTable,
    flag,
    known_values,
    read_fields,
    require,
    require_exportable,
    whole,
    write_fields,
)
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import CheckpointError
from polyhead.layers.embeddings import SinusoidalPositions
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import TransformerConfig

NAMES = TABLES["marian"]  # `stack` is the encoder's; the decoder may have another depth
Kind = Literal["marian", "pegasus"]
NORMS: dict[Kind, Literal["pre", "post"]] = {"marian": "post", "pegasus": "pre"}
SIDES = {"encoder": NAMES["block"], "decoder": NAMES["block"] | NAMES["cross"]}
BLOCKS = {
    f"{side}.blocks.{{}}.{ours}": f"model.{side}.layers.{{}}.{theirs}"
    for side, names in SIDES.items()
    for ours, theirs in names.items()
} | {f"{side}.norm": f"model.{side}.layer_norm" for side in SIDES}  # of Pegasus
Tie = Literal["none", "target", "all"]
COPIES = ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
EMBEDDINGS = COPIES[:3]
TYPICAL_LENGTH = 20  # of an output
MOST_STORED = 8192  # positions
POSITIONS, N_COMPARED = "embed_positions.weight", 512
ONE_STACK = "encoder and decoder have the same number of heads here"
MOST_WIDENED = 4  # a small file must not become a large model
INNER = ("encoder_ffn_dim", "decoder_ffn_dim")
BIAS, OUR_BIAS = "final_logits_bias", "to_logits.bias"
WRITERS = (".w_o", ".w_2", ".norm")  # modules whose output is the residual stream


def _names(tie: Tie) -> WeightTable:
    names = BLOCKS | NAMES["embeddings"][tie]  # what is stored once, under which name
    copies = [f"{name}.weight" for name in COPIES if name not in names.values()]
    return WeightTable(names, ignored=(BIAS, POSITIONS, *copies))


def from_hf(state: Mapping[str, Tensor], config: TransformerConfig) -> Weights:
    """Return the weights of MarianMTModel or Pegasus as those of our `Transformer`."""
    d_model, named = config.stack.d_model, _names(config.tie).to_ours(state)
    embedding, bias = named.get("embed_source.tokens.weight"), state.get(BIAS)
    if embedding is None or embedding.shape[-1:] != (d_model,):  # before anything is that long
        raise CheckpointError(
            f"the file has no embedding that fits d_model = {d_model}", "wrong_shape"
        )
    converted = _permuted(named, taking_turns(d_model))
    if config.output_bias:
        none = embedding.new_zeros(config.target_vocab)
        converted[OUR_BIAS] = none if bias is None else bias.flatten()
    for name in (name for name in state if name.endswith(POSITIONS)):
        _check_positions(name, state[name], d_model)
    return converted


def _check_positions(name: str, table: Tensor, d_model: int) -> None:
    """Refuse stored positions (in old files) that are not the sinusoids computed here."""
    if table.is_meta:
        return
    theirs = _sinusoids(min(len(table), N_COMPARED), d_model)
    given = table[:N_COMPARED].float()
    if given.shape != theirs.shape or not torch.allclose(given, theirs, rtol=0, atol=1e-3):
        raise CheckpointError(
            f"{name} holds other positions than the sinusoids that are computed here",
            "unsupported_weights",
        )


def _sinusoids(n_positions: int, d_model: int) -> Float[Tensor, "position d_model"]:
    """Return our position code in their order."""
    return SinusoidalPositions(d_model)(n_positions)[:, taking_turns(d_model).argsort()]


def prepare(state: Mapping[str, Tensor], values: Mapping[str, Any], kind: Kind) -> Weights:
    """Return the weights of an equivalent model with scaled embeddings and one inner width.

    Where embeddings are not multiplied by √d (scale_embedding = false), they are divided by it
    once. A tied output layer is divided with them; the last norm of the decoder, which it alone
    reads, makes up for that. A narrower feed-forward layer gets features that are always 0.
    """
    known = known_values(values, kind)
    factors = {}
    if not flag(known, "scale_embedding"):
        root = max(1, whole(known, "d_model")) ** 0.5
        factors = {f"{name}.weight": 1 / root for name in EMBEDDINGS}
        if flag(known, "tie_word_embeddings"):
            n_last = whole(known, "decoder_layers") - 1
            last = "layer_norm" if kind == "pegasus" else f"layers.{n_last}.final_layer_norm"
            factors |= {f"model.decoder.{last}.{leaf}": root for leaf in ("weight", "bias")}
    widths = {name.partition("_")[0]: whole(known, name) for name in INNER}
    prepared = dict(state)
    for name, tensor in state.items():
        if name in factors and tensor.is_floating_point():
            prepared[name] = tensor.float() * factors[name]
        axis = 0 if ".fc1." in name else -1 if name.endswith(".fc2.weight") else None
        side = next((side for side in widths if name.startswith(f"model.{side}.")), None)
        if axis is not None and side is not None and tensor.dim():
            more = max(widths.values()) - widths[side]
            shape = [*tensor.shape]
            shape[axis] = more
            prepared[name] = torch.cat([tensor, tensor.new_zeros(shape)], axis) if more else tensor
    return prepared


def to_hf(weights: Mapping[str, Tensor], config: TransformerConfig) -> Weights:
    """Return the weights of our `Transformer` as MarianMTModel's or Pegasus'."""
    order = taking_turns(config.stack.d_model).argsort()
    ours = dict(weights)
    bias = ours.pop(OUR_BIAS, torch.zeros(config.target_vocab))
    theirs = _names(config.tie).to_theirs(_permuted(ours, order)) | {BIAS: bias[None]}
    if config.stack.norm == "pre" and config.max_length <= MOST_STORED:  # else reported as missing
        for side in SIDES:
            theirs[f"model.{side}.{POSITIONS}"] = _sinusoids(config.max_length, len(order))
    return theirs


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


def config_from_hf(values: Mapping[str, Any], kind: Kind = "marian") -> TransformerConfig:
    """Return our configuration from the contents of their config.json."""
    values = known_values(values, kind)
    heads = whole(values, "encoder_attention_heads")
    require(values, {"decoder_attention_heads": (heads, ONE_STACK)})
    flag(values, "scale_embedding")
    if kind == "pegasus":
        values |= {"share_encoder_decoder_embeddings": True, "decoder_vocab_size": None}
    shared, tied = (
        flag(values, f"{name}_embeddings") for name in ("share_encoder_decoder", "tie_word")
    )
    if shared and not tied:
        raise CheckpointError(
            "config.json: tie_word_embeddings = false is not supported where source and target "
            "share their embeddings: these are also the output layer's here",
            "unsupported_config_value",
        )
    if values.get("decoder_vocab_size") is None:
        values["decoder_vocab_size"] = values["vocab_size"]
    stack, n_layers = read_fields(values, NAMES["stack"]), whole(values, "decoder_layers")
    narrow, wide = sorted(whole(values, name) for name in INNER)
    stack["d_ff"] = wide
    if wide > MOST_WIDENED * narrow:
        raise CheckpointError(
            f"config.json: {' and '.join(INNER)} are {narrow} and {wide}: both are the same here, "
            f"and a layer is filled with zeros up to {MOST_WIDENED} times its width at most",
            "unsupported_config_value",
        )
    return TransformerConfig(
        **read_fields(values, NAMES["fields"]),
        tie="all" if shared else "target" if tied else "none",
        stack=StackConfig(norm=NORMS[kind], **stack),
        decoder_layers=None if n_layers == stack["n_layers"] else n_layers,
        output_bias=True,
    )


def config_to_hf(config: TransformerConfig) -> dict[str, Any]:
    """Return the contents of a config.json for MarianMTModel, or if norms come first, Pegasus."""
    stack = config.stack
    others: dict[str, tuple[object, object]] = {
        "positions": (config.positions, "sinusoidal"), "norm_eps": (stack.norm_eps, 1e-5)
    }  # fmt: skip
    if stack.norm == "pre":
        others["tie"] = config.tie, "all"
    of_encoder = {"encoder_attention": (config.encoder_stack.attention, "full")}
    require_exportable(stack, stack.norm, others | of_encoder)
    layers = stack.n_layers if config.decoder_layers is None else config.decoder_layers
    sizes = write_fields(config, NAMES["fields"]) | write_fields(stack, NAMES["stack"])
    if stack.norm == "pre":  # one vocabulary, one table
        del sizes["decoder_vocab_size"]
    else:
        sizes["share_encoder_decoder_embeddings"] = config.tie == "all"
    return sizes | {
        "decoder_layers": layers,
        "decoder_ffn_dim": stack.d_ff,
        "decoder_attention_heads": stack.n_heads,
        "scale_embedding": True,
        "tie_word_embeddings": config.tie != "none",
    }


def generation(
    specials: SpecialIds, config: TransformerConfig, decode: DecodeConfig
) -> dict[str, Any]:
    """Return the contents of a generation_config.json.

    Their length penalty divides by lengthᵅ, ours by ((5 + length) / 6)ᵅ, which grows as lengthᵝ
    with β = α · length / (5 + length).
    """
    settings: dict[str, Any] = {
        "decoder_start_token_id": specials.bos,
        "eos_token_id": specials.eos,
        "pad_token_id": specials.pad,
        "bos_token_id": None,
        "forced_eos_token_id": None,
        "bad_words_ids": [[id] for id in sorted({specials.pad, specials.bos} - {specials.eos})],
        "max_length": min(decode.max_length + 1, config.max_length),  # with the first token
        "num_beams": decode.beam,
    }
    if decode.beam > 1:
        alpha = decode.length_penalty * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH)
        settings |= {"length_penalty": round(alpha, 2), "early_stopping": False}
    return settings
