"""A name instead of a folder: `bert-base-uncased` in huggingface_hub's cache, or from its site.

Only safetensors, configurations and the files of tokenizers are asked for; nothing that could run.
"""

import re
from pathlib import Path

from polyhead.convert.reader import CONFIG, INDEX, WEIGHTS
from polyhead.errors import CheckpointError, MissingError

NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?", re.ASCII)
WANTED = ["*.json", "*.txt", "*.spm", "model*.safetensors"]
INSTALL = "pip install 'polyhead[hf]'"


def locate(name: str) -> Path:
    """The folder (or file) of that name, or a copy of the model of that name."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not NAME.fullmatch(name) or ".." in name or name.startswith("."):
        raise CheckpointError(f"there is no folder {name}")
    return _from_hub(name)


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError
    except ImportError:
        raise MissingError(
            f"there is no folder {name}; to look for a model of that name elsewhere, first: "
            f"{INSTALL}"
        ) from None
    try:
        cached = Path(snapshot_download(name, allow_patterns=WANTED, local_files_only=True))
        if _complete(cached):
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
            "and give their folder"
        ) from None


def _complete(folder: Path) -> bool:
    weights = (folder / WEIGHTS).exists() or (folder / INDEX).exists()
    return (folder / CONFIG).exists() and weights
