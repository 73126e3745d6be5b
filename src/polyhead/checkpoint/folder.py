"""A model is a folder that explains itself, and nothing in it can run.

    config.json          family and size of the model, and what it was made from
    model.safetensors    its weights
    tokenizer/           how text becomes ids
    README.md            a model card
    manifest.json        sha256 of all of them
"""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from polyhead.checkpoint import store
from polyhead.config import from_dict, plain
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models import FAMILIES
from polyhead.text import tokenizer
from polyhead.text.tokenizer import Tokenizers

FORMAT = 1
CONFIG, WEIGHTS, CARD, TOKENIZER = "config.json", "model.safetensors", "README.md", "tokenizer"
MAX_CONFIG_BYTES = 2**20


@dataclass(frozen=True)
class SavedModel:
    """A model with all that is needed to use it. `about` is free text about its making."""

    family: str
    config: Any
    model: nn.Module
    tokenizers: Tokenizers | None
    about: dict[str, Any] = field(default_factory=dict)


def fill(folder: Path, saved: SavedModel, card: str) -> None:
    """Write a model's files into a folder that `store.writing` has opened."""
    config = {
        "format": FORMAT,
        "family": saved.family,
        "model": plain(saved.config),
        "about": saved.about,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    save_tensors(weights(saved.model), folder / WEIGHTS)
    if saved.tokenizers is not None:
        (folder / TOKENIZER).mkdir()
        tokenizer.save(saved.tokenizers, folder / TOKENIZER)
    (folder / CARD).write_text(card, encoding="utf-8")


def load(folder: Path, device: str = "cpu") -> SavedModel:
    """Rebuild a model from its folder, ready to use, after checking every file."""
    folder = resolve(folder)
    store.verify(folder)
    described = read_config(folder)
    model_class, config_class = FAMILIES[described["family"]]
    try:
        config = from_dict(config_class, described["model"], "model.")
        with torch.device("meta"):
            model = model_class(config)
    except (ConfigError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from None
    tensors = load_tensors(folder / WEIGHTS)
    _check(tensors, weights(model), folder / WEIGHTS)
    model = model_class(config)
    set_weights(model, tensors)
    tokenizers = None
    if (folder / TOKENIZER).is_dir():
        tokenizers = tokenizer.load(folder / TOKENIZER)
    about = described.get("about", {})
    return SavedModel(described["family"], config, model.to(device).eval(), tokenizers, about)


def resolve(path: Path) -> Path:
    """The model that a path means: itself, or the best or last checkpoint of a run."""
    for folder in (path, path / "best", path / "last"):
        if (folder / CONFIG).is_file():
            return folder.resolve()
    newest, complaints = store.newest(path / "checkpoints")
    if newest is not None:
        return newest
    if not path.exists():
        raise CheckpointError(f"there is no model {path}; train one with `polyhead train`")
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file; a model is a folder with {CONFIG} and {WEIGHTS} (pickled files "
            "such as .pt or .bin are never read)"
        )
    why = f": {complaints[0]}" if complaints else f": it has no {CONFIG}"
    raise CheckpointError(f"{path} is not a model{why}")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, checked as far as one can without knowing the family."""
    path = folder / CONFIG
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise CheckpointError(f"{path} is too large to be a configuration")
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{path} cannot be read as JSON") from None
    if not isinstance(described, dict) or not isinstance(described.get("model"), dict):
        raise CheckpointError(f"{path} does not describe a model")
    if described.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {described.get('format')!r}; this version reads {FORMAT}"
        )
    if described.get("family") not in FAMILIES:
        raise CheckpointError(
            f"{folder} holds a model of family {described.get('family')!r}; this version of "
            f"polyhead knows {', '.join(FAMILIES)}"
        )
    return described


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every learned tensor once, by its first name: shared ones are not repeated."""
    return {name: p.detach() for name, p in model.named_parameters()}


def set_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy tensors into a model of the same shape."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a safetensors file."""
    try:
        save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; what is not one is refused."""
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from None


def _check(found: dict[str, Tensor], expected: dict[str, Tensor], path: Path) -> None:
    """Names, shapes and numbers of the weights must be those of the model."""
    missing = sorted(expected.keys() - found.keys())
    extra = sorted(found.keys() - expected.keys())
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"has {extra[0]}, which this model has not"
        raise CheckpointError(f"{path} {what}")
    for name, tensor in found.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: {name} is {tuple(tensor.shape)}, but config.json says "
                f"{tuple(expected[name].shape)}"
            )
        if not math.isfinite(tensor.sum(dtype=torch.float64).item()):
            raise CheckpointError(f"{path}: {name} holds numbers that are not finite")
