"""tools/setup.py and the files around it: choice of Python and torch, steps, stamp, locks, make."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))

import doctor  # noqa: E402
import lock  # noqa: E402
import setup  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
NO_NETWORK = "NewConnectionError: Failed to establish a new connection"
NOT_FOUND = "ERROR: No matching distribution found for torch==2.13.0+cpu"
STEPS = ["-m venv", "-m ensurepip", "pip -V", "torch==", "requirements", "--editable",
         "json, torch"]  # fmt: skip


class FakeEnvironment(setup.Environment):
    """Runs all steps, but records commands instead of starting them.

    failures: output by pattern of a command that fails; interrupt_at: the step with Ctrl-C.
    """

    def __init__(self, root, *, torch="", dev=False, failures=(), interrupt_at=-1, installed=None):
        super().__init__(str(root), {"TORCH": torch}, dev)
        self.failures, self.interrupt_at = dict(failures), interrupt_at
        self.installed = installed or '["2.13.0+cpu", ["numpy", "torch"]]'
        self.commands = []

    def attempt(self, *command):
        self.commands.append(" ".join(command))
        for pattern, output in self.failures.items():
            if re.search(pattern, self.commands[-1]):
                return False, output
        if "venv" in command:
            Path(self.python).parent.mkdir(parents=True)
            Path(self.python).symlink_to(sys.executable)
        if len(self.commands) - 1 == self.interrupt_at:
            raise KeyboardInterrupt
        if "--editable" in command:
            Path(self.folder, "bin", "polyhead").touch()
        return True, self.installed


@pytest.fixture(autouse=True)
def _linux_without_gpu(monkeypatch):
    monkeypatch.setattr(setup, "has_gpu", lambda: False)
    monkeypatch.setattr(setup.platform, "system", lambda: "Linux")
    monkeypatch.setattr(setup.glob, "glob", lambda _: [])


@pytest.fixture
def project(tmp_path):
    """A folder with the files that decide what is installed."""
    for name in setup.INPUTS:
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "project" / name)
    return tmp_path / "project"


@pytest.fixture
def run_setup(monkeypatch, capsys):
    """Return exit code and lines of stderr of a set-up."""

    def run(environment):
        monkeypatch.setattr(setup, "Environment", lambda *_: environment)
        monkeypatch.setattr(setup.signal, "signal", lambda *_: None)
        code = setup.main([])
        for descriptor in environment.lock:
            os.close(descriptor)
        return code, capsys.readouterr().err.splitlines()

    return run


@pytest.mark.parametrize(
    ("version", "size", "problem"),
    [
        ((3, 10, 99), 2**63 - 1, "3.10.99 is too old; install Python 3.11"),
        ((3, 12, 1), 2**31 - 1, "32-bit"),
        ((3, 11, 0), 2**63 - 1, ""),
        ((4, 0, 0), 2**63 - 1, ""),
    ],
)
def test_too_old_and_32_bit_pythons_are_rejected(version, size, problem):
    message = setup.python_problem(version, size)
    assert problem in message if problem else message == ""


@pytest.mark.parametrize("name", ["setup", "doctor"])
def test_setup_parses_on_python_3_7_and_needs_the_standard_library_only(name):
    tree = ast.parse((TOOLS / f"{name}.py").read_text(encoding="utf-8"), feature_version=(3, 7))
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert {n.split(".")[0] for n in imported} <= sys.stdlib_module_names | {"setup"}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            notes = [a.annotation for a in node.args.args if a.annotation] + [node.returns]
            bad = [n for n in notes if not isinstance(n, ast.Name | ast.Constant | None)]
            assert not bad, node.name


def make_script(path, body):
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("variables", "code", "output"),
    [
        ({}, 0, "python3.12 -E -s script.py\n"),
        ({"PYTHON": "/no/such/python"}, 3, "PYTHON=/no/such/python does not start"),
    ],
)
def test_the_newest_python_that_starts_is_used(tmp_path, variables, code, output):
    make_script(tmp_path / "python3.13", "exit 127")
    for name in ("python3", "python3.11", "python3.12"):
        make_script(tmp_path / name, f'[ "$3" = -c ] || echo {name} "$@"')
    (tmp_path / "uname").symlink_to(shutil.which("uname"))
    command = ["/bin/sh", str(TOOLS / "with-python.sh"), "script.py"]
    environment = {"PATH": str(tmp_path), **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert output in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("system", "gpu", "requested", "build", "first"),
    [
        ("Linux", False, "", "cpu", ["torch==2.13.0+cpu", "--no-deps"]),
        ("Linux", True, "", "plain", ["torch==2.13.0"]),
        ("Linux", True, "cpu", "cpu", ["torch==2.13.0+cpu", "--no-deps"]),
        ("Linux", False, "cu130", "cu130", ["torch==2.13.0+cu130"]),
        ("Darwin", False, "", "plain", ["torch==2.13.0", "--no-deps"]),
    ],
)
def test_the_build_of_torch_follows_the_machine(system, gpu, requested, build, first):
    assert setup.choose_build(system, gpu, requested) == build
    assert setup.torch_requirements(system, build)[0] == first


@pytest.mark.parametrize(
    ("system", "build"), [("Linux", "cuda"), ("Linux", "--index-url"), ("Darwin", "cu130")]
)
def test_unknown_builds_of_torch_are_rejected(system, build):
    with pytest.raises(setup.SetupError, match=f"TORCH={build}"):
        setup.choose_build(system, False, build)


@pytest.mark.parametrize(
    ("build", "version", "packages", "problem"),
    [
        ("cpu", "2.13.0+cpu", ["torch", "numpy"], ""),
        ("cpu", "2.13.0+cu130", ["torch"], "instead of 2.13.0+cpu"),
        ("cpu", "2.12.0+cpu", ["torch"], "instead of 2.13.0+cpu"),
        ("cpu", "2.13.0+cpu", ["nvidia-nccl-cu13", "triton"], "nvidia-nccl-cu13, triton"),
        ("plain", "2.13.0", ["nvidia-nccl-cu13"], ""),
    ],
)
def test_another_torch_than_intended_is_detected(build, version, packages, problem):
    message = setup.torch_problem("Linux", build, version, packages)
    assert problem in message if problem else message == ""


def test_variables_that_mislead_pip_are_removed(project):
    variables = {"PYTHONPATH": "x", "PIP_TARGET": "x", "PIP_USER": "1", "PIP_INDEX_URL": "mirror"}
    clean = setup.Environment(str(project), variables).variables
    assert not {"PYTHONPATH", "PIP_TARGET"} & set(clean)
    assert (clean["PIP_USER"], clean["PIP_INDEX_URL"]) == ("0", "mirror")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (NO_NETWORK + "\n" + NOT_FOUND, "cannot be reached"),
        ("SSLError: CERTIFICATE_VERIFY_FAILED Max retries exceeded", "PIP_CERT"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE", "hash"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "disk is full"),
        (NOT_FOUND + "\n", "the package index has no torch==2.13.0+cpu"),
        ("Collecting a\nERROR: a and b do not fit\nhint: wait", "a and b do not fit"),
        ("Traceback\nKeyError: 3", "KeyError: 3"),
    ],
)
def test_the_output_of_pip_is_explained_in_one_line(output, message):
    line = setup.explain(output)
    assert message in line
    assert "\n" not in line


def test_setup_installs_torch_then_the_lock_then_polyhead(project, run_setup):
    environment = FakeEnvironment(project)
    code, lines = run_setup(environment)
    assert (code, lines[-1]) == (0, "setup: .venv is ready")
    order = [[s in command for command in environment.commands].index(True) for s in STEPS]
    assert order == sorted(order)
    assert not any("dev.lock" in command for command in environment.commands)
    assert setup.judge(str(project), "cpu")[0] == setup.READY
    again = FakeEnvironment(project)
    assert run_setup(again) == (0, [])
    assert again.commands == [f"{again.python} -c "]


def test_packages_for_development_are_added_and_stay(project, run_setup):
    assert run_setup(FakeEnvironment(project))[0] == 0
    assert setup.judge(str(project), dev=True)[0] == setup.STALE
    environment = FakeEnvironment(project, dev=True)
    assert run_setup(environment)[0] == 0
    assert any("requirements-dev.lock" in command for command in environment.commands)
    assert setup.judge(str(project), dev=True)[0] == setup.judge(str(project))[0] == setup.READY
    (project / "pyproject.toml").write_text("changed")
    update = FakeEnvironment(project)
    assert run_setup(update)[0] == 0
    assert any("requirements-dev.lock" in command for command in update.commands)


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_set_up_interrupted_at_any_step_is_repeated(project, run_setup, step):
    assert run_setup(FakeEnvironment(project, interrupt_at=step))[0] == 130
    assert setup.judge(str(project))[0] == setup.BROKEN
    (project / ".venv" / "leftover").touch()
    assert run_setup(FakeEnvironment(project))[0] == 0
    assert not (project / ".venv" / "leftover").exists()


def test_changed_inputs_update_the_environment_with_the_same_torch(project, run_setup):
    gpu = '["2.13.0+cu130", ["nvidia-nccl-cu13"]]'
    run_setup(FakeEnvironment(project, torch="cu130", installed=gpu))
    (project / "requirements.lock").write_text("changed")
    (project / ".venv" / "bin" / "mine").touch()
    environment = FakeEnvironment(project, installed=gpu)
    assert run_setup(environment)[0] == 0
    assert any("torch==2.13.0+cu130" in command for command in environment.commands)
    assert (project / ".venv" / "bin" / "mine").exists()


@pytest.mark.parametrize("change", ["no stamp", "bad stamp", "moved", "other torch", "no command"])
def test_a_damaged_environment_is_created_again(project, run_setup, change):
    run_setup(FakeEnvironment(project))
    stamp = project / ".venv" / "stamp.json"
    if change == "no stamp":
        stamp.unlink()
    elif change == "bad stamp":
        stamp.write_text('{"folder": 1}')
    elif change == "moved":
        project = project.rename(project.with_name("elsewhere"))
    elif change == "no command":
        (project / ".venv" / "bin" / "polyhead").unlink()
    requested = "cu130" if change == "other torch" else ""
    assert setup.judge(str(project), requested)[0] == setup.BROKEN


@pytest.mark.parametrize(
    ("failures", "message"),
    [
        ({"torch==": NO_NETWORK}, "the package index cannot be reached"),
        ({"requirements.lock": NO_NETWORK}, "the package index cannot be reached"),
        ({"torch==": NOT_FOUND}, "no package index in use has torch 2.13.0 (cpu)"),
        ({"json, torch": "ImportError: libgomp.so.1"}, "does not start: ImportError: libgomp.so.1"),
        ({"-m venv": "no module"}, "Python lacks venv"),
    ],
)
def test_a_failing_step_ends_with_exit_code_3_and_one_line(project, run_setup, failures, message):
    environment = FakeEnvironment(project, failures=failures)
    code, lines = run_setup(environment)
    assert code == 3
    assert message in lines[-1]
    assert setup.judge(str(project))[0] == setup.BROKEN
    tries = [command for command in environment.commands if "torch==" in command]
    assert len(tries) == (2 if failures.get("torch==") == NOT_FOUND else len(tries[:1]))


def test_too_little_disk_space_stops_before_anything_is_installed(project, run_setup, monkeypatch):
    usage = type("Usage", (), {"free": 2.94e9})
    monkeypatch.setattr(setup.shutil, "disk_usage", lambda _: usage)
    environment = FakeEnvironment(project)
    code, lines = run_setup(environment)
    assert code == 3
    assert "2.9 GB free on this disk, 3 GB needed" in lines[-1]
    assert environment.commands == []


@pytest.mark.parametrize("n_failing", range(4))
def test_pip_is_taken_from_the_first_source_that_has_it(project, run_setup, monkeypatch, n_failing):
    archive = project / "pip.pyz"
    archive.touch()
    monkeypatch.setattr(setup, "PIP_ARCHIVE", archive.as_uri())
    sources = ["-m ensurepip", "-m pip --python", "uv pip", "pip.pyz install"]
    environment = FakeEnvironment(project, failures=dict.fromkeys(sources[:n_failing], "no"))
    assert run_setup(environment)[0] == 0
    tried = [any(source in command for command in environment.commands) for source in sources]
    assert tried == [True] * (n_failing + 1) + [False] * (3 - n_failing)


WITHOUT_FCNTL = """
import fcntl, subprocess, sys, types
lock = lambda file, mode, size: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, size)
sys.modules.update(fcntl=None, msvcrt=types.SimpleNamespace(LK_NBLCK=2, locking=lock))
"""


@pytest.mark.parametrize("system", ["", WITHOUT_FCNTL], ids=["POSIX", "Windows"])
def test_a_second_set_up_waits_for_the_first(project, system):
    code = system + "import sys; sys.path.insert(0, sys.argv[1]); import setup\n"
    code += "setup.Environment(sys.argv[2], {}).hold(); print('held', flush=True); input()"
    command = [sys.executable, "-c", code, str(TOOLS), str(project)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, **pipes) as first:
        assert first.stdout.readline() == "held\n"
        with subprocess.Popen(command, text=True, **pipes) as second:
            assert "waiting" in second.stdout.readline()
            first.communicate("\n")
            assert second.stdout.readline() == "held\n"
            second.communicate("\n")


def test_the_doctor_reports_the_state_of_the_environment(project, run_setup, monkeypatch):
    def mark():
        return doctor.describe_environment(str(project))[0][0]

    assert mark() == doctor.NOTE
    run_setup(FakeEnvironment(project))
    monkeypatch.setattr(setup, "run", lambda *_: (0, "2.13.0 no GPU"))
    assert mark() == doctor.FINE
    monkeypatch.setattr(setup, "run", lambda *_: (1, "OSError: bad wheel"))
    assert "OSError: bad wheel" in doctor.describe_environment(str(project))[0][2]
    (project / ".venv" / "stamp.json").unlink()
    assert mark() == doctor.WRONG


def entries(name):
    return re.findall(r"(?m)^[a-z0-9].*(?:\n .*)*", (ROOT / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", lock.LOCKS)
def test_every_locked_package_is_pinned_and_hashed_and_none_is_for_gpus(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not [x for x in text.splitlines() if not re.match(r"#|[a-z0-9]| {4}--hash=", x)]
    assert not re.search(r"/|@|index-url", text.replace(lock.HEADER, ""))
    for entry in entries(name):
        pin, *hashes = entry.split(" \\\n")
        assert re.fullmatch(r"(?!torch=|triton|nvidia|cuda)[a-z0-9-]+==[\w.]+( ; .+)?", pin)
        assert hashes
        assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}", line) for line in hashes)


@pytest.mark.parametrize("name", lock.LOCKS)
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
@pytest.mark.parametrize("python", ["3.11", "3.14"])
def test_the_locks_satisfy_the_project(name, system, python):
    here = {**default_environment(), "sys_platform": system, "python_version": python}
    here["python_full_version"] = f"{python}.0"
    pins = [Requirement(entry.split(" \\\n")[0]) for entry in entries(name)]
    chosen = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(here)]
    versions = {pin.name: next(iter(pin.specifier)).version for pin in chosen}
    assert len(versions) == len(chosen)
    wanted, extras = PROJECT["project"]["dependencies"], PROJECT["project"]["optional-dependencies"]
    wanted = (
        wanted
        + {
            "requirements.lock": PROJECT["build-system"]["requires"],
            "requirements-dev.lock": PROJECT["build-system"]["requires"] + extras["dev"],
            "requirements-fast.lock": extras["fast"] + extras["serve"],
        }[name]
    )
    assert ("sympy" in versions) == (name != "requirements-fast.lock")  # one of torch's own
    versions["torch"] = setup.TORCH
    for requirement in map(Requirement, wanted):
        if requirement.marker is None or requirement.marker.evaluate(here):
            version = versions[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(version), requirement
    if name != "requirements-dev.lock":
        dev = [Requirement(entry.split(" \\\n")[0]) for entry in entries("requirements-dev.lock")]
        assert {(pin.name, pin.specifier) for pin in pins} <= {(p.name, p.specifier) for p in dev}
        assert "pytest" not in versions


def make(*arguments):
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.check_output(command, cwd=ROOT, env=outside, text=True)


def test_make_lists_its_targets_and_runs_lint_types_and_tests():
    listed = re.findall(r"(?m)^make ([\w-]+) +\S", make())
    declared = re.search(r"(?m)^\.PHONY: (.*)$", (ROOT / "Makefile").read_text())[1]
    assert sorted(listed) == sorted(declared.split())
    steps = ["setup.py", "ruff check", "ruff format --check", "wording.py", "mypy", "pytest -n 2"]
    output = make("--dry-run", "test")
    assert [output.index(step) for step in steps] == sorted(output.index(step) for step in steps)
    assert "--dev" in output
    assert "--dev" not in make("--dry-run", "demo")


@pytest.mark.parametrize(
    "file", [".ci/run", *(str(p.relative_to(ROOT)) for p in TOOLS.glob("*.sh"))]
)
def test_shell_scripts_parse(file):
    shell = (ROOT / file).read_text().splitlines()[0].split("/")[-1].split()[-1]
    subprocess.run([shell, "-n", ROOT / file], check=True)


@pytest.mark.parametrize(
    ("user", "calls"), [("0", ["update", "install"]), ("1000", [])], ids=["root", "user"]
)
def test_machine_packages_are_installed_only_by_root(tmp_path, user, calls):
    for name in ("mktemp", "rm", "tail"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for name, body in {"sed": "echo debian", "id": f"echo {user}", "sleep": ":"}.items():
        make_script(tmp_path / name, body)
    make_script(tmp_path / "google-chrome", ":")
    make_script(tmp_path / "apt-get", f'echo "$1 $*" >> {tmp_path}/calls')
    command = ["/bin/sh", str(TOOLS / "install-machine-packages.sh")]
    subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, check=True)
    log = tmp_path / "calls"
    recorded = log.read_text().splitlines() if log.exists() else []
    assert [line.split()[0] for line in recorded] == calls
    assert all("fonts-nanum" in line and "chromium" not in line for line in recorded[1:])
