"""The Vision Transformer in Hugging Face's names, and in timm's, and back.

Hugging Face has two sets of names: that of all files, and a newer one inside the library. We read
both and write that of the files. timm keeps W_q, W_k and W_v in one matrix, below each other.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polyhead.convert.hf_bert import STACK
from polyhead.convert.weight_names import (
    Weights,
    n_classes,
    renamed,
    require,
    require_classic,
    split_rows,
    stack_from_hf,
    stack_to_hf,
    swapped,
    whole,
)
from polyhead.errors import CheckpointError
from polyhead.models.vit import ViTConfig

EDGES = {
    "class": "vit.embeddings.cls",
    "positions": "vit.embeddings.position",
    "embed.project": "vit.embeddings.patch_embeddings.projection",
    "stack.norm": "vit.layernorm",
    "to_logits": "classifier",
}
FILES = EDGES | {
    "stack.blocks.{}.self_residual.norm": "vit.encoder.layer.{}.layernorm_before",
    "stack.blocks.{}.self_attention.w_q": "vit.encoder.layer.{}.attention.attention.query",
    "stack.blocks.{}.self_attention.w_k": "vit.encoder.layer.{}.attention.attention.key",
    "stack.blocks.{}.self_attention.w_v": "vit.encoder.layer.{}.attention.attention.value",
    "stack.blocks.{}.self_attention.w_o": "vit.encoder.layer.{}.attention.output.dense",
    "stack.blocks.{}.feed_residual.norm": "vit.encoder.layer.{}.layernorm_after",
    "stack.blocks.{}.feed_forward.w_1": "vit.encoder.layer.{}.intermediate.dense",
    "stack.blocks.{}.feed_forward.w_2": "vit.encoder.layer.{}.output.dense",
}
LIBRARY = {
    "stack.blocks.{}.self_residual.norm": "vit.layers.{}.layernorm_before",
    "stack.blocks.{}.self_attention.w_q": "vit.layers.{}.attention.q_proj",
    "stack.blocks.{}.self_attention.w_k": "vit.layers.{}.attention.k_proj",
    "stack.blocks.{}.self_attention.w_v": "vit.layers.{}.attention.v_proj",
    "stack.blocks.{}.self_attention.w_o": "vit.layers.{}.attention.o_proj",
    "stack.blocks.{}.feed_residual.norm": "vit.layers.{}.layernorm_after",
    "stack.blocks.{}.feed_forward.w_1": "vit.layers.{}.mlp.fc1",
    "stack.blocks.{}.feed_forward.w_2": "vit.layers.{}.mlp.fc2",
}
TIMM = {
    "class": "cls",
    "positions": "pos",
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
}
# tensors that stand alone: our name, as a module for the tables, and theirs
OURS = {"class_token": "class.token", "positions.table.weight": "positions.table"}
HF = {
    "vit.embeddings.cls_token": "vit.embeddings.cls.token",
    "vit.embeddings.position_embeddings": "vit.embeddings.position.table",
}
TIMMS = {"cls_token": "cls.token", "pos_embed": "pos.table"}
DEFAULTS: dict[str, Any] = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12, "image_size": 224,
    "patch_size": 16, "num_channels": 3,
}  # fmt: skip
ONLY = {"qkv_bias": True}
BICUBIC = 3  # their number for how we resize


def from_hf(state: Mapping[str, Tensor]) -> Weights:
    """Return the weights of ViTForImageClassification as ours."""
    pooler = ("vit.pooler.dense.weight", "vit.pooler.dense.bias")
    theirs = _flat({HF.get(name, name): tensor for name, tensor in state.items()})
    converted = renamed(theirs, swapped(FILES) | swapped(LIBRARY), pooler)
    return {swapped(OURS).get(name, name): tensor for name, tensor in converted.items()}


def to_hf(weights: Mapping[str, Tensor]) -> Weights:
    """Our weights as ViTForImageClassification's, in the names of its files."""
    converted = renamed({OURS.get(name, name): t for name, t in weights.items()}, FILES)
    back = swapped(HF)
    return _with_batch({back.get(name, name): tensor for name, tensor in converted.items()}, back)


