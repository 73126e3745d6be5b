"""Files are replaced whole or not at all."""

import errno
import os
import stat
import subprocess
import sys

import pytest
from expected_errors import raises

from polyhead.atomic_file import TEMPORARY, lock, write_text
from polyhead.errors import PolyheadError


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_file_is_replaced_atomically(tmp_path, monkeypatch, failing):
    path = tmp_path / ("이름" * 42)  # 252 bytes of at most 255
    write_text(path, "하나")
    path.chmod(0o600)
    write_text(path, "둘")
    assert path.read_text(encoding="utf-8") == "둘"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, failing, full)
    with raises(PolyheadError, "io", f"{path}: No space left on device"):
        write_text(path, "셋")
    assert path.read_text(encoding="utf-8") == "둘"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("file")
    write_text(link, "a")
    assert (link.is_symlink(), (tmp_path / "file").read_text()) == (True, "a")

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "b")
    assert os.read(reader, 9) == b"b"
    os.close(reader)
    assert pipe.is_fifo()
    with raises(PolyheadError, "io", "Is a directory"):
        write_text(tmp_path, "c")
    assert not list(tmp_path.glob(f"{TEMPORARY}*"))


LOCK = "import sys; from polyhead.atomic_file import lock; print(lock(open(sys.argv[1], 'a+')))"


def test_a_lock_holds_when_its_process_opens_and_closes_the_file_again(tmp_path):
    path = tmp_path / "lock"

    def elsewhere():
        words = [sys.executable, "-c", LOCK, str(path)]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    with path.open("a+") as file:
        assert lock(file)
        for shared in (False, True):
            with path.open("r+") as again:
                assert not lock(again, shared=shared)
        assert elsewhere() == "False"
    assert elsewhere() == "True"
    with path.open("r") as file, path.open("r") as again:
        assert lock(file, shared=True)
        assert lock(again, shared=True)
        assert not lock(again)
