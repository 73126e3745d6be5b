"""Reader of foreign checkpoints: config.json and safetensors, from a directory or the Hub.

    config.json                          what the model is
    model.safetensors                    its weights, or …
    model.safetensors.index.json         … which file holds which

Pickled weights are refused, since they can run code. Tensors are read only after the shapes of all
of them were compared with the configuration. From the Hub, only safetensors, configurations and
tokenizer files are downloaded.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polyhead.checkpoint.arrays import open_tensors
from polyhead.convert.weight_names import Weights, shown
from polyhead.errors import CheckpointError, MissingError, install_command

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")
MAX_JSON_BYTES = 2**24
MAX_NAME = 200
DTYPES = {
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64
}  # fmt: skip
NO_FLOAT = torch.int64  # all others, such as masks and counters that are not read
GENERATOR = "generator:"
SHARD = re.compile(r"[\w-][\w.-]{0,99}\.safetensors", re.ASCII)
NOT_READ = (
    "pickled weights can run code and are never read; load them where you trust them and write "
    "model.safetensors with save_pretrained"
)


@dataclass(frozen=True)
class ForeignCheckpoint:
    """A foreign model whose tensors are not read yet: configuration, shapes and types."""

    path: Path
    values: Mapping[str, Any]
    files: Mapping[str, Path]  # where each tensor is
    outline: Weights  # meta tensors of the same shapes and types, to try a conversion on

    def tensors(self) -> Weights:
        """Read all tensors."""
        tensors: Weights = {}
        for path in sorted(set(self.files.values())):
            names = [name for name, file in self.files.items() if file == path]
            with open_tensors(path, "pt") as file:
                tensors |= {n: file.get_tensor(n.removeprefix(GENERATOR)) for n in names}
        return tensors


def joined(discriminator: ForeignCheckpoint, generator: ForeignCheckpoint) -> ForeignCheckpoint:
    """Return both halves of an ELECTRA as one; the generator's names get the prefix GENERATOR."""
    return ForeignCheckpoint(
        discriminator.path,
        {**discriminator.values, "generator": generator.values},
        {**discriminator.files, **{f"{GENERATOR}{n}": p for n, p in generator.files.items()}},
        {**discriminator.outline, **{f"{GENERATOR}{n}": t for n, t in generator.outline.items()}},
    )


def read_foreign(path: Path, *, config: bool = True) -> ForeignCheckpoint:
    """Open a directory, or a single file of weights if no configuration is needed."""
    if path.is_file() and path.suffix != ".safetensors":
        raise CheckpointError(f"{path} is not a folder of a model: {NOT_READ}", "pickled_weights")
    if path.is_file() and config:
        path = path.parent
    if not path.exists():
        raise CheckpointError(f"there is no folder {path}", "not_found")
    values = {} if path.is_file() else read_json(path / CONFIG, missing_ok=not config)
    files: dict[str, Path] = {}
    outline: Weights = {}
    for file in _weight_files(path):
        for name, tensor in _header(file).items():
            if name in files:
                raise CheckpointError(
                    f"{path}: both {files[name].name} and {file.name} hold {name}; expected every "
                    "tensor once",
                    "duplicate_weight",
                )
            files[name], outline[name] = file, tensor
    return ForeignCheckpoint(path, values, files, outline)


def read_json(path: Path, *, missing_ok: bool = False) -> dict[str, Any]:
    """Read a JSON object of limited size."""
    try:
        if not path.is_file() and path.exists():  # a pipe would never end
            raise CheckpointError(f"{path} is not a file", "unreadable_json")
        if path.stat().st_size > MAX_JSON_BYTES:
            raise CheckpointError(
                f"{path} is too large: expected at most {MAX_JSON_BYTES} bytes", "too_large"
            )
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if missing_ok:
            return {}
        raise CheckpointError(
            f"{path} is missing; give a folder with {CONFIG} and {WEIGHTS}", "missing_config"
        ) from None
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{path} cannot be read as JSON", "unreadable_json") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds no table", "unreadable_json")
    return values


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        return _shards(path)
    pickles = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
    if pickles:
        raise CheckpointError(
            f"{path} has no {WEIGHTS}, only {pickles[0]}: {NOT_READ}", "pickled_weights"
        )
    raise CheckpointError(
        f"{path} has no {WEIGHTS}; give a folder with {CONFIG} and {WEIGHTS}", "missing_weights"
    )


def _shards(path: Path) -> list[Path]:
    """Return the files that an index names; paths to other directories are refused."""
    table = read_json(path / INDEX).get("weight_map")
    if not isinstance(table, dict) or not table:
        raise CheckpointError(f"{path / INDEX} has no weight_map", "invalid_index")
    for name in table.values():
        if not isinstance(name, str) or not SHARD.fullmatch(name):
            raise CheckpointError(
                f"{path / INDEX}: weight_map names {shown(name)}; expected names of .safetensors "
                "files in this folder",
                "invalid_index",
            )
    for name in set(table.values()):
        if not (path / name).is_file():
            raise CheckpointError(
                f"{path / name} is missing; the folder was not copied as a whole", "missing_weights"
            )
    return sorted({path / name for name in table.values()})


def _header(path: Path) -> Weights:
    """Return meta tensors with the names, shapes and types of a file's tensors."""
    header = {}
    with open_tensors(path, "pt") as opened:
        for name in opened.keys():  # noqa: SIM118 - not a dict
            part = opened.get_slice(name)
            shape = tuple(part.get_shape())
            if len(name) > MAX_NAME or not name.isprintable() or 0 in shape:
                raise ValueError(f"the tensor {shown(name)} of the shape {shape[:9]}")
            dtype = DTYPES.get(part.get_dtype(), NO_FLOAT)
            header[name] = torch.empty(shape, dtype=dtype, device="meta")
    return header


NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?", re.ASCII)
WANTED = ["*.json", "*.txt", "*.spm", "model*.safetensors"]


def locate(name: str) -> Path:
    """Return a directory or file of this name, else a local copy of this model on the Hub."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not NAME.fullmatch(name) or ".." in name or name.startswith("."):
        raise CheckpointError(f"there is no folder {name}", "not_found")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        raise MissingError(
            f"there is no folder {name}; to look for a model of that name elsewhere, first: "
            f"{install_command('hf')}",
            "missing_package",
        ) from None
    try:
        cached = Path(snapshot_download(name, allow_patterns=WANTED, local_files_only=True))
        if (cached / CONFIG).exists() and any((cached / f).exists() for f in (WEIGHTS, INDEX)):
            return cached
    except (LocalEntryNotFoundError, OSError, ValueError):
        pass  # not there yet
    try:
        return Path(snapshot_download(name, allow_patterns=WANTED, etag_timeout=5))
    except Exception as error:  # every version raises others: of httpx, requests, its own
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        raise MissingError(
            f"there is no folder {name}, no copy of it in the cache of huggingface_hub, and a "
            f"download failed ({first}); fetch its {CONFIG}, {WEIGHTS} and tokenizer files by hand "
            "and give their folder",
            "download_failed",
        ) from None
