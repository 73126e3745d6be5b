"""Converted models, kept in the user's cache directory.

    ~/.cache/polyhead/engines/ctranslate2-4.8.1-float32-1f0c…/      files, and their manifest

An engine's native code trusts its files, so files of others must never reach it: nothing is read
from, or written into, the directory of a model. The digits are a hash of the model's manifest and
of Polyhead's version. Where nothing can be written, a model is converted for one process.
"""

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from polyhead import __version__
from polyhead.atomic_file import remove
from polyhead.checkpoint.atomic_dir import atomic_dir, read_manifest, verify
from polyhead.data.locate import home
from polyhead.errors import CheckpointError

UNUSED = 30 * 86_400  # seconds after which a converted model is removed
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def converted_model(directory: Path, name: str, convert: Callable[[Path], None]) -> Path:
    """Return the converted form of a model, which is made if there is none.

    directory: a model directory. name: of the engine with everything the result depends on.
    convert: writes the files of the engine into an empty directory.
    """
    facts = json.dumps([read_manifest(directory), __version__]).encode()
    folder = home() / "engines"
    place = folder / f"{name}-{hashlib.sha256(facts).hexdigest()[:32]}"
    with suppress(CheckpointError, OSError):
        verify(place)
        with suppress(OSError):  # a cache that can only be read
            os.utime(place)
        return place
    verify(directory)
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        temporary = tempfile.TemporaryDirectory(prefix="polyhead-")
        _TEMPORARY.append(temporary)
        convert(Path(temporary.name))
        return Path(temporary.name)
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - UNUSED:
                remove(path)
    with atomic_dir(place) as draft:
        convert(draft)
    return place
