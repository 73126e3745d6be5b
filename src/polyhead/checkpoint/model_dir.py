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
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.checkpoint.atomic_dir import CHECKPOINTS, MANIFEST, newest_checkpoint, verify
from polyhead.checkpoint.tensors import count_tensors, load_floats, save_tensors
from polyhead.config import from_dict, plain
from polyhead.errors import CheckpointError, ConfigError
from polyhead.models.registry import FAMILIES, command_of, has_mask_token
from polyhead.tokenizers.storage import TokenizerPair, load_tokenizers, save_tokenizers

FORMAT = 1
CONFIG, WEIGHTS, CARD, TOKENIZER = "config.json", "model.safetensors", "README.md", "tokenizer"
MAX_CONFIG_BYTES = 2**20
MAX_LAYERS = 1000
LAYERS = re.compile(r'"(\w*layers\w*)": (\d+)')  # numbers of layers in config.json
SHOWN = 200  # characters of a name in a message
SMALL_BUFFERS = 2**20  # values that a model may hold beside its weights


@dataclass(frozen=True)
class SavedModel:
    """A model with everything needed to use it. `about` says how it was made."""

    family: str
    config: Any
    model: nn.Module
    tokenizers: TokenizerPair | None
    about: dict[str, Any] = field(default_factory=dict)


def write_model(directory: Path, saved: SavedModel, card: str | None = None) -> None:
    """Write a model into a directory opened by `atomic_dir`; `card` is the text of README.md."""
    config = {
        "format": FORMAT,
        "family": saved.family,
        "model": plain(saved.config),
        "about": saved.about,
    }
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (directory / CONFIG).write_text(text + "\n", encoding="utf-8")
    save_tensors(weights_of(saved.model), directory / WEIGHTS)
    if saved.tokenizers is not None:
        save_tokenizers(saved.tokenizers, directory / TOKENIZER)
    text = model_card(saved) if card is None else card
    (directory / CARD).write_text(text, encoding="utf-8")


def model_card(saved: SavedModel) -> str:
    """Return the model card, README.md, of a trained model."""
    run = saved.about.get("run") or {}
    data: dict[str, Any] = run.get("data", {})
    languages = " to ".join(
        str(name) for name in (data.get("source_language"), data.get("target_language")) if name
    )
    size = sum(p.numel() for p in saved.model.parameters())
    valid = saved.about.get("valid") or {}
    numbers = {
        name: f"{value:.4f}" if isinstance(value, int | float) else "not finite"
        for name, value in valid.items()
    }
    measured = "\n".join(f"| {name} | {number} |" for name, number in numbers.items())
    paths = [data.get(kind) for kind in ("source", "target", "pairs", "text", "labelled", "images")]
    files = ", ".join(str(path) for group in paths if isinstance(group, list) for path in group)
    return f"""# A {saved.family} model{f": {languages}" if languages else ""}

{run.get("description", "")}

{size:,} parameters, step {saved.about.get("step", 0):,}. Trained with Polyhead.

| on the validation set | |
|---|---|
{measured or "| not validated yet | |"}

Trained on: {files or "not recorded"}. The licence of this data may restrict the use of the model.

    {command_of(saved.family)} DIRECTORY

`config.json` has the architecture, `model.safetensors` the weights, `tokenizer/` the tokenizers;
none of them can contain code. `training.*`, if present, is needed only to resume training.
"""


def load_model(path: Path, device: str = "cpu") -> SavedModel:
    """Load the model of a directory or of a run, in evaluation mode, after checking every file."""
    directory = resolve(path)
    sums = verify(directory)
    for name in (CONFIG, WEIGHTS):
        if name not in sums:
            raise CheckpointError(
                f"{directory} is not a model: its {MANIFEST} has no {name}", "not_a_model"
            )
    values = read_config(directory)
    config, shapes = _check_sizes(values, directory)
    weights = load_floats(directory / WEIGHTS, shapes)
    model = FAMILIES[values["family"]].model(config)
    set_weights(model, weights)
    broken = first_not_finite(model)
    if broken is not None:
        raise CheckpointError(
            f"{directory / WEIGHTS}: {broken} contains values that are not finite", "not_finite"
        )
    tokenizers = _load_tokenizers(directory, sums, values)
    return SavedModel(
        values["family"], config, model.to(device).eval(), tokenizers, values["about"]
    )


