"""Tensor files in the safetensors format, whose header is checked before anything else is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from polyhead.errors import CheckpointError

MAX_HEADER_BYTES = 2**23  # some 80,000 tensors
FLOATS = ("F64", "F32", "F16", "BF16")


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a file."""
    try:
        save_file({name: t.contiguous().cpu() for name, t in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(str(error)) from None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file after checking the size of its header; CheckpointError if it cannot be read."""
    try:
        with path.open("rb") as raw:
            length = int.from_bytes(raw.read(8), "little")
        if length > MAX_HEADER_BYTES:  # reading it could exhaust memory
            raise ValueError(f"header of {length} bytes")
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path} is not a readable safetensors file: {line}", "bad_tensor_file"
        ) from None


def count_tensors(path: Path) -> int:
    """Return the number of tensors in a file."""
    with _opened(path) as file:
        return len(file.keys())


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file; CheckpointError if it cannot be read."""
    with _opened(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)


def load_floats(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read a file that must contain exactly these floating-point tensors."""
    with _opened(path) as file:
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
