"""The way from nothing to a ready .venv, without installing anything.

The steps run for real, except for the commands they start. So every machine can be tried on this
one: without pip, without network, with a full disk, interrupted after each step.
"""

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rehearsal import TOOLS, Rehearsal, bootstrap, doctor, finish, machine, make_project, stamp

N_COMMANDS = 7  # venv, ensurepip, pip -V, torch, the lock, polyhead, the probe
NO_NETWORK = "NewConnectionError: Failed to establish a new connection"
NOT_THERE = "ERROR: No matching distribution found for torch==2.13.0+cpu"


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "project")


@pytest.fixture(autouse=True)
def _a_plain_machine(monkeypatch):
    """Linux without a GPU, with room on the disk and no pip lying about, whatever this one is."""
    monkeypatch.setattr(machine, "free_gigabytes", lambda _: 50.0)
    monkeypatch.setattr(machine, "nvidia_gpus", list)
    monkeypatch.setattr(bootstrap.platform, "system", lambda: "Linux")
    monkeypatch.setattr(bootstrap, "bundled_pips", list)


@pytest.fixture
def run_main(monkeypatch, capsys):
    """The exit code and the lines on stderr of a whole set-up."""

    def run(environment):
        monkeypatch.setattr(bootstrap, "Environment", lambda *_: environment)
        monkeypatch.setattr(bootstrap.signal, "signal", lambda *_: None)
        code = bootstrap.main(environment.root)
        for descriptor in environment.held:
            os.close(descriptor)  # as the end of the process does
        out, err = capsys.readouterr()
        assert not out
        return code, err.splitlines()

    return run


def test_from_nothing_torch_comes_first_then_the_lock_then_polyhead(project, run_main):
    environment = Rehearsal(project)
    code, lines = run_main(environment)
    assert code == 0
    assert lines[-1] == "setup: .venv is ready"
    assert "setup: installing torch 2.13.0 (cpu), about 200 MB ..." in lines
    assert len(environment.commands) == N_COMMANDS
    steps = ["-m venv", "-m ensurepip", "torch==", "requirements.lock", "--editable", "json, torch"]
    order = [[step in command for command in environment.commands].index(True) for step in steps]
    assert order == sorted(order)
    assert all(c.startswith(environment.python) for c in environment.commands if "install " in c)
    assert stamp.judge(str(project), "cpu")[0] == stamp.READY


def test_a_ready_environment_is_left_alone(project, run_main):
    finish(project)
    environment = Rehearsal(project)
    assert run_main(environment) == (0, [])
    assert environment.commands == [f"{environment.python} -c "]


@pytest.mark.parametrize("step", range(N_COMMANDS))
def test_interrupted_at_any_step_it_is_half_made_and_made_anew(project, run_main, step):
    code, lines = run_main(Rehearsal(project, interrupted_at=step))
    assert (code, lines[-1]) == (130, "setup: interrupted; `make setup` begins again")
    assert stamp.judge(str(project))[0] == stamp.BROKEN
    (project / ".venv" / "half of a file").touch()
    code, lines = run_main(Rehearsal(project))
    assert (code, lines[0]) == (0, "setup: making .venv anew: it was never finished")
    assert not (project / ".venv" / "half of a file").exists()
    assert stamp.judge(str(project))[0] == stamp.READY


def test_changed_inputs_are_brought_up_to_date_with_the_same_torch(project, run_main):
    finish(project, build="cu130")
    (project / "requirements.lock").write_text("changed")
    (project / ".venv" / "bin" / "mine").touch()
    environment = Rehearsal(project, installed=["2.13.0+cu130", ["nvidia-nccl-cu13"]])
    code, lines = run_main(environment)
    assert code == 0
    assert lines[0].startswith("setup: bringing .venv up to date")
    assert any("torch==2.13.0+cu130" in command for command in environment.commands)
    assert (project / ".venv" / "bin" / "mine").exists()
    assert stamp.judge(str(project), "cu130")[0] == stamp.READY


def test_an_update_that_is_interrupted_leaves_no_stamp(project, run_main):
    finish(project)
    (project / "requirements.lock").write_text("changed")
    assert run_main(Rehearsal(project, interrupted_at=2))[0] == 130
    assert stamp.judge(str(project))[0] == stamp.BROKEN


def test_a_lock_that_changes_during_the_setup_is_not_taken_for_installed(project, run_main):
    environment = Rehearsal(project)
    environment.check = lambda *_: (project / "requirements.lock").write_text("newer")
    assert run_main(environment)[0] == 0
    assert stamp.judge(str(project))[0] == stamp.STALE


# --- what stops it: exit code 3 and one line


def stopped(run_main, environment):
    code, lines = run_main(environment)
    assert code == 3
    assert stamp.judge(environment.root)[0] == stamp.BROKEN
    progress = ("setup: making .venv", "setup: installing", "setup: fetching pip")
    assert all(line.startswith(progress) for line in lines[:-1])
    return lines[-1]


