"""timm's Vision Transformers: their config.json says little, so the sizes come from the weights.

    {"architecture": "vit_base_patch16_224", "num_classes": 1000, "global_pool": "token",
     "model_args": {…}, "pretrained_cfg": {"input_size": [3, 224, 224], …}}

Only the number of heads stands nowhere in the shapes; it follows from the name or `model_args`, and
failing these from timm's habit of 64 features to a head.
"""

from collections.abc import Mapping
from typing import Any

from polyhead.errors import CheckpointError
from polyhead.interchange.names import require, whole
from polyhead.layers.stack import StackConfig
from polyhead.models.vit import ViTConfig

HEADS = {"tiny": 3, "small": 6, "base": 12, "large": 16, "huge": 16}
D_HEAD = 64
OTHERS = ("quickgelu", "siglip", "relpos", "_rope", "xcit", "srelpos")  # variants in their names
ARGUMENTS = ("num_heads", "img_size", "patch_size", "embed_dim", "depth", "mlp_ratio", "in_chans",
             "num_classes", "class_token", "global_pool", "dynamic_img_size")  # fmt: skip
ONLY = {"global_pool": "token", "class_token": True}

Shapes = Mapping[str, tuple[int, ...]]


def is_timm(values: Mapping[str, Any]) -> bool:
    """Is this the config.json of a timm model?"""
    return "architecture" in values and "model_type" not in values


def config_from_timm(values: Mapping[str, Any], shapes: Shapes) -> ViTConfig:
    """Our configuration of one of timm's vit_* models; `shapes` are those of its weights."""
    name = str(values.get("architecture", "vit"))
    if not name.startswith(("vit_", "deit_")) and name != "vit":
        raise CheckpointError(
            f"config.json: architecture = {name!r} is not supported, only timm's vit_… are"
        )
    if any(mark in name for mark in OTHERS):
        raise CheckpointError(
            f"config.json: architecture = {name!r} computes something else than a plain ViT"
        )
    arguments = _arguments(values)
    require({**values, **arguments}, ONLY)
    d_model, channels, patch, other = _shape(shapes, "patch_embed.proj.weight", 4)
    if patch != other:
        raise CheckpointError(f"patches of {patch} x {other} are not supported")
    height, width = _image(values, arguments, _shape(shapes, "pos_embed", 3)[1] - 1, patch)
    return ViTConfig(
        classes=_shape(shapes, "head.weight", 2)[0],
        height=height,
        width=width,
        channels=channels,
        patch=patch,
        stack=StackConfig(
            n_layers=sum(name.endswith(".attn.qkv.weight") for name in shapes),
            d_model=d_model,
            n_heads=_heads(name, arguments, d_model),
            d_ff=_shape(shapes, "blocks.0.mlp.fc1.weight", 2)[0],
            dropout=0.0,
            norm="pre",
            norm_eps=1e-6,
            activation="gelu",
        ),
    )


def _arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a model was built with beside its name; what could change its arithmetic is refused."""
    arguments = values.get("model_args") or {}
    if not isinstance(arguments, dict):
        raise CheckpointError("config.json: model_args is no table")
    for name in arguments:
        if name not in ARGUMENTS:
            raise CheckpointError(f"config.json: model_args.{name} is not supported")
    return arguments


def _shape(shapes: Shapes, name: str, n_axes: int) -> tuple[int, ...]:
    if name not in shapes:
        raise CheckpointError(
            f"{name} is missing: this is no ViT with a classifier, as timm has it"
        )
    if len(shapes[name]) != n_axes:
        raise CheckpointError(f"{name} has the odd shape {shapes[name]}")
    return shapes[name]


def _heads(name: str, arguments: Mapping[str, Any], d_model: int) -> int:
    if "num_heads" in arguments:
        return whole(arguments, "num_heads")
    size = next((size for size in HEADS if f"_{size}_" in name), None)
    if size is not None:
        return HEADS[size]
    if d_model % D_HEAD:
        raise CheckpointError(
            f"nothing says how many heads {d_model} features have; add "
            '{"model_args": {"num_heads": …}} to config.json'
        )
    return d_model // D_HEAD


def _image(
    values: Mapping[str, Any], arguments: Mapping[str, Any], n_patches: int, patch: int
) -> tuple[int, int]:
    """Height and width in pixels: as given if the positions agree, else a square of that many."""
    cfg = values.get("pretrained_cfg")
    given = cfg.get("input_size") if isinstance(cfg, dict) else None
    sizes = [given[1:]] if isinstance(given, list) and len(given) == 3 else []
    asked = arguments.get("img_size")
    sizes += [asked if isinstance(asked, list) else [asked, asked]]
    side = round(n_patches**0.5)
    sizes.append([side * patch, side * patch])
    for size in sizes:
        if len(size) == 2 and all(type(number) is int for number in size):
            height, width = size
            if (height // patch) * (width // patch) == n_patches:
                return height, width
    raise CheckpointError(
        f"pos_embed has {n_patches} patches, which are no square; add "
        '{"pretrained_cfg": {"input_size": [channels, height, width]}} to config.json'
    )
