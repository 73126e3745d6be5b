"""Files that are complete or absent: written under a temporary name, synced, then renamed."""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from weakref import WeakSet

from polyhead.errors import PolyheadError

try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".tmp-"
MAX_SUFFIX = 60  # characters; the whole name must stay below 256 bytes
WINDOWS = os.name == "nt"
LOCKED_BYTE = 2**30  # on Windows, where others cannot read what is locked
RENAME_SECONDS = 2.0  # on Windows, where a file that is open elsewhere cannot be replaced
_LOCKED = WeakSet[IO[str]]()


@contextmanager
def os_errors_as_polyhead_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while writing into a PolyheadError with a one-line message."""
    try:
        yield
    except OSError as error:
        raise PolyheadError(
            f"cannot write {path}: {error.strerror or error}; earlier files are intact", "io"
        ) from error


def draft_path(path: Path, suffix: str) -> Path:
    """Return a temporary name beside a path, which no other process uses."""
    return path.with_name(f"{TEMPORARY}{os.getpid()}-{suffix[-MAX_SUFFIX:]}")


def write_text(path: Path, text: str) -> None:
    """Replace a file by this text (UTF-8) atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically; a link stays one, and a device or pipe is written to."""
    with os_errors_as_polyhead_errors(path):
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        target = Path(os.path.realpath(path))
        draft = draft_path(target, target.name)
        try:
            draft.write_bytes(content)
            if target.exists():
                shutil.copymode(target, draft)
            sync(draft)
            rename(draft, target)
        except BaseException:  # also Ctrl-C
            remove(draft)
            raise
        sync(target.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a directory, ignoring errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def rename(path: Path, to: Path) -> None:
    """Rename a file, replacing another one, or a directory; on Windows wait for its readers."""
    latest = time.monotonic() + RENAME_SECONDS
    while True:
        try:
            os.replace(path, to)
            return
        except PermissionError:
            if not WINDOWS or time.monotonic() > latest:
                raise
        time.sleep(0.02)


def lock(file: IO[str], *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False if it is locked elsewhere.

    A lock belongs to the open file: this process, too, is refused if it opens the file again, and
    closing the second file leaves the first one locked.
    shared: others may have shared locks too (on Windows the file is then not locked).
    """
    descriptor = file.fileno()
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            _LOCKED.add(file)
        elif not shared:
            os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True


def _close_locked() -> None:
    """Close locked files in a forked child: it would keep the lock of a parent that is killed."""
    for file in list(_LOCKED):
        file.close()


if not WINDOWS:
    os.register_at_fork(after_in_child=_close_locked)


def sync(path: Path) -> None:
    """Flush a file or a directory to disk."""
    if WINDOWS and path.is_dir():  # cannot be opened there
        return
    descriptor = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
