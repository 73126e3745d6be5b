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

from polyhead.checkpoint.folder import load_tensors, save_tensors
from polyhead.errors import CheckpointError

TENSORS, NUMBERS = "training.safetensors", "training.json"


def fill(folder: Path, model: nn.Module, optimizer: Optimizer, numbers: dict[str, Any]) -> None:
    """Write the state of a run beside its model."""
    tensors = {f"random.{name}": state for name, state in random_states().items()}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            tensors[f"optimizer.{names[id(parameter)]}.{key}"] = torch.as_tensor(value)
    save_tensors(tensors, folder / TENSORS)
    (folder / NUMBERS).write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def restore(folder: Path, model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Put the optimiser and the random generators back; return the numbers."""
    tensors = load_tensors(folder / TENSORS)
    device = next(model.parameters()).device
    optimizer.state.clear()
    for name, parameter in model.named_parameters():
        prefix = f"optimizer.{name}."
        state = {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
        if state:
            optimizer.state[parameter] = {
                key: tensor if key == "step" and device.type != "cuda" else tensor.to(device)
                for key, tensor in state.items()
            }
    set_random_states(
        {k.removeprefix("random."): t for k, t in tensors.items() if k.startswith("random.")}
    )
    try:
        numbers: dict[str, Any] = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise CheckpointError(f"{folder / NUMBERS} cannot be read; resume is impossible") from None
    return numbers


def random_states() -> dict[str, Tensor]:
    """The generators that dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_random_states(states: dict[str, Tensor]) -> None:
    """The inverse of `random_states`."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
