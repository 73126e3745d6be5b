"""A model is a folder that explains itself, and nothing in it can run.

    config.json          family and size of the model, and what it was made from
    model.safetensors    its weights
    tokenizer/           how text becomes ids
    README.md            a model card
    manifest.json        sha256 of all of them

Reading trusts nothing: sizes are compared before memory is taken, and whatever is wrong is a
CheckpointError of one line.
"""

import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import tensors
from polyhead.config import from_dict, plain
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.registry import FAMILIES
from polyhead.tokenizers import storage as tokenizer
from polyhead.tokenizers.storage import Tokenizers

FORMAT = 1
CONFIG, WEIGHTS, CARD, TOKENIZER = "config.json", "model.safetensors", "README.md", "tokenizer"
MAX_CONFIG_BYTES = 2**20
MAX_LAYERS = 1000
SHOWN = 200  # characters of a name
MORE_IDS = {  # than the tokenizer: [MASK]
    "gpt": 0, "reformer": 0, "bert": 1, "electra": 1, "classifier": 1
}  # fmt: skip
SMALL_BUFFERS = 2**20  # numbers that a model may hold beside its weights without being suspicious


@dataclass(frozen=True)
class SavedModel:
    """A model with all that is needed to use it. `about` is free text about its making."""

    family: str
    config: Any
    model: nn.Module
    tokenizers: Tokenizers | None
    about: dict[str, Any] = field(default_factory=dict)


def write_model(folder: Path, saved: SavedModel, card: str) -> None:
    """Write a model's files into a folder that `store.writing` has opened."""
    config = {
        "format": FORMAT,
        "family": saved.family,
        "model": plain(saved.config),
        "about": saved.about,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
    tensors.save_tensors(weights_of(saved.model), folder / WEIGHTS)
    if saved.tokenizers is not None:
        tokenizer.save(saved.tokenizers, folder / TOKENIZER)
    (folder / CARD).write_text(card, encoding="utf-8")


def load_model(folder: Path, device: str = "cpu") -> SavedModel:
    """Rebuild a model from its folder, ready to use, after checking every file."""
    folder = resolve(folder)
    sums = store.verify(folder)
    for name in (CONFIG, WEIGHTS):
        if name not in sums:
            raise CheckpointError(f"{folder} is not a model: its {store.MANIFEST} has no {name}")
    described = read_config(folder)
    config, shapes = _measure(described, folder)
    found = tensors.load_floats(folder / WEIGHTS, shapes)
    model = FAMILIES[described["family"]].model(config)
    set_weights(model, found)
    _check_finite(model, folder / WEIGHTS)
    tokenizers = _tokenizers(folder, sums, described)
    about = described["about"]
    return SavedModel(described["family"], config, model.to(device).eval(), tokenizers, about)


def resolve(path: Path) -> Path:
    """The model that a path means: itself, or the best or last checkpoint of a run."""
    if not os.path.exists(path):  # which also says so of what can be no path, such as a long text
        name = str(path)
        text = " " in name  # `polyhead translate MODEL "some text"`
        hint = "text is read from standard input" if text else "train one with `polyhead train`"
        raise CheckpointError(
            f"there is no model {name if len(name) <= SHOWN else name[:SHOWN] + '…'}; {hint}"
        )
    for folder in (path, path / "best", path / "last"):
        if (folder / CONFIG).is_file():
            return folder.resolve()
    newest, complaints = store.newest_checkpoint(path / "checkpoints")
    if newest is not None:
        return newest
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file; a model is a folder with {CONFIG} and {WEIGHTS} (pickled files "
            "such as .pt or .bin are never read)"
        )
    why = f": {complaints[0]}" if complaints else f": it has no {CONFIG}"
    if not complaints and (runs := sorted((path / "runs").glob(f"*/best/{CONFIG}"))):
        why = f", but a comparison of several, such as {runs[0].parent.parent}"
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
            f"{path} has format {str(described.get('format'))[:80]!r}; this version reads {FORMAT}"
        )
    family = described.get("family")
    if not isinstance(family, str) or family not in FAMILIES:
        raise CheckpointError(
            f"{folder} holds a model of family {str(family)[:80]!r}; this version of polyhead "
            f"knows {', '.join(FAMILIES)}"
        )
    described["about"] = _about(described.get("about", {}), path)
    return described


