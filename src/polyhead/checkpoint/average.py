"""The mean of several checkpoints' weights: often better than each of them.

    θ = 1/n Σ_i θ_i

Vaswani et al. 2017, section 6.1, average the last five of a base model.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint import model_dir as model_folder
from polyhead.checkpoint.model_card import model_card
from polyhead.config import plain
from polyhead.errors import CheckpointError, ConfigError


def average(paths: Sequence[Path], output: Path, *, last: int | None = None) -> list[Path]:
    """Write the mean of some models as a new one; of a run, the mean of its `last` checkpoints."""
    members = members_of(paths, last)
    if len(members) < 2:
        raise CheckpointError(f"averaging needs at least two models; found {len(members)}")
    if output.is_symlink() or (output.exists() and not (output / model_folder.CONFIG).is_file()):
        raise CheckpointError(f"{output} exists and is not a model; choose another --output")
    first = model_folder.load_model(members[0])
    words = tokenizer_sums(members[0])
    mean = {n: w.to(torch.float64) for n, w in model_folder.weights_of(first.model).items()}
    for path in members[1:]:
        other = model_folder.load_model(path)
        if (other.family, plain(other.config)) != (first.family, plain(first.config)):
            raise CheckpointError(f"{path} and {members[0]} are models of different sizes")
        if tokenizer_sums(path) != words:
            raise CheckpointError(f"{path} and {members[0]} have different vocabularies")
        for name, tensor in model_folder.weights_of(other.model).items():
            mean[name] += tensor
    model_folder.set_weights(first.model, {n: w / len(members) for n, w in mean.items()})
    about = {**first.about, "averaged": [path.name for path in members], "valid": None}
    averaged = replace(first, about=about)
    with store.atomic_dir(output) as draft:
        model_folder.write_model(draft, averaged, model_card(averaged))
    return members


def members_of(paths: Sequence[Path], last: int | None) -> list[Path]:
    """The models meant: those named, or the newest checkpoints of the one run that is named."""
    if last is not None and last < 2:
        raise ConfigError(f"--last {last}: averaging needs at least two checkpoints")
    if len(paths) == 1 and (paths[0] / "checkpoints").is_dir():
        found = [
            path for step, path in store.list_checkpoints(paths[0] / "checkpoints") if step > 0
        ]
        return found if last is None else found[-last:]
    if last is not None:
        raise ConfigError("--last is for the checkpoints of one run; name just its folder")
    return [model_folder.resolve(path) for path in paths]


def tokenizer_sums(path: Path) -> dict[str, str]:
    """The checksums of a model's tokenizer: equal if every id means the same."""
    sums = store.verify(path)
    return {n: s for n, s in sums.items() if n.startswith(f"{model_folder.TOKENIZER}/")}
