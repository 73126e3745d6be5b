"""timm's Vision Transformers: their config.json says little, so the sizes come from the weights.

    {"architecture": "vit_base_patch16_224", "num_classes": 1000, "global_pool": "token",
     "model_args": {…}, "pretrained_cfg": {"input_size": [3, 224, 224], …}}

Only the number of heads and the activation stand nowhere in the shapes; they follow from the name
or `model_args`. What we write has the name of ViT-B/16, and `model_args` say everything.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from polyhead.convert import hf_vit
from polyhead.convert.hf_vit import require_plain
from polyhead.convert.pixels import MEAN, STD
from polyhead.convert.weight_names import (
    THEIR_ACTIVATIONS,
    Weights,
    activation,
    flag,
    real,
    require,
    shown,
    whole,
)
from polyhead.errors import CheckpointError
from polyhead.layers.feed_forward import Activation
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.vit import ViTConfig

TIMM = "timm"
PLAIN = {  # width and heads of timm's ViTs that are as in the paper
    "tiny": (192, 3), "small": (384, 6), "base": (768, 12), "large": (1024, 16),
    "huge": (1280, 16), "giant": (1408, 16), "gigantic": (1664, 16),
}  # fmt: skip
WRITTEN_AS, NAMELESS = "vit_base_patch16_224", "vit"
NORM_EPS = 1e-6
OTHERS = {  # variants in their names, and why they are not read
    "quickgelu": "its activation is an approximation of GELU that we lack",
    "siglip": "it pools by attention", "relpos": "its positions are relative",
    "_rope": "its positions are rotary in two directions",
    "deit3": "it scales every sub-layer (LayerScale) and has no position for its class token",
    "distilled": "a DeiT with a second extra token is read in the format of transformers only",
}  # fmt: skip
RATES = ("drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate",
         "drop_path_rate")  # fmt: skip
ARGUMENTS = ("num_heads", "img_size", "patch_size", "embed_dim", "depth", "mlp_ratio", "in_chans",
             "num_classes", "class_token", "global_pool", "dynamic_img_size", "fc_norm",
             "act_layer", "qkv_bias", *RATES)  # fmt: skip
ONLY: dict[str, dict[str, Any]] = {
    "class": {"global_pool": "token", "class_token": True, "fc_norm": False},
    "mean": {"global_pool": "avg", "class_token": False, "fc_norm": False},
}
POOLING = "our ViT reads its class token, or takes the mean of its patches without another norm"
ACTIVATIONS: dict[str, Activation] = {name: name for name in THEIR_ACTIVATIONS}

Shapes = Mapping[str, tuple[int, ...]]


def is_timm(values: Mapping[str, Any]) -> bool:
    """Return True for the config.json of a timm model."""
    return "architecture" in values and "model_type" not in values


def config_from_timm(values: Mapping[str, Any], shapes: Shapes) -> ViTConfig:
    """Our configuration of one of timm's vit_* models; `shapes` are those of its weights."""
    name = architecture(values)
    mark = "distilled" if "dist_token" in shapes else next((m for m in OTHERS if m in name), None)
    if mark is not None or not (name == NAMELESS or name.startswith(("vit_", "deit_"))):
        why = OTHERS[mark] if mark else "of timm, plain vit_… and deit_… are read"
        raise CheckpointError(
            f"config.json: architecture = {shown(name)} is not supported: {why}",
            "unsupported_architecture",
        )
    arguments = _arguments(values)
    given = {**values, **arguments}
    is_mean = given.get("global_pool") == "avg" and "cls_token" not in shapes
    pooling: Literal["class", "mean"] = "mean" if is_mean else "class"
    require(given, {option: (value, POOLING) for option, value in ONLY[pooling].items()})
    d_model, channels, patch, other = _shape(shapes, "patch_embed.proj.weight", 4)
    if patch != other:
        raise CheckpointError(
            f"patches of {patch} x {other}: only squares are supported",
            "unsupported_config_value",
        )
    n_patches = _shape(shapes, "pos_embed", 3)[1] - int(pooling == "class")
    height, width = _image(values, arguments, n_patches, patch)
    return ViTConfig(
        classes=_shape(shapes, "head.weight", 2)[0],
        height=height,
        width=width,
        channels=channels,
        patch=patch,
        pooling=pooling,
        stack=StackConfig(
            n_layers=sum(name.endswith(".attn.qkv.weight") for name in shapes),
            d_model=d_model,
            n_heads=_heads(name, arguments, d_model, pooling),
            d_ff=_shape(shapes, "blocks.0.mlp.fc1.weight", 2)[0],
            dropout=0.0,
            norm="pre",
            norm_eps=NORM_EPS,
            activation=activation({"act_layer": "gelu"} | arguments, "act_layer", ACTIVATIONS),
        ),
    )


def architecture(values: Mapping[str, Any]) -> str:
    """Return the name of a model in timm, from its config.json."""
    return str(values.get("architecture", NAMELESS))


