"""The training state of a checkpoint, from which a run resumes bit-exactly.

training.safetensors    moments of the optimizer, or
training-….safetensors  their rows in equal parts, one for each process of a sharded model
training.json           progress: position in the data, best score, counters
"""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyhead.checkpoint.arrays import open_tensors
from polyhead.checkpoint.model_files import TRAINING_TENSORS
from polyhead.checkpoint.tensors import Share, save_tensors, whole
from polyhead.errors import CheckpointError

NUMBERS = "training.json"
MAX_NUMBERS_BYTES = 2**20
OPTIMIZER = "optimizer."
VERSION = 2  # 1, which was not written, saved states of random generators


def moments_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return the state of the optimizer by names."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{OPTIMIZER}{names[id(parameter)]}.{key}": torch.as_tensor(value)
        for parameter, moments in optimizer.state.items()
        for key, value in moments.items()
    }


def part_name(number: int, n_parts: int) -> str:
    """Return the name of the file with one part, counted from 0, of the rows of all moments."""
    return (
        TRAINING_TENSORS
        if n_parts == 1
        else f"training-{number + 1:05d}-of-{n_parts:05d}.safetensors"
    )


def write_state(
    folder: Path, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]
) -> None:
    """Write the training state into the directory of a checkpoint."""
    save_tensors(moments_of(model, optimizer), folder / TRAINING_TENSORS)
    write_numbers(folder, state)


def write_numbers(folder: Path, state: dict[str, Any]) -> None:
    """Write training.json into the directory of a checkpoint."""
    text = json.dumps({"version": VERSION, **state}, indent=1, allow_nan=False)
    (folder / NUMBERS).write_text(text + "\n", encoding="utf-8")


def restore_state(
    folder: Path, model: nn.Module, optimizer: Optimizer, share: Share = whole
) -> dict[str, Any]:
    """Restore the optimizer, or this process's share of it; return training.json."""
    numbers = read_progress(folder)
    paths = sorted(folder.glob("training*.safetensors")) or [folder / TRAINING_TENSORS]
    if [path.name for path in paths] != [part_name(n, len(paths)) for n in range(len(paths))]:
        raise _unusable(folder / TRAINING_TENSORS, "is incomplete")
    states: dict[Tensor, Any] = {}
    with ExitStack() as stack:
        files = [stack.enter_context(open_tensors(path, "pt")) for path in paths]
        names = list(files[0].keys())
        for name, parameter in model.named_parameters():
            prefix = f"{OPTIMIZER}{name}."
            keys = [key.removeprefix(prefix) for key in names if key.startswith(prefix)]
            if keys:
                states[parameter] = {
                    key: _moment(files, prefix + key, parameter, share) for key in keys
                }
    optimizer.state.clear()
    optimizer.state.update(states)
    return numbers


def _moment(files: list[Any], name: str, parameter: nn.Parameter, share: Share) -> Tensor:
    """Return a copy of a part of the optimizer's state, which does not keep the file open."""
    parts = [file.get_tensor(name) for file in files]
    if not parts[0].dim():  # Adam's step counter, which stays on the CPU
        return parts[0].to("cpu" if parameter.device.type != "cuda" else parameter.device).clone()
    tensor = torch.cat(parts)
    if tensor.shape != parameter.shape:
        raise CheckpointError(
            f"{TRAINING_TENSORS}: {name} has shape {tuple(tensor.shape)}, but the parameter "
            f"{tuple(parameter.shape)}; cannot resume",
            "damaged_state",
        )
    return share(tensor.to(parameter.device), parameter)


def read_progress(folder: Path) -> dict[str, Any]:
    """Read training.json: the progress of the run and its last validation metrics."""
    path = folder / NUMBERS
    try:
        if path.stat().st_size > MAX_NUMBERS_BYTES:
            raise ValueError
        numbers = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise _unusable(path, "cannot be read") from None
    if not isinstance(numbers, dict) or not isinstance(numbers.get("progress"), dict):
        raise _unusable(path, "has no progress")
    return numbers


def _unusable(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path}: {reason}; cannot resume", "damaged_state")
