"""Files in an empty working directory."""

from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a file to the working directory, which is empty at first."""
    monkeypatch.chdir(tmp_path)

    def to_file(contents, name="train.ko"):
        Path(name).write_bytes(contents.encode() if isinstance(contents, str) else contents)
        return Path(name)

    return to_file