def from_timm(state: Mapping[str, Tensor]) -> Weights:
    """Return the weights of one of timm's vit_* models as ours."""
    theirs: Weights = {}
    for name, tensor in _flat({TIMMS.get(n, n): t for n, t in state.items()}).items():
        module, _, leaf = name.rpartition(".")
        if module.endswith(".qkv"):
            for i, part in enumerate(split_rows(tensor, 3, name)):
                theirs[f"{module}.{i}.{leaf}"] = part.contiguous()
        else:
            theirs[name] = tensor
    converted = renamed(theirs, swapped(TIMM))
    return {swapped(OURS).get(name, name): tensor for name, tensor in converted.items()}


def to_timm(weights: Mapping[str, Tensor]) -> Weights:
    """Our weights as those of one of timm's vit_* models."""
    converted = renamed({OURS.get(name, name): t for name, t in weights.items()}, TIMM)
    for name in [name for name in converted if ".qkv.0." in name]:
        parts = [converted.pop(name.replace(".qkv.0.", f".qkv.{i}.")) for i in range(3)]
        converted[name.replace(".qkv.0.", ".qkv.")] = torch.cat(parts)
    back = swapped(TIMMS)
    return _with_batch({back.get(name, name): tensor for name, tensor in converted.items()}, back)


def config_from_hf(values: Mapping[str, Any]) -> ViTConfig:
    """Return our configuration from the contents of their config.json."""
    require(values, ONLY)
    values = {**DEFAULTS, **values}
    height, width = _two(values, "image_size")
    patch, other = _two(values, "patch_size")
    if patch != other:
        raise CheckpointError(
            f"config.json: patches of {patch} x {other} are not supported", "unsupported_config"
        )
    return ViTConfig(
        classes=n_classes(values),
        height=height,
        width=width,
        channels=whole(values, "num_channels"),
        patch=patch,
        stack=stack_from_hf(values, STACK, norm="pre"),
    )


def config_to_hf(config: ViTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for ViTForImageClassification."""
    require_plain(config)
    if config.pooling != "class":
        raise CheckpointError(
            f'pooling = "{config.pooling}": their ViT reads its result from a class token, so this '
            "one cannot be written as theirs",
            "unsupported_config",
        )
    return {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "image_size": [config.height, config.width],
        "patch_size": config.patch,
        "num_channels": config.channels,
        **stack_to_hf(config.stack, STACK),
        "id2label": {str(i): f"LABEL_{i}" for i in range(config.classes)},
        "label2id": {f"LABEL_{i}": i for i in range(config.classes)},
    }


def pixels_to_hf(config: ViTConfig, mean: list[float], std: list[float]) -> dict[str, Any]:
    """Return the contents of a preprocessor_config.json: how an image becomes the input."""
    return {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "size": {"height": config.height, "width": config.width},
        "resample": BICUBIC,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
    }


def require_plain(config: ViTConfig) -> None:
    """Refuse what neither of the two libraries has in a ViT."""
    require_classic(config.stack, norm="pre", positions="learned", own=config.positions)
    if config.stem:
        raise CheckpointError(
            f"stem = {list(config.stem)}: their ViT has no convolutions before its patches, so "
            "this one cannot be written as theirs",
            "unsupported_config",
        )


def _two(values: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Return height and width, given as two numbers or one."""
    value = values[name]
    if not isinstance(value, list | tuple):
        return whole(values, name), whole(values, name)
    if len(value) != 2:
        raise CheckpointError(
            f"config.json: {name} = {value!r}: expected a height and a width", "unsupported_config"
        )
    return whole({name: value[0]}, name), whole({name: value[1]}, name)


def _flat(state: Weights) -> Weights:
    """Remove the batch axis of the class token and the positions."""
    alone = {".token": (0, 0), ".table": (0,)}
    converted = dict(state)
    for name, tensor in state.items():
        for ending, axes in alone.items():
            if name.endswith(ending):
                for axis in axes:
                    if tensor.dim() < 2 or len(tensor) != 1:
                        raise CheckpointError(
                            f"{name} has the odd shape {tuple(tensor.shape)}", "unsupported_config"
                        )
                    tensor = tensor.squeeze(axis)
                converted[name] = tensor
    return converted


def _with_batch(state: Weights, alone: Mapping[str, str]) -> Weights:
    """Add the batch axis again: (d) becomes (1, 1, d) and (n, d) becomes (1, n, d)."""
    named = set(alone.values())
    return {
        name: tensor[(None,) * (3 - tensor.dim())] if name in named else tensor
        for name, tensor in state.items()
    }
