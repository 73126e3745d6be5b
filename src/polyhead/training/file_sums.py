"""Keys of the cache: checksums of files and directories, computed once for each state of them."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from polyhead.atomic_file import os_errors_as_polyhead_errors, write_text
from polyhead.data.images.folders import files_in
from polyhead.errors import DataError
from polyhead.training.corpus_cache import folder


def digest(value: object) -> str:
    """Return a key for a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def file_sums(paths: Sequence[Path]) -> list[str]:
    """Return the sha256 of files and directories, which are read only if they changed."""
    index = folder() / "files.json"
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        known = dict(json.loads(index.read_text(encoding="utf-8")))
    sums, is_new = [], False
    for path in paths:
        name, stamp = str(path.resolve()), _stamp(path)
        entry = known.get(name)
        if not (isinstance(entry, list) and entry[1:] == stamp):
            entry = [_sum(path), *stamp]
            known[name], is_new = entry, True
        sums.append(str(entry[0]))
    if is_new:
        with os_errors_as_polyhead_errors(index):
            index.parent.mkdir(parents=True, exist_ok=True)
        write_text(index, json.dumps(known))
    return sums


def _stamp(path: Path) -> list[Any]:
    """Return size and time of change of a file; of a directory, those of all files in it."""
    if not path.is_dir():
        state = path.stat()
        return [state.st_size, state.st_mtime_ns]
    states = ((file, file.lstat()) for file in files_in(path))
    lines = (f"{file.relative_to(path)!r} {s.st_size} {s.st_mtime_ns}\n" for file, s in states)
    return [_digest_of(lines), 0]


def _sum(path: Path) -> str:
    """Return the sha256 of a file, or of the names and contents of all files in a directory."""
    if path.is_dir():
        return _digest_of(f"{f.relative_to(path)!r} {_sum_or_none(f)}\n" for f in files_in(path))
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror})", "cannot_read") from None


def _sum_or_none(path: Path) -> str | None:
    """Return the sha256 of a file in a directory; None if reading reports it as bad."""
    try:
        return _sum(path) if path.is_file() else None
    except (DataError, OSError):
        return None


def _digest_of(lines: Iterable[str]) -> str:
    total = hashlib.sha256()
    for line in lines:
        total.update(line.encode())
    return total.hexdigest()
