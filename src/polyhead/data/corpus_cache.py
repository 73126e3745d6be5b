"""Encoded corpora in the user's cache, for corpora that are large, shared by all runs.

    corpora/files.json      sha256 of files, by name, size, times of change and inode
    corpora/KEY.json        what a run must know of a corpus: fingerprints, notices, held-out texts;
                            both with a checksum of their values
    corpora/KEY/            token stores (also of images, as bytes), a checksum of each of their
                            blocks, store.json, manifest.json, and `lock`, which is locked while a
                            process uses them and whose time is that of their last use
    corpora/KEY.part/       a store that is being written; corpora/KEY.making is locked meanwhile

The lock is the system's, which ends with a process. It is lost if the process opens and closes
the file once more, so that no function here does so with a lock that is held.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, runtime_checkable

from polyhead.atomic_file import (
    draft_path,
    lock,
    os_errors_as_polyhead_errors,
    remove,
    rename,
    sync,
    write_text,
)
from polyhead.checkpoint.atomic_dir import seal, verify
from polyhead.data.locate import home
from polyhead.data.token_store import check_blocks, write_block_sums
from polyhead.errors import CheckpointError, DataError, PolyheadError

INFO, LOCK = "store.json", "lock"
WAIT = 0.2  # seconds between two looks at a lock
_HELD: dict[Path, IO[str]] = {}  # locks of the stores that this process uses


@runtime_checkable
class Reporting(Protocol):
    """Receives progress and messages."""

    def on_stage(self, text: str, /) -> None: ...

    def on_notice(self, text: str, /) -> None: ...


class CacheEntry(NamedTuple):
    """A store, for lists."""

    key: str
    files: list[str]
    n_examples: int
    n_tokens: int
    n_bytes: int
    last_use: float
    in_use: bool
    contents: str


def folder() -> Path:
    """Return the directory of all stores."""
    return home() / "corpora"


def use_store(place: Path) -> dict[str, Any] | None:
    """Lock a store for this process and return its counts; None if there is no intact one.

    A damaged store is removed. One that cannot be read just now is not: that is a PolyheadError.
    """
    try:
        if place not in _HELD:
            file = (place / LOCK).open("r+")
            while not lock(file, shared=True):  # listed or removed at this moment
                time.sleep(WAIT)
            if not os.path.samestat(os.fstat(file.fileno()), (place / LOCK).stat()):
                raise FileNotFoundError  # it was removed, and made again
            _HELD[place] = file
        contents = sorted(place.glob("*.bin"))
        verify(place, skip=[LOCK, *(path.name for path in contents)])  # reading `lock` unlocks it
        for path in contents:
            check_blocks(path)
        os.utime(place / LOCK)
        return dict(json.loads((place / INFO).read_text(encoding="utf-8")))
    except (OSError, ValueError, CheckpointError, DataError) as error:
        if place in _HELD:
            _HELD.pop(place).close()
        if reason := _unreadable(error):
            raise PolyheadError(
                f"{place} cannot be read, and is kept: {reason}. Repair that, and start again.",
                "io",
            ) from error
        if place.is_dir():
            _remove_store(place)
        return None


def _unreadable(error: Exception) -> str:
    """Return why the system could not read a file that exists; empty if it is damaged."""
    reason = error if isinstance(error, OSError) else error.__cause__
    if isinstance(reason, OSError) and not isinstance(reason, FileNotFoundError):
        return str(reason.strerror)
    return ""


def make_store(
    place: Path, write: Callable[[Path], dict[str, Any]], notice: Callable[[str], None]
) -> dict[str, Any]:
    """Lock a store for this process and return its counts; if there is none, make it.

    write: writes the files of the store into a directory, and returns its counts.
    """
    info = use_store(place)
    if info is None:
        with os_errors_as_polyhead_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            with making(place, notice):
                info = use_store(place)  # of another process, after which this one waited
                if info is None:
                    _make(place, write)
                    info = use_store(place)
    if info is None:
        raise PolyheadError(f"{place} was removed while it was made; start again", "store_removed")
    return info


def _make(place: Path, write: Callable[[Path], dict[str, Any]]) -> None:
    draft = place.with_name(f"{place.name}.part")
    remove(draft)
    draft.mkdir()
    try:
        info = write(draft)
        for path in draft.glob("*.bin"):
            write_block_sums(path)
        write_text(draft / INFO, json.dumps(info, ensure_ascii=False))
        (draft / LOCK).touch()
        seal(draft)
        rename(draft, place)
        sync(place.parent)
    finally:
        remove(draft)


@contextmanager
def making(place: Path, notice: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process makes this store, and keep others from it."""
    path, has_waited = place.with_name(f"{place.name}.making"), False
    while True:
        is_removed = True
        with path.open("a+") as file:
            if not lock(file):
                if not has_waited:
                    notice(f"another process is encoding the same text; waiting for {place}")
                has_waited = True
                time.sleep(WAIT)
                continue
            with suppress(OSError):
                is_removed = not os.path.samestat(os.fstat(file.fileno()), path.stat())
            if is_removed:  # by the process that had the lock
                continue
            try:
                yield
            finally:
                remove(path)
            return


def _remove_store(place: Path) -> bool:
    """Remove a store unless a process uses it."""
    if place in _HELD:
        return False
    with suppress(OSError), (place / LOCK).open("a+") as file:
        if not lock(file):
            return False
    draft = draft_path(place, place.name)
    with suppress(OSError):
        rename(place, draft)  # half a store must not look whole
    remove(draft)
    return not place.exists()


def list_stores() -> list[CacheEntry]:
    """Return all stores, the last used first."""
    entries = []
    for path in folder().glob("*/" + INFO):
        place = path.parent
        with suppress(OSError, ValueError, KeyError, TypeError):
            info = json.loads(path.read_text(encoding="utf-8"))
            in_use = place in _HELD  # opening and closing its lock would unlock it
            if not in_use:
                with (place / LOCK).open("a+") as file:
                    in_use = not lock(file)
            n_bytes = sum(file.stat().st_size for file in place.iterdir())
            counts = int(info["n_examples"]), int(info["n_tokens"]), n_bytes
            last_use = (place / LOCK).stat().st_mtime
            text = info.get("contents") or f"{counts[0]:,} examples, {counts[1]:,} tokens"
            entries.append(CacheEntry(place.name, info["files"], *counts, last_use, in_use, text))
    return sorted(entries, key=lambda entry: -entry.last_use)


def remove_damaged() -> list[str]:
    """Read all stores, and remove those with a wrong checksum; return a message for each."""
    problems = []
    for entry in list_stores():
        place = folder() / entry.key
        try:
            verify(place, skip=[LOCK])  # reading `lock` would unlock it
        except CheckpointError as error:
            state = "not deleted"
            if not _unreadable(error):
                state = "deleted" if _remove_store(place) else "in use, and not deleted"
            problems.append(f"{error} ({state})")
    return problems


def prune(older_than: float = 0.0) -> list[CacheEntry]:
    """Remove the stores that have not been used for so many seconds; return them."""
    removed = []
    latest = time.time() - older_than
    for entry in list_stores():
        if entry.last_use <= latest and not entry.in_use and _remove_store(folder() / entry.key):
            removed.append(entry)
    for path in (*folder().glob("*.json"), *folder().glob("*.part")):
        with suppress(OSError):
            making = path.with_suffix(".making")
            if path.stat().st_mtime <= latest and not making.exists():
                remove(path)
    return removed
