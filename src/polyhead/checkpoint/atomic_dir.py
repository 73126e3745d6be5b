"""Folders that are complete or absent: how every checkpoint is written and found again.

    .tmp-<process>-…/  files … → manifest.json with their sha256 → fsync → rename to its final name

A crash at any moment leaves the older folders as they were, and at most a temporary one beside
them, which the next run removes. A folder whose manifest does not verify is never used.
"""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polyhead.errors import CheckpointError, PolyheadError

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**20
TEMPORARY = ".tmp-"
DRAFT = re.compile(re.escape(TEMPORARY) + r"\d+-.+")
STEP = re.compile(r"step-(\d{8,18})")
NAME = re.compile(r"[\w-][\w.-]{0,99}(/[\w-][\w.-]{0,99})?", re.ASCII)  # of a file in a manifest
AT_WORKING_FOLDER, EXCHANGE = -100, 2  # Linux's AT_FDCWD and RENAME_EXCHANGE


@contextmanager
def atomic_dir(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill; when the block ends well it becomes `folder`, all at once."""
    draft = _draft(folder, secrets.token_hex(4))
    with os_errors_as_polyhead_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        try:
            yield draft
            seal(draft)
            _put(draft, folder)
            sync(folder.parent)
        finally:
            remove(draft)  # what came to nothing, or what was replaced


@contextmanager
def os_errors_as_polyhead_errors(path: Path) -> Iterator[None]:
    """What the machine refuses while we write is an error of one line, not a traceback."""
    try:
        yield
    except OSError as error:
        raise PolyheadError(
            f"cannot write {path}: {error.strerror or error}; what was saved before is intact"
        ) from error


def _draft(path: Path, what: str) -> Path:
    return path.with_name(f"{TEMPORARY}{os.getpid()}-{what}")


def _put(draft: Path, folder: Path) -> None:
    """Give a draft its final name. What has that name now is exchanged for it in one step."""
    if not os.path.lexists(folder):
        draft.rename(folder)
    elif not _exchange(draft, folder):
        old = draft.with_name(draft.name + "-old")
        folder.rename(old)
        try:
            draft.rename(folder)
        except BaseException:  # also a second Ctrl-C
            old.rename(folder)
            raise
        remove(old)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names at once; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    names = (os.fsencode(one), os.fsencode(other))
    result = rename(AT_WORKING_FOLDER, names[0], AT_WORKING_FOLDER, names[1], EXCHANGE)
    return int(result) == 0


def seal(folder: Path) -> None:
    """Write down the sha256 of every file, and wait until the disk has everything."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {path.relative_to(folder).as_posix(): _sha256(path) for path in files}
    manifest = folder / MANIFEST
    manifest.write_text(_manifest(sums), encoding="utf-8")
    mode = manifest.stat().st_mode  # as the user's umask wants it; safetensors locks others out
    for path in [*files, manifest]:
        path.chmod(mode)
        sync(path)
    for path in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        sync(path)


def _manifest(sums: dict[str, str]) -> str:
    return json.dumps(sums, indent=1) + "\n"


def verify(folder: Path) -> dict[str, str]:
    """Every file is there and is what it was, or a CheckpointError says which is not.

    The sums of all files are returned: what is not among them was not checked. Files outside the
    folder are never touched, whatever the manifest or a symbolic link says.
    """
    sums = _read_manifest(folder)
    for name, expected in sums.items():
        if not NAME.fullmatch(name):
            raise CheckpointError(f"{folder}: {MANIFEST} names {name[:80]!r}, which no model has")
        try:
            complaint = _complaint(folder / name, folder, expected)
        except OSError as error:
            complaint = f"cannot be read: {error.strerror}"
        if complaint:
            raise CheckpointError(f"{folder}: {name} {complaint}")
    return sums


def _complaint(path: Path, folder: Path, expected: str) -> str | None:
    """What is wrong with a file, as the end of a sentence."""
    if path.is_symlink() or (path.parent != folder and path.parent.is_symlink()):
        return "is a link to another place; copy the file itself"
    if not path.is_file():
        return "is missing; the folder was not copied as a whole"
    return None if _sha256(path) == expected else "is damaged: its checksum is not the saved one"


def _read_manifest(folder: Path) -> dict[str, str]:
    path = folder / MANIFEST
    try:
        if path.is_symlink() or path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ValueError
        text = path.read_text(encoding="utf-8")
        sums = json.loads(text)
        if not isinstance(sums, dict) or not all(isinstance(s, str) for s in sums.values()):
            raise ValueError
        if _manifest(sums) != text:  # so that not even a changed blank is overlooked
            raise ValueError
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is not a checkpoint: it has no {MANIFEST}") from None
    except (OSError, ValueError, RecursionError):
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged") from None
    return sums


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """All checkpoints below a folder, oldest first, verified or not."""
    if not folder.is_dir():
        return []
    found = ((STEP.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def checkpoint_path(folder: Path, step: int) -> Path:
    """The name of a checkpoint."""
    return folder / f"step-{step:08d}"


def step_of(checkpoint: Path) -> int:
    """The step in a checkpoint's name; the inverse of `checkpoint_path`."""
    return int(checkpoint.name.removeprefix("step-"))


def newest_checkpoint(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that verifies, and a line about each newer one that does not."""
    complaints = []
    for _, path in reversed(list_checkpoints(folder)):
        try:
            verify(path)
        except CheckpointError as error:
            complaints.append(f"{error}; going back to an older checkpoint")
            continue
        return path, complaints
    return None, complaints


def remove_old_checkpoints(folder: Path, current: Path, *, keep: int, spare: Path | None) -> None:
    """Keep `current`, the newest before it up to `keep` in all, and `spare`; remove the rest.

    What is newer than `current` was damaged, or left behind by a roll-back: it will be written
    again. Without this it would count among the newest and push the sound ones out.
    """
    found = list_checkpoints(folder)
    until_now = [path for step, path in found if step <= step_of(current)]
    for _, path in found:
        if path not in until_now[-keep:] and path != spare:
            dying = _draft(path, path.name)  # half a checkpoint must not have the name of one
            with contextlib.suppress(OSError):
                path.rename(dying)
            remove(dying)
    remove_drafts(folder)


def remove_drafts(folder: Path) -> None:
    """Remove what processes that are no more have left half-written."""
    for draft in folder.glob(f"{TEMPORARY}*"):
        if DRAFT.fullmatch(draft.name):
            remove(draft)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, as far as one may."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def link(path: Path, to: Path) -> None:
    """Make `path` a relative symbolic link to a neighbouring folder, replacing it at once."""
    with os_errors_as_polyhead_errors(path):
        draft = _draft(path, path.name)
        draft.unlink(missing_ok=True)
        draft.symlink_to(os.path.relpath(to, path.parent), target_is_directory=True)
        draft.replace(path)


def write_text(path: Path, text: str) -> None:
    """Replace a small file at once."""
    with os_errors_as_polyhead_errors(path):
        draft = _draft(path, path.name)
        draft.write_text(text, encoding="utf-8")
        sync(draft)
        draft.replace(path)
        sync(path.parent)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Wait until the disk has it; folders too, for their names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
