"""What a run needs to go on as if nothing had happened, beside its model.

    training.safetensors    the optimiser's moments and the state of the random generators
    training.json           the numbers: where in the data, best score, losses since the last log

Together with a data order that depends on nothing but (seed, epoch), this makes a resumed run the
same as an uninterrupted one, to the last bit.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from polyhead.checkpoint import tensors as files
from polyhead.errors import CheckpointError

TENSORS, NUMBERS = "training.safetensors", "training.json"
MAX_NUMBERS_BYTES = 2**20
RANDOM, OPTIMIZER = "random.", "optimizer."


def write_state(
    folder: Path, model: nn.Module, optimizer: Optimizer, numbers: dict[str, Any]
) -> None:
    """Write the state of a run beside its model."""
    tensors = {f"{RANDOM}{name}": state for name, state in random_states().items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            tensors[f"{OPTIMIZER}{names[id(parameter)]}.{key}"] = torch.as_tensor(value)
    files.save_tensors(tensors, folder / TENSORS)
    text = json.dumps(numbers, indent=1, allow_nan=False)
    (folder / NUMBERS).write_text(text + "\n", encoding="utf-8")


def restore_state(folder: Path, model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Put the optimiser and the random generators back; return the numbers."""
    numbers = read_progress(folder)
    tensors = files.load_tensors(folder / TENSORS)
    states = {name: _moments(tensors, name, p) for name, p in model.named_parameters()}
    optimizer.state.clear()
    for name, parameter in model.named_parameters():
        if states[name]:
            optimizer.state[parameter] = states[name]
    known = {k.removeprefix(RANDOM): t for k, t in tensors.items() if k.startswith(RANDOM)}
    try:
        set_random_states(known)
    except (KeyError, RuntimeError, TypeError):
        raise _useless(folder / TENSORS, "no state of the random generators") from None
    return numbers


def _moments(tensors: dict[str, Tensor], name: str, parameter: nn.Parameter) -> dict[str, Any]:
    """The optimiser's state for one parameter; copies, so that no file is kept open by them."""
    prefix = f"{OPTIMIZER}{name}."
    found = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
    for key, tensor in found.items():
        if tensor.dim() and tensor.shape != parameter.shape:
            raise CheckpointError(
                f"{TENSORS}: {prefix}{key} is {tuple(tensor.shape)}, but the parameter "
                f"{tuple(parameter.shape)}; resume is impossible"
            )
    device = parameter.device
    on_cpu = "" if device.type == "cuda" else "step"  # where torch's Adam counts its steps
    return {key: t.clone() if key == on_cpu else t.to(device).clone() for key, t in found.items()}


def read_progress(folder: Path) -> dict[str, Any]:
    """training.json: the position in the data and what was measured last."""
    path = folder / NUMBERS
    try:
        if path.stat().st_size > MAX_NUMBERS_BYTES:
            raise ValueError
        numbers = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise _useless(path, "it cannot be read") from None
    if not isinstance(numbers, dict) or not isinstance(numbers.get("progress"), dict):
        raise _useless(path, "it does not say where the run stood")
    return numbers


def _useless(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path}: {why}; resume is impossible")


def random_states() -> dict[str, Tensor]:
    """The generators that dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_states(states: dict[str, Tensor]) -> None:
    """The inverse of `random_states`."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if "mps" in states and torch.backends.mps.is_available():
        torch.mps.set_rng_state(states["mps"])
