"""The Vision Transformer in Hugging Face's names, and in timm's, and back.

Hugging Face has two sets of names: that of all files, and a newer one inside the library. We read
both and write that of the files. timm keeps W_q, W_k and W_v in one matrix, below each other.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from polyhead.convert.hf_bert import STACK
from polyhead.convert.pixels import MEAN, STD, TO_ONE
from polyhead.convert.weight_names import (
    Weights,
    WeightTable,
    n_classes,
    read_fields,
    require,
    require_classic,
    whole,
    write_fields,
)
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.vit import ViTConfig

HF = WeightTable(
    {
        "class_token": "vit.embeddings.cls_token",
        "positions.table.weight": "vit.embeddings.position_embeddings",
        "embed.project": "vit.embeddings.patch_embeddings.projection",
        "stack.blocks.{}.self_residual.norm": "vit.encoder.layer.{}.layernorm_before",
        "stack.blocks.{}.self_attention.w_q": "vit.encoder.layer.{}.attention.attention.query",
        "stack.blocks.{}.self_attention.w_k": "vit.encoder.layer.{}.attention.attention.key",
        "stack.blocks.{}.self_attention.w_v": "vit.encoder.layer.{}.attention.attention.value",
        "stack.blocks.{}.self_attention.w_o": "vit.encoder.layer.{}.attention.output.dense",
        "stack.blocks.{}.feed_residual.norm": "vit.encoder.layer.{}.layernorm_after",
        "stack.blocks.{}.feed_forward.w_1": "vit.encoder.layer.{}.intermediate.dense",
        "stack.blocks.{}.feed_forward.w_2": "vit.encoder.layer.{}.output.dense",
        "stack.norm": "vit.layernorm",
        "to_logits": "classifier",
    },
    aliases={
        "stack.blocks.{}.self_residual.norm": "vit.layers.{}.layernorm_before",
        "stack.blocks.{}.self_attention.w_q": "vit.layers.{}.attention.q_proj",
        "stack.blocks.{}.self_attention.w_k": "vit.layers.{}.attention.k_proj",
        "stack.blocks.{}.self_attention.w_v": "vit.layers.{}.attention.v_proj",
        "stack.blocks.{}.self_attention.w_o": "vit.layers.{}.attention.o_proj",
        "stack.blocks.{}.feed_residual.norm": "vit.layers.{}.layernorm_after",
        "stack.blocks.{}.feed_forward.w_1": "vit.layers.{}.mlp.fc1",
        "stack.blocks.{}.feed_forward.w_2": "vit.layers.{}.mlp.fc2",
    },
    ignored=("vit.pooler.dense.",),
)
TIMM = WeightTable(
    {
        "class_token": "cls_token",
        "positions.table.weight": "pos_embed",
        "embed.project": "patch_embed.proj",
        "stack.blocks.{}.self_residual.norm": "blocks.{}.norm1",
        "stack.blocks.{}.self_attention.w_q": "blocks.{}.attn.qkv.0",
        "stack.blocks.{}.self_attention.w_k": "blocks.{}.attn.qkv.1",
        "stack.blocks.{}.self_attention.w_v": "blocks.{}.attn.qkv.2",
        "stack.blocks.{}.self_attention.w_o": "blocks.{}.attn.proj",
        "stack.blocks.{}.feed_residual.norm": "blocks.{}.norm2",
        "stack.blocks.{}.feed_forward.w_1": "blocks.{}.mlp.fc1",
        "stack.blocks.{}.feed_forward.w_2": "blocks.{}.mlp.fc2",
        "stack.norm": "norm",
        "to_logits": "head",
    },
    fused=".qkv",
)
BATCH_AXES = {"class_token": 2, "positions.table.weight": 1}  # axes of size 1 that theirs have
DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12, "image_size": 224,
    "patch_size": 16, "num_channels": 3,
}  # fmt: skip
ONLY = {"qkv_bias": True}
BICUBIC = 3  # their number for how we resize


def to_ours(state: Mapping[str, Tensor], table: WeightTable) -> Weights:
    """Return the weights of one of their ViTs as ours."""
    converted = table.to_ours(state)
    for name, n_axes in BATCH_AXES.items():
        if name in converted:
            shape = converted[name].shape
            if len(shape) <= n_axes or any(size != 1 for size in shape[:n_axes]):
                raise CheckpointError(f"{name} has the odd shape {tuple(shape)}", "wrong_shape")
            converted[name] = converted[name].flatten(0, n_axes)
    return converted


def to_theirs(weights: Mapping[str, Tensor], table: WeightTable) -> Weights:
    """Return our weights as those of one of their ViTs."""
    batched = {n: weights[n][(None,) * axes] for n, axes in BATCH_AXES.items() if n in weights}
    return table.to_theirs({**weights, **batched})


def config_from_hf(values: Mapping[str, Any]) -> ViTConfig:
    """Return our configuration from the contents of their config.json."""
    require(values, ONLY)
    values = {**DEFAULTS, **values}
    height, width = _two(values, "image_size")
    patch, other = _two(values, "patch_size")
    if patch != other:
        raise CheckpointError(
            f"config.json: patches of {patch} x {other} are not supported",
            "unsupported_config_value",
        )
    return ViTConfig(
        classes=n_classes(values),
        height=height,
        width=width,
        channels=whole(values, "num_channels"),
        patch=patch,
        stack=StackConfig(norm="pre", **read_fields(values, STACK)),
    )


def config_to_hf(config: ViTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for ViTForImageClassification."""
    require_plain(config)
    if config.pooling != "class":
        raise CheckpointError(
            f'pooling = "{config.pooling}": their ViT reads its result from a class token, so this '
            "one cannot be written as theirs",
            "not_exportable",
        )
    return {
        "image_size": [config.height, config.width],
        "patch_size": config.patch,
        "num_channels": config.channels,
        **write_fields(config.stack, STACK),
    }


def pixels_to_hf(config: ViTConfig) -> dict[str, Any]:
    """Return the contents of a preprocessor_config.json: how an image becomes the input."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": config.height, "width": config.width},
        "resample": BICUBIC,
        "do_rescale": True,
        "rescale_factor": TO_ONE,
        "do_normalize": True,
        "image_mean": [MEAN] * config.channels,
        "image_std": [STD] * config.channels,
    }


def require_plain(config: ViTConfig) -> None:
    """Refuse what neither of the two libraries has in a ViT."""
    require_classic(config.stack, norm="pre", positions="learned", own=config.positions)
    if config.stem:
        raise CheckpointError(
            f"stem = {list(config.stem)}: their ViT has no convolutions before its patches, so "
            "this one cannot be written as theirs",
            "not_exportable",
        )


def _two(values: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Return height and width, given as two numbers or one."""
    value = values[name]
    sizes = list(value) if isinstance(value, list | tuple) else [value, value]
    if len(sizes) != 2:
        raise CheckpointError(
            f"config.json: {name} = {value!r}: expected a height and a width",
            "invalid_config_value",
        )
    return whole({name: sizes[0]}, name), whole({name: sizes[1]}, name)
