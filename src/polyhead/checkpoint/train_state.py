"""The training state of a checkpoint, from which a run resumes bit-exactly.

training.safetensors    moments of the optimizer
training.json           progress: position in the data, best score, counters
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyhead.checkpoint.model_files import TRAINING_TENSORS
from polyhead.checkpoint.tensors import load_tensors, save_tensors
from polyhead.errors import CheckpointError

NUMBERS = "training.json"
MAX_NUMBERS_BYTES = 2**20
OPTIMIZER = "optimizer."
VERSION = 2  # 1, which was not written, saved states of random generators


def write_state(
    folder: Path, model: nn.Module, optimizer: Optimizer, state: dict[str, Any]
) -> None:
    """Write the training state into the directory of a checkpoint."""
    tensors = {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, moments in optimizer.state.items():
        for key, value in moments.items():
            tensors[f"{OPTIMIZER}{names[id(parameter)]}.{key}"] = torch.as_tensor(value)
    save_tensors(tensors, folder / TRAINING_TENSORS)
    text = json.dumps({"version": VERSION, **state}, indent=1, allow_nan=False)
    (folder / NUMBERS).write_text(text + "\n", encoding="utf-8")


def restore_state(folder: Path, model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Restore the optimizer; return training.json."""
    numbers = read_progress(folder)
    tensors = load_tensors(folder / TRAINING_TENSORS)
    states = {name: _moments(tensors, name, p) for name, p in model.named_parameters()}
    optimizer.state.clear()
    for name, parameter in model.named_parameters():
        if states[name]:
            optimizer.state[parameter] = states[name]
    return numbers


def _moments(tensors: dict[str, Tensor], name: str, parameter: nn.Parameter) -> dict[str, Any]:
    """Return copies of the optimizer's state of one parameter, which do not keep the file open."""
    prefix = f"{OPTIMIZER}{name}."
    state = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
    for key, tensor in state.items():
        if tensor.dim() and tensor.shape != parameter.shape:
            raise CheckpointError(
                f"{TRAINING_TENSORS}: {prefix}{key} has shape {tuple(tensor.shape)}, but the "
                f"parameter {tuple(parameter.shape)}; cannot resume",
                "damaged_state",
            )
    device = parameter.device
    on_cpu = "" if device.type == "cuda" else "step"  # Adam's step counter stays there
    return {key: t.clone() if key == on_cpu else t.to(device).clone() for key, t in state.items()}


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
