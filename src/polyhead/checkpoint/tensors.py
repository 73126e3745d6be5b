"""Tensors in a file: the safetensors format, which holds numbers and nothing that could run.

    8 bytes     the length of the header
    header      JSON: name → dtype, shape, where its bytes lie
    the bytes

Nothing but the header is read until it is known to describe what is expected.
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
    """Read a whole file; what is not one is refused."""
    _check_header(path)
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _refused(path, error) from None


def load_floats(path: Path, shapes: dict[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Read a file that must hold just these floating-point tensors; nothing is read before."""
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            _compare(file, shapes, path)
            return {name: file.get_tensor(name) for name in shapes}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _refused(path, error) from None


def count_tensors(path: Path) -> int:
    """How many tensors a file holds."""
    _check_header(path)
    try:
        with safe_open(path, framework="pt") as file:
            return len(file.keys())
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _refused(path, error) from None


def _check_header(path: Path) -> None:
    """A header is small; a file that claims otherwise is not worth the memory."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise _refused(path, error) from None
    if length > MAX_HEADER_BYTES:
        raise _refused(path, f"its header claims {length} bytes")


def _compare(file: Any, shapes: dict[str, tuple[int, ...]], path: Path) -> None:
    names = set(file.keys())
    missing, extra = sorted(shapes.keys() - names), sorted(names - shapes.keys())
    if missing or extra:
        what = f"lacks {missing[0]}" if missing else f"has {extra[0][:80]!r}, unlike this model"
        raise CheckpointError(f"{path} {what}")
    for name, shape in shapes.items():
        found = file.get_slice(name)
        if tuple(found.get_shape()) != shape:
            raise CheckpointError(
                f"{path}: {name} is {tuple(found.get_shape())}, but config.json says {shape}"
            )
        if found.get_dtype() not in FLOATS:
            raise CheckpointError(
                f"{path}: {name} has numbers of type {found.get_dtype()}; expected one of "
                f"{', '.join(FLOATS)}"
            )


def _refused(path: Path, why: object) -> CheckpointError:
    line = " ".join(str(why).split())[:200]
    return CheckpointError(f"{path} is not a safetensors file that can be read: {line}")
