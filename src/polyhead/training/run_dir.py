"""The folder of a run: what belongs to it, who works in it, and what was agreed at its start.

    config.toml     the whole configuration, every default filled in
    data.json       a fingerprint of the text it was trained on
    tokenizer/      learned once, then kept
    checkpoints/    step-00001000/ …, each a complete model with what is needed to go on
    best, last      links to two of them
    metrics.jsonl, train.log, tensorboard/, samples/

Whatever else lies there belongs to somebody else and is left alone.
"""

import fcntl
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from polyhead.checkpoint import atomic_dir as store
from polyhead.config import differences
from polyhead.data import bilingual_dictionary as lexicon
from polyhead.errors import ConfigError, DataError, PolyheadError
from polyhead.training.config import LISTS, RunConfig, build

CONFIG, DATA, TOKENIZER, CHECKPOINTS = "config.toml", "data.json", "tokenizer", "checkpoints"
LOCK = ".lock"
OURS = (
    CONFIG, DATA, TOKENIZER, CHECKPOINTS, "best", "last", "metrics.jsonl", "train.log",
    "tensorboard", "samples", lexicon.FILE,
)  # fmt: skip
TABLES = {"data", "text", "model", "train", "decode"}
# cannot change once training has begun
FIXED = ("data.", "text.", "model.", "train.seed:", "train.init:")
FREE = {"train": ("workers", "keep")}  # may change at any time: the result does not depend on it


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Only one process at a time may train in a folder, and only in one that is meant for it.

    The lock belongs to this process alone. (flock's would be shared with the workers that prepare
    batches, and outlive a killed parent by seconds.)
    """
    refuse_foreign(folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise PolyheadError(f"cannot write to {folder}: {error.strerror}") from None
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise PolyheadError(
                f"{folder} is being trained by another process ({file.read(20).strip()}); wait for "
                "it, or choose another --run"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            _remove_if_empty(folder, made)


def _remove_if_empty(folder: Path, made: Sequence[Path]) -> None:
    """A run that never began, because its data were not there, say, leaves no folder behind."""
    if [path.name for path in folder.iterdir()] != [LOCK]:
        return
    (folder / LOCK).unlink()
    with suppress(OSError):  # somebody else may have put something there
        for path in made:
            path.rmdir()


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run: it has a configuration with the tables of one."""
    try:
        return TABLES <= tomllib.loads((folder / CONFIG).read_text(encoding="utf-8")).keys()
    except (OSError, ValueError, RecursionError):
        return False


def refuse_foreign(folder: Path) -> None:
    """A folder with other people's things is no place for a run; a run may have guests."""
    if not folder.is_dir() or is_run(folder):
        return
    for path in sorted(folder.iterdir()):
        if path.name not in (*OURS, LOCK) and not store.DRAFT.fullmatch(path.name):
            raise ConfigError(
                f"{folder} holds other things than a run, such as {path.name}; choose another --run"
            )


def refuse_own(folder: Path, run: RunConfig) -> None:
    """A run cannot begin from its own things: `clear` would remove them."""
    own = folder.resolve()
    named = {f"data.{name}": getattr(run.data, name) for name in LISTS}
    named["train.init"] = () if run.train.init is None else (run.train.init,)
    for name, paths in named.items():
        for path in paths:
            place = Path(path).resolve()
            if place == own or any(place.is_relative_to(own / part) for part in OURS):
                raise ConfigError(
                    f"{name} = {path!r} belongs to {folder}, the run that is to begin from it; "
                    "choose another --run"
                )


def check(folder: Path, run: RunConfig, *, fresh: bool, accept_changes: bool) -> list[str]:
    """Make sure that an old run would go on as it began; what changed, if that is accepted."""
    refuse_own(folder, run)
    if fresh or not (folder / CONFIG).exists():
        return []
    changed = compare(folder, run)
    for line in changed:
        if line.startswith(FIXED):
            raise ConfigError(
                f"{folder} was begun with another configuration, and {line} cannot change within a "
                "run; start over with --fresh, or choose another --run"
            )
    if changed and not accept_changes:
        raise ConfigError(
            f"{folder} was begun with another configuration ({'; '.join(changed)}); go on with "
            "the old one, start over with --fresh, choose another --run, or go on with the new "
            "one with --accept-changes"
        )
    return changed


def begin(folder: Path, run: RunConfig, *, fresh: bool) -> None:
    """Make a folder ready: nothing half-written is left, and the configuration is written down."""
    if fresh:
        clear(folder)
    store.remove_drafts(folder)
    store.remove_drafts(folder / "samples")
    store.write_text(folder / CONFIG, run.toml())


def compare(folder: Path, run: RunConfig) -> list[str]:
    """What differs between the configuration of a folder and this one, as far as it matters.

    What a file of an earlier version does not name had the value that is the default now.
    """
    try:
        before = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{folder / CONFIG} cannot be read: {error}") from None
    with suppress(ConfigError):  # what cannot be understood is told as a difference below
        before = tomllib.loads(build(before).toml())
    now = tomllib.loads(run.toml())
    for values in (before, now):
        values.pop("description", None)
        for table, names in FREE.items():
            for name in names:
                values.get(table, {}).pop(name, None)
    return differences(before, now)


def clear(folder: Path) -> None:
    """Remove what belongs to a run, and nothing else."""
    with store.os_errors_as_polyhead_errors(folder):
        for name in OURS:
            path = folder / name
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.is_dir():
                shutil.rmtree(path)


def check_data(folder: Path, now: dict[str, str]) -> None:
    """The data, given by their fingerprints, must be those that the run began with."""
    path = folder / DATA
    if not path.exists():
        store.write_text(path, json.dumps(now, indent=1) + "\n")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        before = None
    if not isinstance(before, dict):
        raise DataError(
            f"{path} is damaged: which text this run began with is not known; "
            "start over with --fresh"
        )
    for name, value in now.items():
        if before.get(name) != value:
            raise DataError(
                f"{folder}: the {name} data are no longer those that this run began with; restore "
                "the files, or start over with --fresh"
            )


def fingerprint(lines: Sequence[str]) -> str:
    """A sha256 of all lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8") + b"\n")
    return digest.hexdigest()
