"""Keys of the cache, and checksums of files, which are computed once for each state of a file."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from polyhead.atomic_file import os_errors_as_polyhead_errors, write_text
from polyhead.data.corpus_cache import folder
from polyhead.data.images.folders import files_in
from polyhead.errors import DataError


def digest(value: object) -> str:
    """Return a key for a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def fingerprint(lines: Iterable[str]) -> str:
    """Return the sha256 of all lines."""
    total = hashlib.sha256()
    for line in lines:
        total.update(line.encode("utf-8") + b"\n")
    return total.hexdigest()


def write_facts(path: Path, values: dict[str, Any]) -> None:
    """Write values that JSON can hold, with their checksum."""
    write_text(path, json.dumps({"sum": digest(values), "values": values}, ensure_ascii=False))


def read_facts(path: Path) -> dict[str, Any] | None:
    """Return the values of a file, which counts as used now; None if it is missing or damaged."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        os.utime(path)
        return dict(saved["values"]) if saved["sum"] == digest(saved["values"]) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _stamp(path: Path) -> list[int]:
    """Return numbers of a file that change with its contents, also where tools keep its time."""
    state = path.lstat()
    return [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]


def file_sums(paths: Sequence[Path]) -> list[str]:
    """Return the sha256 of files, which are read only if they changed.

    That of a directory is the sha256 of the names, sizes, times of change and inodes of its files.
    """
    index = folder() / "files.json"
    known = read_facts(index) or {}
    sums, is_new = [], False
    for path in paths:
        if path.is_dir():
            total = hashlib.sha256()
            for inner in files_in(path):
                total.update(f"{inner.relative_to(path).parts!r} {_stamp(inner)}\n".encode())
            sums.append(total.hexdigest())
            continue
        path = path.resolve()
        entry, stamp = known.get(str(path)), _stamp(path)
        if not (isinstance(entry, list) and entry[1:] == stamp):
            try:
                with path.open("rb") as file:
                    entry = [hashlib.file_digest(file, "sha256").hexdigest(), *stamp]
            except OSError as error:
                message = f"{path}: cannot be opened ({error.strerror})"
                raise DataError(message, "cannot_read") from None
            known[str(path)], is_new = entry, True
        sums.append(str(entry[0]))
    if is_new:
        with os_errors_as_polyhead_errors(index):
            index.parent.mkdir(parents=True, exist_ok=True)
        write_facts(index, known)
    return sums
