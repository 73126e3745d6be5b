"""Model directories: configuration, weights, tokenizers and model card of one model.

    config.json          family and sizes of the model, and how it was made
    model.safetensors    weights
    tokenizer/           tokenizers
    README.md            model card
    manifest.json        sha256 of all files

Loading trusts nothing and runs no code: sizes are compared before memory is allocated, and every
problem is a CheckpointError of one line.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.checkpoint.atomic_dir import MANIFEST, verify
from polyhead.checkpoint.model_files import (
    CARD,
    CONFIG,
    FORMAT,
    TOKENIZER,
    WEIGHTS,
    load_model_tokenizers,
    read_config,
    resolve,
)
from polyhead.checkpoint.tensors import Share, count_tensors, load_floats, save_tensors, whole
from polyhead.config import from_dict, plain
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.registry import FAMILIES, has_mask_token, outline, plugin_parts
from polyhead.plugin_registry import REGISTRIES
from polyhead.tokenizers.storage import TokenizerPair, save_tokenizers

QUICK = 1000  # tensors that are outlined in a tenth of a second
SMALL_BUFFERS = 2**20  # values that a model may hold beside its weights


@dataclass(frozen=True)
class SavedModel:
    """A model with everything needed to use it. `about` says how it was made."""

    family: str
    config: Any
    model: nn.Module
    tokenizers: TokenizerPair | None
    about: dict[str, Any] = field(default_factory=dict)


def write_model(
    directory: Path, saved: SavedModel, card: str = "", weights: dict[str, Tensor] | None = None
) -> None:
    """Write a model into a directory opened by `atomic_dir`.

    card: the text of README.md.
    weights: all of them, if the model itself holds a share only.
    """
    config = {
        "format": FORMAT,
        "family": saved.family,
        "model": plain(saved.config),
        "about": saved.about,
    }
    if parts := plugin_parts(saved.family, saved.config):
        config["plugins"] = parts
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (directory / CONFIG).write_text(text + "\n", encoding="utf-8")
    save_tensors(weights or weights_of(saved.model), directory / WEIGHTS)
    if saved.tokenizers is not None:
        save_tokenizers(saved.tokenizers, directory / TOKENIZER)
    (directory / CARD).write_text(card, encoding="utf-8")


def load_model(path: Path, device: str = "cpu") -> SavedModel:
    """Load the model of a directory or of a run, in evaluation mode, after checking every file."""
    directory = resolve(path)
    sums = verify(directory)
    for name in (CONFIG, WEIGHTS):
        if name not in sums:
            raise CheckpointError(
                f"{directory} is not a model: its {MANIFEST} has no {name}", "not_a_model"
            )
    values = read_family_config(directory)
    config, shapes = _check_sizes(values, directory)
    weights = load_floats(directory / WEIGHTS, shapes)
    model = FAMILIES[values["family"]].model(config)
    set_weights(model, weights)
    broken = first_not_finite(model)
    if broken is not None:
        raise CheckpointError(
            f"{directory / WEIGHTS}: {broken} contains values that are not finite", "not_finite"
        )
    tokenizers = load_model_tokenizers(
        directory, sums, values, has_mask=has_mask_token(values["family"])
    )
    return SavedModel(
        values["family"], config, model.to(device).eval(), tokenizers, values["about"]
    )


def load_weights(directory: Path, model: nn.Module, share: Share = whole) -> None:
    """Load the weights of a checkpoint into a model of the same sizes, or this process's share."""
    shapes = {name: tuple(weight.shape) for name, weight in weights_of(model).items()}
    set_weights(model, load_floats(directory / WEIGHTS, shapes), share)


def read_family_config(directory: Path) -> dict[str, Any]:
    """Read config.json and check that its family is known, and all parts of plug-ins."""
    values = read_config(directory)
    _check_plugins(values.get("plugins", []), directory)
    family = values.get("family")
    if not isinstance(family, str) or family not in FAMILIES:
        raise CheckpointError(
            f"{directory} has the unknown family {str(family)[:80]!r}; this version of polyhead "
            f"has {', '.join(FAMILIES)}",
            "unknown_family",
        )
    return values


def _check_plugins(parts: Any, directory: Path) -> None:
    """Raise CheckpointError if a part that a plug-in registered is unknown; imports nothing."""
    for part in parts if isinstance(parts, list) else [parts]:
        if not isinstance(part, dict):
            raise CheckpointError(f"{directory / CONFIG}: plugins is not a list", "bad_config")
        kind, name, plugin = (str(part.get(key))[:80] for key in ("kind", "name", "plugin"))
        if kind not in REGISTRIES or name not in REGISTRIES[kind]:
            raise CheckpointError(
                f"{directory} needs the {kind} {name!r} of the plug-in {plugin!r}. Load it with "
                "--plugin FILE.",
                "missing_plugin",
            )


def _check_sizes(values: dict[str, Any], directory: Path) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Return the checked configuration and the shapes of its weights, without using memory."""
    family = FAMILIES[values["family"]]
    try:
        config = from_dict(family.config, values["model"], "model.")
        n_tensors = count_tensors(directory / WEIGHTS)
        most = max(QUICK, 2 * n_tensors)  # a shared one counts twice
        model = outline(values["family"], config, most)
    except CheckpointError:
        raise
    except (ConfigError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{directory / CONFIG}: {line}", "bad_config") from None
    sizes = [weight.numel() for weight in weights_of(model).values()]
    buffers = sum(buffer.numel() for buffer in model.buffers())
    if min(sizes) == 0 or buffers > sum(sizes) + SMALL_BUFFERS:
        raise CheckpointError(f"{directory / CONFIG}: impossible sizes", "bad_config")
    return config, {name: tuple(weight.shape) for name, weight in weights_of(model).items()}


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters by name, shared ones once."""
    return {name: p.detach() for name, p in model.named_parameters()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], share: Share = whole) -> None:
    """Copy tensors into the parameters of equal name and shape."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(share(weights[name], parameter))


def first_not_finite(model: nn.Module) -> str | None:
    """Return the name of the first weight with values that are not finite, if any."""
    for name, weight in weights_of(model).items():
        if not math.isfinite(weight.sum(dtype=torch.float64).item()):
            return name
    return None
