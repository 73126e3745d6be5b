"""The Vision Transformer in Hugging Face's names, and in timm's, and back.

Hugging Face has two sets of names: that of all files, and a newer one inside the library. We read
both and write that of the files. timm keeps W_q, W_k and W_v in one matrix, below each other.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from polyhead.convert.pixels import MEAN, STD, TO_ONE
from polyhead.convert.weight_names import (
    TABLES,
    Weights,
    WeightTable,
    known_values,
    n_classes,
    read_fields,
    require_exportable,
    whole,
    write_fields,
)
from polyhead.errors import CheckpointError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.vit import ViTConfig

NAMES, STACK = TABLES["vit"], TABLES["bert"]["stack"]
HF = WeightTable(NAMES["weights"], aliases=NAMES["aliases"], ignored=("vit.pooler.dense.",))
TIMM = WeightTable(TABLES["timm"]["weights"], fused=".qkv")
BATCH_AXES = {"class_token": 2, "positions.table.weight": 1}  # axes of size 1 that theirs have
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
    values = known_values(values, "vit")
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
    require_plain(config, {"pooling": (config.pooling, "class")})
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


def require_plain(config: ViTConfig, others: Mapping[str, tuple[object, object]]) -> None:
    """Refuse what neither of the two libraries has in a ViT, and `others`: our value and theirs."""
    plain = {"positions": (config.positions, "learned"), "stem": (config.stem, ())}
    require_exportable(config.stack, "pre", {**plain, **others})


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
