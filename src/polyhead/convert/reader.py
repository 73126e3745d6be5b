"""Folders that others wrote: config.json and safetensors, in one file or in several.

    config.json                          what the model is
    model.safetensors                    its weights, or …
    model.safetensors.index.json         … which file holds which

Nothing is trusted and nothing can run: pickled weights are refused, and a tensor is read only after
the shapes of all of them were compared with the configuration (`outline`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from polyhead.convert.weight_names import Weights
from polyhead.errors import CheckpointError

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")
MAX_JSON_BYTES = 2**24
MAX_HEADER_BYTES = 2**23
SHARD = re.compile(r"[\w-][\w.-]{0,99}\.safetensors", re.ASCII)
NOT_READ = (
    "pickled weights can run code and are never read; load them where you trust them and write "
    "model.safetensors with save_pretrained"
)


@dataclass(frozen=True)
class Original:
    """A model of somebody else, not read yet: its configuration, and the shape of each tensor."""

    path: Path
    values: Mapping[str, Any]
    files: Mapping[str, Path]  # where each tensor is
    shapes: Mapping[str, tuple[int, ...]]

    def outline(self) -> Weights:
        """Tensors of the right shapes without any numbers or memory, to try a conversion on."""
        return {name: torch.empty(shape, device="meta") for name, shape in self.shapes.items()}

    def tensors(self) -> Weights:
        """The numbers themselves."""
        found: Weights = {}
        for path in sorted(set(self.files.values())):
            try:
                with safe_open(path, framework="pt") as file:
                    found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            except (SafetensorError, OSError, ValueError, RuntimeError) as error:
                raise _broken(path, error) from None
        return found


def original(path: Path, *, config: bool = True) -> Original:
    """Look at a folder, or at a lone file of weights if no configuration is needed."""
    if path.is_file() and path.suffix != ".safetensors":
        raise CheckpointError(f"{path} is not a folder of a model: {NOT_READ}")
    if path.is_file() and config:
        path = path.parent
    if not path.exists():
        raise CheckpointError(f"there is no folder {path}")
    values = {} if path.is_file() else read_json(path / CONFIG, missing_ok=not config)
    shapes: dict[str, tuple[int, ...]] = {}
    files: dict[str, Path] = {}
    for file in _weight_files(path):
        for name, shape in _header(file).items():
            files[name], shapes[name] = file, shape
    return Original(path, values, files, shapes)


def read_json(path: Path, *, missing_ok: bool = False) -> dict[str, Any]:
    """A table in a file of sane size."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(f"{path} is too large: expected at most {MAX_JSON_BYTES} bytes")
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if missing_ok:
            return {}
        raise CheckpointError(
            f"{path} is missing; give a folder with {CONFIG} and {WEIGHTS}"
        ) from None
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{path} cannot be read as JSON") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds no table")
    return values


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        return _shards(path)
    pickles = sorted(found.name for pattern in PICKLES for found in path.glob(pattern))
    if pickles:
        raise CheckpointError(f"{path} has no {WEIGHTS}, only {pickles[0]}: {NOT_READ}")
    raise CheckpointError(f"{path} has no {WEIGHTS}; give a folder with {CONFIG} and {WEIGHTS}")


def _shards(path: Path) -> list[Path]:
    """The files that an index names; names that lead elsewhere are refused."""
    table = read_json(path / INDEX).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{path / INDEX} has no weight_map")
    names = set(table.values())
    for name in names:
        if not isinstance(name, str) or not SHARD.fullmatch(name):
            raise CheckpointError(f"{path / INDEX} names the file {str(name)[:80]!r}; {NOT_READ}")
        if not (path / name).is_file():
            raise CheckpointError(f"{path / name} is missing; the folder was not copied as a whole")
    return sorted(path / name for name in names)


def _header(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes: all that is read at first."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise _broken(path, f"its header claims {length} bytes")
        with safe_open(path, framework="pt") as opened:
            names = opened.keys()
            return {name: tuple(opened.get_slice(name).get_shape()) for name in names}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise _broken(path, error) from None


def _broken(path: Path, why: object) -> CheckpointError:
    line = " ".join(str(why).split())[:200]
    return CheckpointError(f"{path} is not a safetensors file that can be read: {line}")