def _about(about: Any, path: Path) -> dict[str, Any]:
    """What is told about the making of a model, as far as others rely on its form."""
    if not isinstance(about, dict):
        raise CheckpointError(f"{path}: about is not a table")
    run, valid, step = about.get("run") or {}, about.get("valid") or {}, about.get("step", 0)
    tables = [run, valid]
    if isinstance(run, dict):
        tables += [run.get(name, {}) for name in ("data", "text", "model", "train", "decode")]
    if not all(isinstance(table, dict) for table in tables) or not isinstance(step, int):
        raise CheckpointError(f"{path}: about does not tell how a model was made")
    return about


def _measure(described: dict[str, Any], folder: Path) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """The checked configuration and the shapes of its weights, found without any memory."""
    family = FAMILIES[described["family"]]
    model_class, config_class = family.model, family.config
    try:
        config = from_dict(config_class, described["model"], "model.")
        most = min(MAX_LAYERS, tensors.count_tensors(folder / WEIGHTS))
        for name, value in _numbers(plain(config)):
            if "layers" in name and value > most:
                raise ConfigError(f"model.{name} = {value}: {WEIGHTS} has no room for so many")
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about tensors of no numbers, which are refused below
            model = model_class(config)
    except CheckpointError:
        raise
    except (ConfigError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{folder / CONFIG}: {line}") from None
    sizes = [weight.numel() for weight in weights_of(model).values()]
    buffers = sum(buffer.numel() for buffer in model.buffers())
    if min(sizes) == 0 or buffers > sum(sizes) + SMALL_BUFFERS:
        raise CheckpointError(f"{folder / CONFIG}: no model has such sizes")
    return config, {name: tuple(weight.shape) for name, weight in weights_of(model).items()}


def _numbers(config: Mapping[str, Any], where: str = "") -> list[tuple[str, int]]:
    """All whole numbers in a configuration, with their names."""
    found = []
    for name, value in config.items():
        if isinstance(value, Mapping):
            found += _numbers(value, f"{where}{name}.")
        elif isinstance(value, int):
            found.append((f"{where}{name}", value))
    return found


def _tokenizers(folder: Path, sums: dict[str, str], described: dict[str, Any]) -> Tokenizers | None:
    """The tokenizers, if there are any: from files that were checked, and as large as the model."""
    place = folder / TOKENIZER
    if not place.is_dir():
        return None
    for path in place.iterdir():
        if f"{TOKENIZER}/{path.name}" not in sums:
            raise CheckpointError(f"{path} does not belong to this model; remove it")
    tokenizers = tokenizer.load(place)
    for side, found in (("source", tokenizers.source), ("target", tokenizers.target)):
        expected = described["model"].get(f"{side}_vocab", len(found))
        if expected != len(found):
            raise CheckpointError(
                f"{place}: {len(found)} ids on the {side} side, but config.json says {expected}"
            )
    _check_vocabulary(described, len(tokenizers.source), place)
    return tokenizers


def _check_vocabulary(described: dict[str, Any], n_ids: int, place: Path) -> None:
    """A model of one language has as many ids as its tokenizer, and one for [MASK] if it fills.

    A model that was made elsewhere may come without a [MASK], or with ids that no text becomes.
    """
    family, model = described["family"], described["model"]
    if family not in MORE_IDS:
        return
    inner = model.get("encoder", {}) if family == "classifier" else model
    expected = inner.get("vocab", n_ids + MORE_IDS[family])
    fits = expected == n_ids + MORE_IDS[family]
    if not fits and not ("imported" in described["about"] and expected >= n_ids):
        more = " and one for [MASK]" if MORE_IDS[family] else ""
        raise CheckpointError(f"{place}: {n_ids} ids{more}, but config.json says {expected}")


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every learned tensor once, by its first name: shared ones are not repeated."""
    return {name: p.detach() for name, p in model.named_parameters()}


def set_weights(model: nn.Module, found: Mapping[str, Tensor]) -> None:
    """Copy tensors into a model of the same shape."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(found[name])


def first_not_finite(model: nn.Module) -> str | None:
    """The name of a weight that holds something else than numbers, if there is one."""
    for name, weight in weights_of(model).items():
        if not math.isfinite(weight.sum(dtype=torch.float64).item()):
            return name
    return None


def _check_finite(model: nn.Module, path: Path) -> None:
    name = first_not_finite(model)
    if name is not None:
        raise CheckpointError(f"{path}: {name} holds numbers that are not finite")
