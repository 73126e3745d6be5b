"""Keys of the cache, and checksums of files, which are computed once for each state of a file."""

import hashlib
import json
from collections.abc import Sequence
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
    """Return the sha256 of files, which are read only if they changed.

    That of a directory is the sha256 of the names, sizes and times of change of all its files.
    """
    index = folder() / "files.json"
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError, RecursionError):
        known = dict(json.loads(index.read_text(encoding="utf-8")))
    sums, is_new = [], False
    for path in paths:
        if path.is_dir():
            sums.append(_directory_sum(path))
            continue
        name, state = str(path.resolve()), path.stat()
        entry = known.get(name)
        stamp = [state.st_size, state.st_mtime_ns]
        if not (isinstance(entry, list) and entry[1:] == stamp):
            try:
                with path.open("rb") as file:
                    entry = [hashlib.file_digest(file, "sha256").hexdigest(), *stamp]
            except OSError as error:
                message = f"{path}: cannot be opened ({error.strerror})"
                raise DataError(message, "cannot_read") from None
            known[name], is_new = entry, True
        sums.append(str(entry[0]))
    if is_new:
        with os_errors_as_polyhead_errors(index):
            index.parent.mkdir(parents=True, exist_ok=True)
        write_text(index, json.dumps(known))
    return sums


def _directory_sum(folder: Path) -> str:
    total = hashlib.sha256()
    for path in files_in(folder):
        state = path.lstat()
        line = f"{path.relative_to(folder).parts!r} {state.st_size} {state.st_mtime_ns}\n"
        total.update(line.encode())
    return total.hexdigest()
