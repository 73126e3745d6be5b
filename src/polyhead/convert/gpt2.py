"""GPT-2 in Hugging Face's names and back.

Their linear layers are stored as (in, out), the transpose of ours, and W_q, W_k and W_v lie side by
side in one matrix.
"""

from collections.abc import Mapping
from typing import Any

from polyhead.convert.special_ids import SpecialIds
from polyhead.convert.weight_names import (
    TABLES,
    WeightTable,
    known_values,
    read_fields,
    require_exportable,
    whole,
    write_fields,
)
from polyhead.decoding.options import DecodeConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPTConfig

NAMES = TABLES["gpt2"]
END_OF_TEXT = {"bos_token_id": 50256, "eos_token_id": 50256}  # their default
DEFAULT_IDS = {"gpt_neox": {"bos_token_id": 0, "eos_token_id": 2}}
OF_PADDING, SAMPLING = ("pad_token_id", "bad_words_ids"), ("temperature", "top_k", "top_p")
WEIGHTS = WeightTable(
    NAMES["weights"],
    prefix="transformer.",
    ignored=(".attn.bias", ".attn.masked_bias"),  # masks that old files carry along
    tied="lm_head.weight",
    fused=".c_attn",
    transposed=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),
)


def config_from_hf(values: Mapping[str, Any]) -> GPTConfig:
    """Return our configuration from the contents of their config.json."""
    values = known_values(values, "gpt2")
    if values.get("n_inner") is None:
        values["n_inner"] = 4 * whole(values, "n_embd")
    stack = StackConfig(norm="pre", **read_fields(values, NAMES["stack"]))
    return GPTConfig(**read_fields(values, NAMES["fields"]), stack=stack)


def config_to_hf(config: GPTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for GPT2LMHeadModel."""
    require_exportable(config.stack, "pre", {"positions": (config.positions, "learned")})
    sizes = write_fields(config, NAMES["fields"]) | write_fields(config.stack, NAMES["stack"])
    return sizes | {"embd_pdrop": config.stack.dropout}


def generation(specials: SpecialIds, config: GPTConfig, decode: DecodeConfig) -> dict[str, Any]:
    """Return the contents of a generation_config.json, for GPT-NeoX too; EOS ends a line."""
    settings: dict[str, Any] = {
        "bos_token_id": specials.eos,
        "eos_token_id": specials.eos,
        "pad_token_id": specials.pad,
        "bad_words_ids": [[specials.pad], [specials.bos]],
        "max_length": config.max_length,
    }
    if decode.sample:
        settings |= {"do_sample": True} | {n: getattr(decode, n) for n in SAMPLING}
    return settings


def recorded_ids(values: Mapping[str, Any], vocab: int) -> dict[str, int | None]:
    """Return the ids of config.json that an export writes again; None if they are not usable."""
    defaults = DEFAULT_IDS.get(str(values.get("model_type")), END_OF_TEXT)
    ids = {name: values.get(name, default) for name, default in defaults.items()}
    return {n: id if type(id) is int and 0 <= id < vocab else None for n, id in ids.items()}
