"""Reading of safetensors files without torch: the header is checked before anything else."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from polyhead.checkpoint.model_files import tensor_header
from polyhead.errors import CheckpointError

FLOATS = ("F64", "F32", "F16")  # NumPy has no bfloat16
Array: TypeAlias = NDArray[Any]


@contextmanager
def open_tensors(path: Path, framework: Literal["pt", "np"]) -> Iterator[Any]:
    """Open a file after checking the size of its header; CheckpointError if it cannot be read."""
    try:
        tensor_header(path)
        with safe_open(path, framework=framework) as file:
            yield file
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path} is not a readable safetensors file: {line}", "bad_tensor_file"
        ) from None


class ArrayFile:
    """An open file whose arrays are read one by one, after their shapes were compared."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self.file = path, file
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (no dict)
        self.shapes = {name: tuple(stored.get_shape()) for name, stored in slices.items()}
        self.unread = set(self.shapes)
        self.types = {name: stored.get_dtype() for name, stored in slices.items()}

    def read(self, name: str, *shape: int) -> Array:
        """Return an array of this shape as float32; CheckpointError if there is no such."""
        if name not in self.shapes:
            raise CheckpointError(f"{self.path} has no {name}", "wrong_tensors")
        if self.shapes[name] != shape or self.types[name] not in FLOATS:
            raise CheckpointError(
                f"{self.path}: {name} has type {self.types[name]} and shape {self.shapes[name]}; "
                f"expected {shape} by config.json, and one of {', '.join(FLOATS)}",
                "wrong_tensors",
            )
        self.unread.discard(name)
        array: Array = self.file.get_tensor(name).astype(numpy.float32, copy=False)
        if not math.isfinite(array.sum(dtype=numpy.float64)):
            raise CheckpointError(
                f"{self.path}: {name} contains values that are not finite", "not_finite"
            )
        return array