def test_too_little_disk_stops_it_before_anything_is_fetched(project, run_main, monkeypatch):
    monkeypatch.setattr(machine, "free_gigabytes", lambda _: 2.94)
    environment = Rehearsal(project)
    line = stopped(run_main, environment)
    assert line == "setup: 2.9 GB are free on this disk, 3 GB are needed; make room"
    assert environment.commands == []


def test_a_refused_python_stops_it_before_anything_is_written(project, run_main, monkeypatch):
    monkeypatch.setattr(machine, "python_trouble", lambda: "Python 2.0 is too old")
    assert stopped(run_main, Rehearsal(project)) == "setup: Python 2.0 is too old"
    assert not (project / ".venv").exists()


@pytest.mark.parametrize("command", ["torch==", "requirements.lock"])
def test_an_index_that_cannot_be_reached_stops_it(project, run_main, command):
    environment = Rehearsal(project, failures={command: NO_NETWORK})
    line = stopped(run_main, environment)
    assert line.startswith("setup: the package index cannot be reached; connect to the network")
    assert line.endswith("(details: .venv/setup.log)")
    assert sum(command in c for c in environment.commands) == 1, "another try would only wait"


def test_a_torch_that_is_nowhere_is_asked_for_twice_and_names_the_python(project, run_main):
    environment = Rehearsal(project, failures={"torch==": NOT_THERE})
    line = stopped(run_main, environment)
    assert "no torch 2.13.0 (cpu) for Python 3." in line
    assert "download.pytorch.org/whl/cpu has none" in line
    tries = [command for command in environment.commands if "torch==" in command]
    assert ["--extra-index-url" in command for command in tries] == [False, True]


def test_torch_comes_from_its_own_index_when_the_configured_ones_lack_it(project, run_main):
    # the first try ends with --no-deps, the second goes on
    environment = Rehearsal(project, failures={r"\+cpu --no-deps$": NOT_THERE})
    assert run_main(environment)[0] == 0
    tries = [command for command in environment.commands if "torch==" in command]
    assert tries[1].endswith("--extra-index-url https://download.pytorch.org/whl/cpu")


@pytest.mark.parametrize("installed", [["2.13.0", []], ["2.13.0+cpu", ["nvidia-cublas"]]])
def test_a_torch_with_cuda_where_none_belongs_is_removed(project, run_main, installed):
    line = stopped(run_main, Rehearsal(project, installed=installed))
    assert "so .venv was removed" in line
    assert sorted(os.listdir(project / ".venv")) == ["setup.lock", "setup.log"]


def test_a_torch_that_does_not_start_stops_it(project, run_main):
    words = "Traceback (most recent call last):\nImportError: libgomp.so.1: cannot open"
    line = stopped(run_main, Rehearsal(project, failures={"json, torch": words}))
    assert "does not start: ImportError: libgomp.so.1: cannot open" in line


def test_a_wrong_build_stops_it_and_keeps_what_is_there(project, run_main):
    finish(project)
    code, lines = run_main(Rehearsal(project, asked="cuda13"))
    assert code == 3
    assert lines == ["setup: TORCH=cuda13 is no build of torch; give cpu, plain, cu130 or the like"]
    assert stamp.judge(str(project))[0] == stamp.READY


def test_a_folder_that_cannot_be_written_stops_it(project, run_main, monkeypatch):
    def read_only(path, **_):
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(bootstrap.os, "makedirs", read_only)
    line = stopped(run_main, Rehearsal(project))
    assert line.startswith(f"setup: cannot write {project}/.venv (Read-only file system); make")


def test_a_file_in_the_place_of_the_folder_stops_it(project, run_main):
    (project / ".venv").touch()
    code, lines = run_main(Rehearsal(project))
    assert (code, len(lines)) == (3, 1)
    assert "/.venv (File exists)" in lines[0]


# --- pip, when Python comes without


@pytest.mark.parametrize("rung", range(4))
def test_pip_comes_from_the_nearest_place_that_has_it(project, run_main, monkeypatch, rung):
    monkeypatch.setattr(bootstrap, "bundled_pips", lambda: ["/wheels/pip-23.0-py3-none-any.whl"])
    ladder = ["-m ensurepip", "/wheels/pip-23.0", f"{sys.executable} -m pip --python", "uv pip"]
    failures = dict.fromkeys([*ladder[:rung], *["pip --python"] * (rung == 3)], "not here")
    environment = Rehearsal(project, failures=failures)
    assert run_main(environment)[0] == 0
    tried = [any(step in command for command in environment.commands) for step in ladder]
    assert tried == [True] * (rung + 1) + [False] * (3 - rung)


