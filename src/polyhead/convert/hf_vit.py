"""The Vision Transformer in Hugging Face's names, and in timm's, and back.

Without a class token it is the encoder of I-JEPA there, whose classifier takes the mean of patches.
Hugging Face has two sets of names: that of all files, and a newer one inside the library. We read
both and write that of the files. timm keeps W_q, W_k and W_v in one matrix, below each other.

DeiT (Touvron et al. 2021) is a ViT with two class tokens:

    DeiTForImageClassification              W reads the first token only
    DeiTForImageClassificationWithTeacher   the mean of two output layers, one for each token

Ours has one output layer W that reads both tokens: [W₁ ; 0] or [W₁ ; W₂] / 2.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from polyhead.convert.pixels import MEAN, STD, TO_ONE
from polyhead.convert.weight_names import (
    TABLES,
    Weights,
    WeightTable,
    flag,
    known_values,
    n_classes,
    read_fields,
    require_exportable,
    whole,
    with_zero_biases,
    write_fields,
)
from polyhead.errors import CheckpointError
from polyhead.layers.embeddings import SinusoidalPositions
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.vit import ViTConfig

NAMES, STACK = TABLES["vit"], TABLES["bert"]["stack"]
HF = WeightTable(
    NAMES["weights"], aliases=NAMES["aliases"], prefix="vit.", ignored=("pooler.dense.",)
)


def renamed(prefix: str) -> WeightTable:
    """Return the table of a model that has the names of a ViT but for their start."""
    names, aliases = (
        {ours: theirs.replace("vit.", prefix, 1) for ours, theirs in table.items()}
        for table in (NAMES["weights"], NAMES["aliases"])
    )
    return WeightTable(names, aliases, prefix, HF.ignored)


IJEPA, DEIT = renamed("ijepa."), renamed("deit.")
DEIT_TOKENS = ("deit.embeddings.cls_token", "deit.embeddings.distillation_token")
HEAD, DEIT_HEADS = "classifier", ("cls_classifier", "distillation_classifier")
TIMM = WeightTable(TABLES["timm"]["weights"], fused=".qkv")
PROJECTIONS = tuple(
    f".{name}.weight" for name in ("query", "key", "value", "q_proj", "k_proj", "v_proj", "qkv")
)
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


def with_biases(state: Mapping[str, Tensor], values: Mapping[str, Any]) -> Weights:
    """Add biases of 0 for queries, keys and values to a ViT that was built without them."""
    has_biases = flag(known_values(values, "vit"), "qkv_bias")
    return dict(state) if has_biases else with_zero_biases(state, PROJECTIONS)


def to_theirs(weights: Mapping[str, Tensor], config: ViTConfig, table: WeightTable) -> Weights:
    """Return our weights as those of one of their ViTs; sinusoids become a table."""
    ours = dict(weights)
    if config.positions == "sinusoidal":
        ours["positions.table.weight"] = SinusoidalPositions(config.stack.d_model)(config.n_tokens)
    return table.to_theirs(
        ours | {n: ours[n][(None,) * axes] for n, axes in BATCH_AXES.items() if n in ours}
    )


def deit_from_hf(state: Mapping[str, Tensor], _: ViTConfig) -> Weights:
    """Return the weights of both kinds of DeiT as those of our `ViT`."""
    theirs = dict(state)
    heads = (HEAD,) if f"{HEAD}.weight" in theirs else DEIT_HEADS
    names = [*DEIT_TOKENS, *(f"{head}.{leaf}" for leaf in ("weight", "bias") for head in heads)]
    for name in names:
        if name not in theirs:
            raise CheckpointError(
                f"{name} is missing: the file does not hold a whole model", "missing_weight"
            )
    first, second, *output = (theirs.pop(name) for name in names)
    if len(output) == 2:
        weight, bias = torch.cat([output[0], torch.zeros_like(output[0])], dim=1), output[1]
    else:
        weight, bias = torch.cat(output[:2], dim=1) / 2, (output[2] + output[3]) / 2
    theirs[DEIT_TOKENS[0]] = torch.cat([first, second], dim=1)[None]
    return to_ours(theirs, DEIT) | {"to_logits.weight": weight, "to_logits.bias": bias}


def deit_to_hf(weights: Mapping[str, Tensor], config: ViTConfig) -> Weights:
    """Return the weights of our `ViT` as those of DeiTForImageClassificationWithTeacher."""
    ours = dict(weights)
    tokens, bias = ours.pop("class_token"), ours.pop("to_logits.bias")
    halves = (2 * ours.pop("to_logits.weight")).chunk(2, dim=1)
    theirs = to_theirs(ours, config, DEIT)
    for name, token in zip(DEIT_TOKENS, tokens, strict=True):
        theirs[name] = token[None, None].clone()
    for name, half in zip(DEIT_HEADS, halves, strict=True):
        theirs |= {f"{name}.weight": half.contiguous(), f"{name}.bias": bias.clone()}
    return theirs


def config_from_hf(
    values: Mapping[str, Any],
    *,
    has_labels: bool = True,
    pooling: Literal["class", "mean"] = "class",
    class_tokens: int = 1,
) -> ViTConfig:
    """Return our configuration from their config.json; without labels it gets two classes."""
    values = known_values(values, "vit")
    flag(values, "qkv_bias")
    height, width = _two(values, "image_size")
    patch, other = _two(values, "patch_size")
    if patch != other:
        raise CheckpointError(
            f"config.json: patches of {patch} x {other}: only squares are supported",
            "unsupported_config_value",
        )
    return ViTConfig(
        classes=n_classes(values) if has_labels else 2,
        height=height,
        width=width,
        channels=whole(values, "num_channels"),
        patch=patch,
        pooling=pooling,
        class_tokens=class_tokens,
        stack=StackConfig(norm="pre", **read_fields(values, STACK)),
    )


def config_to_hf(config: ViTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for their classifiers of images."""
    require_plain(config, {})
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
    positions = "learned" if config.positions == "sinusoidal" else config.positions
    plain = {"positions": (positions, "learned"), "stem": (config.stem, ())}
    require_exportable(config.stack, "pre", {**plain, **others})


def _two(values: Mapping[str, Any], name: str) -> tuple[int, int]:
    """Return height and width, given as two numbers or one."""
    value = values[name]
    sizes = list(value) if isinstance(value, list | tuple) else [value, value]
    if len(sizes) != 2:
        raise CheckpointError(
            f"config.json: {name} has {len(sizes)} numbers: expected a height and a width",
            "invalid_config_value",
        )
    return whole({name: sizes[0]}, name), whole({name: sizes[1]}, name)
