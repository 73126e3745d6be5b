"""The folder of a run: what belongs to it, who works in it, and what was agreed at its start.

    config.toml     the whole configuration, every default filled in
    data.json       a fingerprint of the text it was trained on
    tokenizer/      learned once, then kept
    checkpoints/    step-00001000/ …, each a complete model with what is needed to go on
    best, last      links to two of them
    metrics.jsonl, train.log, tensorboard/, samples/
"""

import fcntl
import hashlib
import json
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from polyhead.api.run import Run
from polyhead.checkpoint import store
from polyhead.config import differences
from polyhead.errors import ConfigError, DataError, PolyheadError

CONFIG, DATA, TOKENIZER, CHECKPOINTS = "config.toml", "data.json", "tokenizer", "checkpoints"
OURS = (
    CONFIG, DATA, TOKENIZER, CHECKPOINTS, "best", "last", "metrics.jsonl", "train.log",
    "tensorboard", "samples",
)  # fmt: skip
FIXED = ("data", "text", "model")  # tables that cannot change once training has begun


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Only one process at a time may train in a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise PolyheadError(f"cannot write to {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PolyheadError(f"{folder} is being trained by another process") from None
        yield


def prepare(folder: Path, run: Run, *, fresh: bool, accept_changes: bool) -> list[str]:
    """Begin a run, or make sure that an old one goes on as it began; what changed, if accepted."""
    if fresh:
        clear(folder)
    store.remove_drafts(folder)
    changed: list[str] = []
    if (folder / CONFIG).exists():
        changed = compare(folder, run)
        if changed and not accept_changes:
            raise ConfigError(
                f"{folder} was begun with another configuration ({'; '.join(changed)}); go on with "
                "the old one, start over with --fresh, choose another --run, or go on with the new "
                "one with --accept-changes"
            )
        frozen = [line for line in changed if line.split(".")[0] in FIXED]
        if frozen:
            raise ConfigError(
                f"{folder}: {frozen[0]} cannot change within a run; use another --run or --fresh"
            )
    elif any(path.name not in (*OURS, ".lock") for path in folder.iterdir()):
        raise ConfigError(f"{folder} holds other things than a run; choose another --run")
    store.write_text(folder / CONFIG, run.toml())
    return changed


def compare(folder: Path, run: Run) -> list[str]:
    """What differs between the configuration of a folder and this one."""
    try:
        before = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
        now = tomllib.loads(run.toml())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / CONFIG} cannot be read: {error}") from None
    before.pop("description", None)
    now.pop("description", None)
    return differences(before, now)


def clear(folder: Path) -> None:
    """Remove what belongs to a run, and nothing else."""
    for name in OURS:
        path = folder / name
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            shutil.rmtree(path)


def check_data(folder: Path, sides: dict[str, Sequence[str]]) -> None:
    """The text must be the one that the run began with."""
    now = {name: fingerprint(lines) for name, lines in sides.items()}
    path = folder / DATA
    if not path.exists():
        store.write_text(path, json.dumps(now, indent=1) + "\n")
        return
    for name, value in json.loads(path.read_text(encoding="utf-8")).items():
        if now.get(name) != value:
            raise DataError(
                f"{folder}: the {name.replace('_', ' ')} is no longer the text that this run began "
                "with; restore the files, or start over with --fresh"
            )


def fingerprint(lines: Sequence[str]) -> str:
    """A sha256 of all lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8") + b"\n")
    return digest.hexdigest()