def options(values: Mapping[str, Any], config: ViTConfig) -> dict[str, Any]:
    """Return the arguments of `timm.create_model`, from our configuration.

    Arguments that config.json leaves out follow from the name of the model there.
    """
    ours, given = config_to_timm(config)["model_args"], _arguments(values)
    arguments = {name: ours[name] for name in ours if name in _sizes(config) or name in given}
    return arguments | ({} if _has_biases(values) else {"qkv_bias": False})


def lost_rates(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notes about dropout rates in `model_args`: timm's ViTs have none by default."""
    given = _arguments(values)
    rates = {name: real(given, name) for name in RATES if name in given}
    return tuple(
        f"model_args.{name} = {rate:g} is not kept" for name, rate in rates.items() if rate
    )


def with_biases(state: Mapping[str, Tensor], values: Mapping[str, Any]) -> Weights:
    """Add biases of 0 for queries, keys and values to a ViT that was built without them."""
    return hf_vit.with_biases(state, {"qkv_bias": _has_biases(values)})


def _has_biases(values: Mapping[str, Any]) -> bool:
    return flag({"qkv_bias": True, **_arguments(values)}, "qkv_bias")


def config_to_timm(config: ViTConfig) -> dict[str, Any]:
    """Return the contents of a config.json for timm."""
    plain = {
        "norm_eps": (config.stack.norm_eps, NORM_EPS),
        "class_tokens": (config.class_tokens, 1),
    }
    require_plain(config, plain)
    arguments = _sizes(config) | {"num_heads": config.stack.n_heads}
    if config.pooling == "mean":
        arguments |= ONLY["mean"]
    if config.stack.activation != "gelu":
        arguments["act_layer"] = config.stack.activation
    return {
        "architecture": WRITTEN_AS,
        "num_classes": config.classes,
        "num_features": config.stack.d_model,
        "global_pool": ONLY[config.pooling]["global_pool"],
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [config.channels, config.height, config.width],
            "fixed_input_size": True,
            "interpolation": "bicubic",
            "crop_pct": 1.0,
            "num_classes": config.classes,
            "classifier": "head",
            "mean": [MEAN] * config.channels,
            "std": [STD] * config.channels,
        },
    }


def _sizes(config: ViTConfig) -> dict[str, Any]:
    stack, ratio = config.stack, config.stack.d_ff / config.stack.d_model
    if int(stack.d_model * ratio) != stack.d_ff:  # timm computes d_ff like this
        ratio = math.nextafter(ratio, math.inf)
    return {
        "img_size": [config.height, config.width],
        "patch_size": config.patch,
        "in_chans": config.channels,
        "num_classes": config.classes,
        "embed_dim": stack.d_model,
        "depth": stack.n_layers,
        "mlp_ratio": ratio,
    }


def _arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a model beside its name; unsupported ones are refused."""
    arguments = values.get("model_args") or {}
    if not isinstance(arguments, dict):
        raise CheckpointError("config.json: model_args is no table", "invalid_config_value")
    for name in arguments:
        if name not in ARGUMENTS:
            raise CheckpointError(
                f"config.json: model_args.{shown(name)} is not supported; our ViT has only "
                f"{', '.join(ARGUMENTS)}",
                "unsupported_config_value",
            )
    return arguments


def _shape(shapes: Shapes, name: str, n_axes: int) -> tuple[int, ...]:
    if name not in shapes:
        raise CheckpointError(
            f"{name} is missing: this is no ViT with a classifier, as timm has it", "missing_weight"
        )
    if len(shapes[name]) != n_axes:
        raise CheckpointError(f"{name} has the odd shape {shapes[name]}", "wrong_shape")
    return shapes[name]


def _heads(name: str, arguments: Mapping[str, Any], d_model: int, pooling: str) -> int:
    """Return the number of heads: as given, or that of timm's plain ViT of this name and width.

    vit_base_patch16_gap_224 has other heads than its namesake: with mean pooling it must be given.
    """
    if "num_heads" in arguments:
        return whole(arguments, "num_heads")
    for size, (width, heads) in PLAIN.items():
        named = name == NAMELESS or name.split("_")[1] == size
        if pooling == "class" and named and width == d_model:
            return heads
    raise CheckpointError(
        f"nothing says how many heads the {d_model} features of {name[:80]!r} have; add "
        '{"model_args": {"num_heads": …}} to config.json',
        "unknown_heads",
    )


def _image(
    values: Mapping[str, Any], arguments: Mapping[str, Any], n_patches: int, patch: int
) -> tuple[int, int]:
    """Height and width in pixels: as given if the positions agree, else a square of that many."""
    cfg = values.get("pretrained_cfg")
    given = cfg.get("input_size") if isinstance(cfg, dict) else None
    sizes = [given[1:]] if isinstance(given, list) and len(given) == 3 else []
    requested = arguments.get("img_size")
    sizes += [requested if isinstance(requested, list) else [requested, requested]]
    side = round(n_patches**0.5)
    sizes.append([side * patch, side * patch])
    for size in sizes:
        if len(size) == 2 and all(type(number) is int for number in size):
            height, width = size
            if (height // patch) * (width // patch) == n_patches:
                return height, width
    raise CheckpointError(
        f"pos_embed has {n_patches} patches, which are no square; add "
        '{"pretrained_cfg": {"input_size": [channels, height, width]}} to config.json',
        "unknown_image_size",
    )
