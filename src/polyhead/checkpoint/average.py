"""Average of the weights of checkpoints: θ = 1/n Σ_i θ_i (Vaswani et al. 2017, section 6.1)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from polyhead.checkpoint.atomic_dir import CHECKPOINTS, atomic_dir, list_checkpoints, verify
from polyhead.checkpoint.model_card import model_card
from polyhead.checkpoint.model_dir import load_model, set_weights, weights_of, write_model
from polyhead.checkpoint.model_files import CONFIG, TOKENIZER, resolve
from polyhead.config import plain
from polyhead.errors import CheckpointError, ConfigError


def average(paths: Sequence[Path], output: Path, *, last: int | None = None) -> list[Path]:
    """Write the average of models, or of a run's `last` checkpoints; return their directories."""
    members = find_members(paths, last)
    if len(members) < 2:
        raise CheckpointError(
            f"averaging requires at least two models; found {len(members)}", "too_few_models"
        )
    if output.is_symlink() or (output.exists() and not (output / CONFIG).is_file()):
        raise CheckpointError(
            f"{output} exists and is not a model. Choose another --output.", "output_exists"
        )
    first = load_model(members[0])
    vocabulary = tokenizer_sums(members[0])
    mean = {name: weight.to(torch.float64) for name, weight in weights_of(first.model).items()}
    for path in members[1:]:
        other = load_model(path)
        different = "vocabularies" if tokenizer_sums(path) != vocabulary else ""
        if other.about.get("classes") != first.about.get("classes"):
            different = "names of classes"
        if (other.family, plain(other.config)) != (first.family, plain(first.config)):
            different = "architectures"
        if different:
            message = f"{path} and {members[0]} have different {different}"
            raise CheckpointError(message, "different_models")
        for name, weight in weights_of(other.model).items():
            mean[name] += weight
    set_weights(first.model, {name: weight / len(members) for name, weight in mean.items()})
    about = {**first.about, "averaged": [path.name for path in members], "valid": None}
    averaged = replace(first, about=about)
    with atomic_dir(output) as draft:
        write_model(draft, averaged, model_card(averaged))
    return members


def find_members(paths: Sequence[Path], last: int | None) -> list[Path]:
    """Return the named models, or the newest checkpoints if a single run is named."""
    if last is not None and last < 2:
        raise ConfigError(
            f"--last {last}: averaging requires at least two checkpoints", "out_of_range"
        )
    if len(paths) == 1 and (paths[0] / CHECKPOINTS).is_dir():
        checkpoints = [path for step, path in list_checkpoints(paths[0] / CHECKPOINTS) if step > 0]
        return checkpoints if last is None else checkpoints[-last:]
    if last is not None:
        raise ConfigError("--last requires the directory of one run", "not_a_run_dir")
    return [resolve(path) for path in paths]


def tokenizer_sums(path: Path) -> dict[str, str]:
    """Return the checksums of a model's tokenizer files."""
    return {name: s for name, s in verify(path).items() if name.startswith(f"{TOKENIZER}/")}
