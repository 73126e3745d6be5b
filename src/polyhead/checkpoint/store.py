"""Folders that are complete or absent: how every checkpoint is written and found again.

    .tmp-<process>/  files … → manifest.json with their sha256 → fsync → rename to its final name

A crash at any moment leaves the older folders as they were, and at most a temporary one beside them,
which the next run removes. A folder whose manifest does not verify is never used.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polyhead.errors import CheckpointError, PolyheadError

MANIFEST = "manifest.json"
TEMPORARY = ".tmp-"
STEP = re.compile(r"step-(\d{8,})")


@contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill; when the block ends well it becomes `folder`, all at once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{os.getpid()}-", dir=folder.parent))
    try:
        yield draft
        seal(draft)
        if folder.exists():
            old = draft.with_name(draft.name + "-old")
            folder.rename(old)
            draft.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            draft.rename(folder)
        _sync(folder.parent)
    except OSError as error:
        raise PolyheadError(
            f"cannot write {folder}: {error.strerror or error}; what was saved before is intact"
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def seal(folder: Path) -> None:
    """Write down the sha256 of every file, and wait until the disk has everything."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {str(path.relative_to(folder)): _sha256(path) for path in files}
    (folder / MANIFEST).write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")
    for path in [*files, folder / MANIFEST]:
        _sync(path)
    for path in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        _sync(path)


def verify(folder: Path) -> None:
    """Every file is there and is what it was, or a CheckpointError says which is not."""
    try:
        sums = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} is not a checkpoint: it has no {MANIFEST}") from None
    except (OSError, ValueError):
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged") from None
    if not isinstance(sums, dict):
        raise CheckpointError(f"{folder}: {MANIFEST} is damaged")
    for name, expected in sums.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not path.is_file():
            raise CheckpointError(f"{folder}: {name} is missing; it was not copied as a whole")
        if _sha256(path) != expected:
            raise CheckpointError(f"{folder}: {name} is damaged: its checksum is not the saved one")


def steps(folder: Path) -> list[tuple[int, Path]]:
    """All checkpoints below a folder, oldest first, verified or not."""
    if not folder.is_dir():
        return []
    found = ((STEP.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def step_folder(folder: Path, step: int) -> Path:
    """The name of a checkpoint."""
    return folder / f"step-{step:08d}"


def newest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that verifies, and a line about each newer one that does not."""
    complaints = []
    for _, path in reversed(steps(folder)):
        try:
            verify(path)
        except CheckpointError as error:
            complaints.append(f"{error}; going back to an older checkpoint")
            continue
        return path, complaints
    return None, complaints


def tidy(folder: Path, keep: int, spare: Path | None) -> None:
    """Remove all but the newest `keep` checkpoints and `spare`, and what a crash left behind."""
    for _, path in steps(folder)[:-keep]:
        if spare is None or path.name != spare.name:
            shutil.rmtree(path, ignore_errors=True)
    remove_drafts(folder)


def remove_drafts(folder: Path) -> None:
    """Remove temporary folders of runs that are no more."""
    for draft in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(draft, ignore_errors=True)


def point(link: Path, to: Path) -> None:
    """Make `link` a relative symbolic link to a neighbouring folder, replacing it at once."""
    draft = link.with_name(f"{TEMPORARY}{os.getpid()}-{link.name}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(os.path.relpath(to, link.parent), target_is_directory=True)
    draft.replace(link)


def write_text(path: Path, text: str) -> None:
    """Replace a small file at once."""
    draft = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    draft.write_text(text, encoding="utf-8")
    _sync(draft)
    draft.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    """Wait until the disk has it; folders too, for their names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
