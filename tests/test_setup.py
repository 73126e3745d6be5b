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


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_set_up_interrupted_at_any_step_is_repeated(project, run_setup, step):
    assert run_setup(FakeEnvironment(project, interrupt_at=step))[0] == 130
    assert setup.judge(str(project))[0] == setup.BROKEN
    (project / ".venv" / "leftover").touch()
    assert run_setup(FakeEnvironment(project))[0] == 0
    assert not (project / ".venv" / "leftover").exists()


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
