"""Directories that are complete or absent: how checkpoints are written, found and removed.

    .tmp-<process>-…/  files … → manifest.json with their sha256 → fsync → rename to its final name

A crash at any moment leaves older directories unchanged and at most a temporary one beside them,
which the next run removes. A directory that does not match its manifest is never used.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from polyhead.atomic_file import (
    TEMPORARY,
    WINDOWS,
    draft_path,
    os_errors_as_polyhead_errors,
    remove,
    rename,
    sync,
)
from polyhead.errors import CheckpointError

CHECKPOINTS, HELD_OUT = "checkpoints", "held-out.jsonl"  # in the directory of a run
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**20
MAX_LINK_BYTES = 256
DRAFT = re.compile(re.escape(TEMPORARY) + r"\d+-.+")
STEP = re.compile(r"step-(\d{8,18})")
NAME = re.compile(r"[\w-][\w.-]{0,99}(/[\w-][\w.-]{0,99})?", re.ASCII)  # of a file in a manifest
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux constants of renameat2


@contextmanager
def atomic_dir(directory: Path) -> Iterator[Path]:
    """Yield a temporary directory, which replaces `directory` at once if the block succeeds."""
    draft = draft_path(directory, secrets.token_hex(4))
    with os_errors_as_polyhead_errors(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        try:
            yield draft
            seal(draft)
            _replace(draft, directory)
            sync(directory.parent)
        finally:
            remove(draft)  # after a failure, or what was replaced


def _replace(draft: Path, directory: Path) -> None:
    """Rename a draft to its final name, exchanging it atomically with an existing directory."""
    if not os.path.lexists(directory):
        rename(draft, directory)
    elif not _exchange(draft, directory):
        old = draft.with_name(draft.name + "-old")
        rename(directory, old)
        try:
            rename(draft, directory)
        except BaseException:  # also a second Ctrl-C
            rename(old, directory)
            raise
        remove(old)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names atomically; return False where the system cannot."""
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # macOS, others, Windows
        return False
    names = (os.fsencode(first), os.fsencode(second))
    return int(exchange(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)) == 0


def seal(directory: Path) -> None:
    """Write the manifest with the sha256 of every file, and flush everything to disk."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    sums = {path.relative_to(directory).as_posix(): _sha256(path) for path in files}
    manifest = directory / MANIFEST
    manifest.write_text(_manifest(sums), encoding="utf-8")
    mode = manifest.stat().st_mode  # by the user's umask; safetensors ignores it
    for path in [*files, manifest]:
        path.chmod(mode)
        sync(path)
    for path in [directory, *(p for p in directory.rglob("*") if p.is_dir())]:
        sync(path)


def _manifest(sums: dict[str, str]) -> str:
    return json.dumps(sums, indent=1) + "\n"


def verify(directory: Path, *, skip: Collection[str] = ()) -> dict[str, str]:
    """Check every file against the manifest and return all checksums.

    skip: names of files that are not read, because they are not used.

    Files outside the directory are never read, whatever the manifest or a symbolic link says.
    """
    sums = read_manifest(directory)
    for name, expected in sums.items():
        if not NAME.fullmatch(name):
            raise CheckpointError(
                f"{directory}: {MANIFEST} contains the invalid name {name[:80]!r}", "damaged"
            )
        path = directory / name
        try:
            if path.is_symlink() or (path.parent != directory and path.parent.is_symlink()):
                problem = "is a symbolic link; copy the file itself"
            elif not path.is_file():
                problem = "is missing; the directory was not copied completely"
            elif name not in skip and _sha256(path) != expected:
                problem = "is damaged: wrong checksum"
            else:
                continue
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            raise CheckpointError(f"{directory}: {name} {problem}", "damaged") from error
        raise CheckpointError(f"{directory}: {name} {problem}", "damaged")
    return sums


def read_manifest(directory: Path) -> dict[str, str]:
    """Return the checksums of a manifest, which are not compared with the files."""
    path = directory / MANIFEST
    try:
        if path.is_symlink() or path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ValueError
        text = path.read_text(encoding="utf-8")
        sums = json.loads(text)
        if not isinstance(sums, dict) or not all(isinstance(s, str) for s in sums.values()):
            raise ValueError
        if _manifest(sums) != text:  # detects any change, also of white space
            raise ValueError
    except FileNotFoundError:
        raise CheckpointError(
            f"{directory} is not a checkpoint: it has no {MANIFEST}", "no_manifest"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{directory}: {MANIFEST} is damaged", "damaged") from error
    return sums


def list_checkpoints(directory: Path) -> list[tuple[int, Path]]:
    """Return steps and paths of all checkpoints in a directory, oldest first, unverified."""
    if not directory.is_dir():
        return []
    matches = ((STEP.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def checkpoint_path(directory: Path, step: int) -> Path:
    """Return the path of the checkpoint of a step."""
    return directory / f"step-{step:08d}"


def newest_checkpoint(directory: Path) -> tuple[Path | None, list[str]]:
    """Return the newest checkpoint that verifies, and a message about each newer one."""
    problems = []
    for _, path in reversed(list_checkpoints(directory)):
        try:
            verify(path)
        except CheckpointError as error:
            problems.append(f"{error}; using an older checkpoint")
            continue
        return path, problems
    return None, problems


def remove_old_checkpoints(
    directory: Path, current: Path, *, keep: int, spare: Path | None
) -> None:
    """Keep `current`, the newest before it up to `keep` in all, and `spare`; remove the others."""
    # Those newer than `current` are damaged or left by a roll-back; they would displace valid ones.
    paths = [path for _, path in list_checkpoints(directory)]
    valid = paths[: paths.index(current) + 1]
    for path in paths:
        if path not in valid[-keep:] and path != spare:
            draft = draft_path(path, path.name)  # half a checkpoint must not look whole
            with contextlib.suppress(OSError):
                path.rename(draft)
            remove(draft)
    remove_drafts(directory)


def remove_drafts(directory: Path) -> None:
    """Remove the temporary files and directories of processes that were killed."""
    for draft in directory.glob(f"{TEMPORARY}*"):
        if DRAFT.fullmatch(draft.name):
            remove(draft)


def link(path: Path, to: Path) -> None:
    """Make `path` a relative symbolic link, replacing an existing one atomically.

    Where that is impossible, `path` becomes a file with the name, which `follow` reads: Windows
    cannot replace a link to a directory, and some file systems have no links.
    """
    with os_errors_as_polyhead_errors(path):
        draft, name = draft_path(path, path.name), Path(os.path.relpath(to, path.parent))
        draft.unlink(missing_ok=True)
        try:
            if WINDOWS:
                raise NotImplementedError
            draft.symlink_to(name, target_is_directory=True)
        except (OSError, NotImplementedError):
            draft.write_text(name.as_posix() + "\n", encoding="utf-8")
            sync(draft)
            if WINDOWS and path.is_symlink():  # of a run that was started on another system
                path.unlink()
        rename(draft, path)


def follow(path: Path) -> Path:
    """Return the directory whose name is in a file made by `link`, or the path itself."""
    with contextlib.suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size < MAX_LINK_BYTES:
            name = path.read_text(encoding="utf-8").strip()
            if NAME.fullmatch(name) and (path.parent / name).is_dir():
                return path.parent / name
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
