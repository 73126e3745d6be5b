"""Tensor files in the safetensors format, which cannot contain code.

    8 bytes     the length of the header
    header      JSON: name → dtype, shape, position of its bytes
    the bytes

The header is checked against the expected tensors before anything else is read.
"""

from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
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


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a file; CheckpointError if it cannot be read."""
    _check_header(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _refused(path, error) from None


def load_floats(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read a file that must contain exactly these floating-point tensors."""
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            _compare(file, shapes, path)
            return {name: file.get_tensor(name) for name in shapes}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _refused(path, error) from None


def count_tensors(path: Path) -> int:
    """Return the number of tensors in a file."""
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            return len(file.keys())
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _refused(path, error) from None


def _check_header(path: Path) -> None:
    """Refuse a header so large that reading it could exhaust memory."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise _refused(path, error) from None
    if length > MAX_HEADER_BYTES:
        raise _refused(path, f"header of {length} bytes")


def _compare(file: Any, shapes: dict[str, tuple[int, ...]], path: Path) -> None:
    names = set(file.keys())
    missing, extra = sorted(shapes.keys() - names), sorted(names - shapes.keys())
    if missing or extra:
        problem = f"has no {missing[0]}" if missing else f"has the unknown {extra[0][:80]!r}"
        raise CheckpointError(f"{path} {problem}", "wrong_tensors")
    for name, shape in shapes.items():
        stored = file.get_slice(name)
        if tuple(stored.get_shape()) != shape:
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(stored.get_shape())}, but config.json says "
                f"{shape}",
                "wrong_tensors",
            )
        if stored.get_dtype() not in FLOATS:
            raise CheckpointError(
                f"{path}: {name} has type {stored.get_dtype()}; expected one of "
                f"{', '.join(FLOATS)}",
                "wrong_tensors",
            )


def _refused(path: Path, reason: object) -> CheckpointError:
    line = " ".join(str(reason).split())[:200]
    return CheckpointError(f"{path} is not a readable safetensors file: {line}", "bad_tensor_file")