def load_weights(directory: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint into a model of the same sizes."""
    shapes = {name: tuple(weight.shape) for name, weight in weights_of(model).items()}
    set_weights(model, load_floats(directory / WEIGHTS, shapes))


def resolve(path: Path) -> Path:
    """Return the model directory of a path: itself, or the best or last checkpoint of a run."""
    if not os.path.exists(path):  # False also for names that are too long
        name = str(path)
        is_text = " " in name  # `polyhead translate MODEL "a sentence"`
        hint = "text is read from standard input" if is_text else "train one with `polyhead train`"
        shown = name if len(name) <= SHOWN else name[:SHOWN] + "…"
        raise CheckpointError(f"there is no model {shown}; {hint}", "no_model")
    for directory in (path, path / "best", path / "last"):
        if (directory / CONFIG).is_file():
            return directory.resolve()
    newest, problems = newest_checkpoint(path / CHECKPOINTS)
    if newest is not None:
        return newest
    if path.is_file():
        raise CheckpointError(
            f"{path} is a file; a model is a directory with {CONFIG} and {WEIGHTS}. Pickled files "
            "(.pt, .bin) are never read.",
            "not_a_model",
        )
    reason = f": {problems[0]}" if problems else f": it has no {CONFIG}"
    if not problems and (runs := sorted((path / "runs").glob(f"*/best/{CONFIG}"))):
        reason = f" but a comparison of several, such as {runs[0].parent.parent}"
    raise CheckpointError(f"{path} is not a model{reason}", "not_a_model")


def read_config(directory: Path) -> dict[str, Any]:
    """Read config.json and check everything that does not depend on the family."""
    path = directory / CONFIG
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise CheckpointError(f"{path} is too large to be a configuration", "bad_config")
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{path} cannot be read as JSON", "bad_config") from None
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise CheckpointError(f"{path} does not describe a model", "bad_config")
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {str(values.get('format'))[:80]!r}; this version reads {FORMAT}",
            "unknown_format",
        )
    family = values.get("family")
    if not isinstance(family, str) or family not in FAMILIES:
        raise CheckpointError(
            f"{directory} has the unknown family {str(family)[:80]!r}; this version of polyhead "
            f"has {', '.join(FAMILIES)}",
            "unknown_family",
        )
    values["about"] = _check_about(values.get("about", {}), path)
    return values


def _check_about(about: Any, path: Path) -> dict[str, Any]:
    if not isinstance(about, dict):
        raise CheckpointError(f"{path}: about is not a table", "bad_config")
    run, valid, step = about.get("run") or {}, about.get("valid") or {}, about.get("step", 0)
    tables = [run, valid]
    if isinstance(run, dict):
        tables += [run.get(name, {}) for name in ("data", "text", "model", "train", "decode")]
    if not all(isinstance(table, dict) for table in tables) or not isinstance(step, int):
        raise CheckpointError(f"{path}: about has an unexpected form", "bad_config")
    return about


def _check_sizes(values: dict[str, Any], directory: Path) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Return the checked configuration and the shapes of its weights, without using memory."""
    family = FAMILIES[values["family"]]
    try:
        config = from_dict(family.config, values["model"], "model.")
        most = min(MAX_LAYERS, count_tensors(directory / WEIGHTS))
        for name, value in LAYERS.findall(json.dumps(values["model"])):
            if int(value) > most:
                raise ConfigError(f"{name} = {value}: {WEIGHTS} has fewer tensors", "sizes")
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about empty tensors, which are refused below
            model = family.model(config)
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


def _load_tokenizers(
    directory: Path, sums: dict[str, str], values: dict[str, Any]
) -> TokenizerPair | None:
    """Load the tokenizers, if there are any, from verified files of the model's vocabulary size."""
    path = directory / TOKENIZER
    if not path.is_dir():
        return None
    for file in path.iterdir():
        if f"{TOKENIZER}/{file.name}" not in sums:
            raise CheckpointError(
                f"{file} does not belong to this model. Remove it.", "unknown_file"
            )
    tokenizers = load_tokenizers(path)
    for side, tokenizer in (("source", tokenizers.source), ("target", tokenizers.target)):
        expected = values["model"].get(f"{side}_vocab", len(tokenizer))
        if expected != len(tokenizer):
            raise CheckpointError(
                f"{path}: the {side} tokenizer has {len(tokenizer)} ids, but {CONFIG} says "
                f"{expected}",
                "vocabulary_size",
            )
    model = values["model"].get("encoder", values["model"])
    if isinstance(model, Mapping) and "vocab" in model:
        n_ids = len(tokenizers.source)
        expected = n_ids + has_mask_token(values["family"])
        # an imported model may lack [MASK], or have ids that its tokenizer never produces
        imported = "imported" in values["about"] and model["vocab"] >= n_ids
        if model["vocab"] != expected and not imported:
            raise CheckpointError(
                f"{path}: expected a vocabulary of {expected} ids, but {CONFIG} says "
                f"{model['vocab']}",
                "vocabulary_size",
            )
    return tokenizers


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters by name, shared ones once."""
    return {name: p.detach() for name, p in model.named_parameters()}


def set_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy tensors into the parameters of equal name and shape."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def first_not_finite(model: nn.Module) -> str | None:
    """Return the name of the first weight with values that are not finite, if any."""
    for name, weight in weights_of(model).items():
        if not math.isfinite(weight.sum(dtype=torch.float64).item()):
            return name
    return None
