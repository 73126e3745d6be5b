"""The child process: its limits, its end, and that it comes back."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from polyhead import sandbox as module
from polyhead.sandbox import Limits, Request, Sandbox


class Refused(Exception):
    """The caller's error."""


@pytest.fixture
def sandbox(monkeypatch):
    support = str(Path(__file__).parent / "support")
    monkeypatch.setattr(sys, "path", [*sys.path, support])
    box = Sandbox("sandboxed", Refused, Limits(60, 0.3, 2, 5))
    yield box
    box.close()


def pid_of(sandbox):
    return sandbox.call("echo")[0][-2]


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_values_and_contents_pass_unchanged(sandbox):
    value, contents = sandbox.call(
        "echo", {"가": [1.5, None, "\ud800"]}, contents=[b"", b"\x00" * 200_000]
    )
    assert value[0] == {"가": [1.5, None, "\ud800"]}
    assert contents == [b"", b"\x00" * 200_000]
    assert value[-1] is False  # torch is not imported
    assert value[-2] != os.getpid()


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        ("fill_memory", [100], "60 MB"),
        ("spin", [], "processor time"),
        ("abort", [], "SIGABRT"),
        ("panic", [], "BaseException: a panic of two lines"),
        ("sleep", [], "took too long"),
    ],
)  # fmt: skip
def test_a_request_beyond_its_limits_fails_and_the_next_gets_a_new_child(
    sandbox, monkeypatch, function, arguments, reason
):
    if function == "sleep":
        monkeypatch.setattr(module, "PATIENCE", 1)
    first = pid_of(sandbox)
    with pytest.raises(Refused, match=reason) as error:
        sandbox.call(function, *arguments)
    assert "\n" not in str(error.value)
    assert not runs(first)  # not even as a zombie
    assert pid_of(sandbox) != first


def test_limits_grow_with_the_contents(sandbox):
    with pytest.raises(Refused, match="memory"):
        sandbox.call("fill_memory", 80)
    value, _ = sandbox.call("fill_memory", 80, contents=[bytes(15 * 2**20)])
    assert value == 80 * 2**20


def test_files_cannot_be_written(sandbox, tmp_path):
    with pytest.raises(Refused, match="OSError"):
        sandbox.call("write", str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b""


def test_a_refusal_keeps_the_child(sandbox):
    first = pid_of(sandbox)
    with pytest.raises(Refused, match="no reason"):
        sandbox.call("refuse")
    assert pid_of(sandbox) == first


def test_every_child_begins_with_the_setup(sandbox):
    box = Sandbox("sandboxed", Refused, sandbox.limits, Request("echo", ["ready"]))
    first = box.start()
    assert first[0] == "ready"
    with pytest.raises(Refused):
        box.call("abort")
    assert box.start()[1] not in (first[1], os.getpid())
    broken = Sandbox("sandboxed", Refused, sandbox.limits, Request("refuse"))
    for _ in range(2):
        with pytest.raises(Refused, match="no reason"):
            broken.call("echo")


def test_threads_share_a_child_and_a_fork_gets_its_own(sandbox):
    with ThreadPoolExecutor(8) as pool:
        values = [value for value, _ in pool.map(lambda n: sandbox.call("echo", n), range(100))]
    assert [value[0] for value in values] == list(range(100))
    (pid,) = {value[1] for value in values}
    inbox, outbox = os.pipe()
    forked = os.fork()
    if not forked:
        os.write(outbox, str(pid_of(sandbox)).encode())
        os._exit(0)
    os.waitpid(forked, 0)
    assert int(os.read(inbox, 99)) != pid
    assert pid_of(sandbox) == pid
    os.close(inbox), os.close(outbox)


def test_no_child_is_left_when_its_owner_is_gone(sandbox):
    pid = pid_of(sandbox)
    sandbox.close()
    assert not runs(pid)
    box = Sandbox("sandboxed", Refused, sandbox.limits)
    pid = pid_of(box)
    del box
    assert not runs(pid)
    script = (
        f"import sys, os; sys.path.append({sys.path[-1]!r}); from polyhead.sandbox import *\n"
        "box = Sandbox('sandboxed', ValueError, Limits(60, 1)); print(box.call('echo')[0][-2])\n"
        "sys.stdout.flush(); os.kill(os.getpid(), 9)"
    )
    process = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    latest = time.monotonic() + 20
    while runs(int(process.stdout)) and time.monotonic() < latest:  # it reads the end of its pipe
        time.sleep(0.01)
    assert not runs(int(process.stdout))


def test_a_child_sees_no_variable_of_its_parent(sandbox, monkeypatch):
    monkeypatch.setenv("API_KEY", "secret")
    names, _ = sandbox.call("variables")
    assert not {"API_KEY", "HOME", "PATH"} & set(names)
    assert set(names) >= module.ENVIRONMENT.keys()
