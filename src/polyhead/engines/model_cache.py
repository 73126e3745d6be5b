"""Converted models, kept beside the model that they were made from.

    MODEL/.engines/ctranslate2-float32/       files of the engine, and their manifest
    MODEL/.engines/ctranslate2-float32.mac    proof that this user converted them

An engine's native code trusts its files, so files of others must never reach it. The proof is a
message authentication code of both manifests under a key that only this user has
(~/.cache/polyhead/engines.key): a directory that came with a downloaded model has none, and is
converted again. Where nothing can be written, a model is converted for one process.
"""

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from polyhead.atomic_file import write_text
from polyhead.checkpoint.atomic_dir import MANIFEST, atomic_dir, verify
from polyhead.data.locate import home
from polyhead.errors import CheckpointError

ENGINES, KEY = ".engines", "engines.key"
KEY_BYTES = 32
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []  # removed when the process ends


def converted_model(directory: Path, name: str, convert: Callable[[Path], None]) -> Path:
    """Return the converted form of a model, which is made if there is none.

    directory: a model directory. name: of the engine with everything the result depends on.
    convert: writes the files of the engine into an empty directory.
    """
    key = _user_key()
    if key is None or not os.access(directory, os.W_OK):
        folder = tempfile.TemporaryDirectory(prefix="polyhead-")
        _TEMPORARY.append(folder)
        verify(directory)
        convert(Path(folder.name))
        return Path(folder.name)
    place = directory / ENGINES / name
    proof = place.with_name(f"{name}.mac")
    with suppress(CheckpointError, OSError):
        verify(place)
        expected = _proof(key, directory, place)
        if hmac.compare_digest(proof.read_text(encoding="ascii"), expected):
            return place
    verify(directory)
    with atomic_dir(place) as draft:
        convert(draft)
    write_text(proof, _proof(key, directory, place))
    return place


def _proof(key: bytes, directory: Path, place: Path) -> str:
    """Return the code of a converted model: both manifests, and its name, under the key."""
    manifests = [(folder / MANIFEST).read_bytes() for folder in (directory, place)]
    sums = [hashlib.sha256(content).digest() for content in (*manifests, place.name.encode())]
    return hmac.new(key, b"".join(sums), "sha256").hexdigest()


def _user_key() -> bytes | None:
    """Return the key of this user, created on first use; None where it cannot be kept."""
    path = home() / KEY
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):  # another process was first
            opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(opened, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
        key = path.read_bytes()
        return key if len(key) == KEY_BYTES else None  # half written: not used this time
    return None