@pytest.mark.parametrize("reachable", [True, False])
def test_the_last_way_to_pip_is_its_archive(project, run_main, monkeypatch, tmp_path, reachable):
    nowhere = dict.fromkeys(["-m ensurepip", "pip --python", "uv pip"], "not here")
    archive = tmp_path / "archive"
    if reachable:
        archive.touch()
    monkeypatch.setattr(bootstrap, "PIP_ARCHIVE", archive.as_uri())
    environment = Rehearsal(project, failures=nowhere)
    if reachable:
        assert run_main(environment)[0] == 0
        assert any("pip.pyz install" in command for command in environment.commands)
    else:
        line = stopped(run_main, environment)
        assert "lacks pip and it cannot be fetched; install it (Debian: apt install" in line


# --- two at once

HOLD = """
import os, sys
sys.path.insert(0, sys.argv[1])
import bootstrap
environment = bootstrap.Environment(sys.argv[2], dict(os.environ), sys.executable)
environment.hold()
print("held", flush=True)
environment.attempt("sh", "-c", "touch started; until [ -e go ]; do sleep 0.05; done")
"""


def start_holder(project):
    """A set-up that holds the folder, with a child at work until a file named `go` appears."""
    command = [sys.executable, "-c", HOLD, str(TOOLS), str(project)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("killed", [False, True])
def test_a_second_setup_waits_for_the_first_even_if_only_its_pip_lives_on(project, killed):
    with start_holder(project) as first:
        assert first.stdout.readline() == "held\n"
        while not (project / "started").exists():
            time.sleep(0.01)
        if killed:
            first.kill()
            first.wait()
        with start_holder(project) as second:
            said = second.stdout.readline()
            (project / "go").touch()
            assert said == "setup: another set-up is at work in this folder; waiting for it\n"
            assert second.stdout.readline() == "held\n"


def test_the_log_holds_each_command_and_its_words(project):
    environment = bootstrap.Environment(str(project), dict(os.environ), sys.executable)
    environment.hold()
    assert environment.attempt("sh", "-c", "echo out; echo err >&2; exit 5") == (False, "out\nerr")
    assert environment.attempt("sh", "-c", "echo two") == (True, "two")
    assert environment.attempt("/no/such/command")[0] is False
    log = Path(environment.log).read_text()
    assert [line for line in log.splitlines() if line.startswith("$")] == [
        "$ sh -c echo out; echo err >&2; exit 5", "$ sh -c echo two", "$ /no/such/command",
    ]  # fmt: skip


# --- the doctor


def marks(rows):
    return {subject: mark for mark, subject, _ in rows}


def answering(failing="nothing", words=""):
    """Stands in for the commands of the doctor; one that holds `failing` fails with `words`."""
    return lambda command, *_: (1, words) if failing in " ".join(command) else (0, "1.2.3")


def test_the_doctor_sees_no_environment_a_whole_one_and_a_broken_one(project):
    assert marks(doctor.describe_environment(str(project), answering())) == {".venv": doctor.NOTE}
    finish(project)
    whole = doctor.describe_environment(str(project), answering())
    assert set(marks(whole).values()) == {doctor.FINE}
    assert (doctor.FINE, ".venv torch", "1.2.3") in whole
    broken = answering("platform", "Traceback\nImportError: no libgomp")
    ((mark, _, text),) = doctor.describe_environment(str(project), broken)
    assert mark == doctor.WRONG
    assert "ImportError: no libgomp; `make setup` makes it anew" in text
    (project / stamp.STAMP).unlink()
    assert marks(doctor.describe_environment(str(project), answering())) == {".venv": doctor.WRONG}


def test_the_doctor_names_a_torch_that_does_not_start(project):
    finish(project)
    broken = answering("import torch", "OSError: bad wheel")
    row = doctor.describe_environment(str(project), broken)[-1]
    text = "does not start: OSError: bad wheel; run: make clean setup"
    assert row == (doctor.WRONG, ".venv torch", text)


@pytest.mark.parametrize(("free", "code", "last"), [
    (50.0, 0, "nothing is in the way"), (1.0, 3, "1 of these must be repaired (!)"),
])  # fmt: skip
def test_the_doctor_ends_with_3_if_the_setup_would(project, monkeypatch, capsys, free, code, last):
    monkeypatch.setattr(machine, "free_gigabytes", lambda _: free)
    assert doctor.main(str(project)) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == last
    assert any(line.startswith("- .venv") and "make setup" in line for line in lines)


def test_the_doctor_runs_with_a_python_that_is_gone(project):
    """As a script of its own, as `make doctor` runs it."""
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").symlink_to("/no/such/python")
    (project / "tools" / "doctor.py").write_bytes((TOOLS / "doctor.py").read_bytes())
    command = [sys.executable, "-E", "-s", str(project / "tools" / "doctor.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert "! .venv        its Python does not start" in done.stdout
