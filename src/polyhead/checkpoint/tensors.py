"""Tensor files in the safetensors format, whose header is checked before anything else is read."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from polyhead.checkpoint.arrays import open_tensors
from polyhead.errors import CheckpointError

FLOATS = ("F64", "F32", "F16", "BF16")
Share: TypeAlias = Callable[[Tensor, nn.Parameter], Tensor]  # of a tensor, as of a parameter


def whole(tensor: Tensor, _parameter: nn.Parameter) -> Tensor:
    """Return a tensor, as this process holds all of its parameter."""
    return tensor


def save_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a file; OSError if that fails."""
    try:
        save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, path, metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from None


def count_tensors(path: Path) -> int:
    """Return the number of tensors in a file."""
    with open_tensors(path, "pt") as file:
        return len(file.keys())


def load_floats(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read a file that must contain exactly these floating-point tensors."""
    with open_tensors(path, "pt") as file:
        names = set(file.keys())
        missing, extra = sorted(shapes.keys() - names), sorted(names - shapes.keys())
        if missing or extra:
            problem = f"has no {missing[0]}" if missing else f"has the unknown {extra[0][:80]!r}"
            raise CheckpointError(f"{path} {problem}", "wrong_tensors")
        for name, expected in shapes.items():
            stored = file.get_slice(name)
            shape, dtype = tuple(stored.get_shape()), stored.get_dtype()
            if shape != expected or dtype not in FLOATS:
                raise CheckpointError(
                    f"{path}: {name} has type {dtype} and shape {shape}; expected {expected} by "
                    f"config.json, and one of {', '.join(FLOATS)}",
                    "wrong_tensors",
                )
        return {name: file.get_tensor(name) for name in shapes}
