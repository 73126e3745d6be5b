"""The files a machine is set up from: the lock, the Makefile and the scripts around them."""

import os
import re
import shutil
import subprocess
import tomllib

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rehearsal import ROOT, TOOLS, choices, lock, make_script
from test_architecture import MAY_IMPORT

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
ENTRIES = re.findall(r"(?m)^[a-z0-9].*(?:\n .*)*", LOCK)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = ["help", "setup", "demo", "test", "lint", "types", "format", "lock", "doctor", "clean"]


def pins():
    """Every pinned requirement of the lock, with its marker."""
    return [Requirement(entry.split(" \\\n")[0]) for entry in ENTRIES]


def test_every_line_of_the_lock_belongs_to_a_package_or_is_a_comment():
    loose = [line for line in LOCK.splitlines() if not re.match(r"#|[a-z0-9]| {4}--hash=", line)]
    assert loose == []
    assert len(ENTRIES) > 30


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.split("==")[0])
def test_every_package_is_pinned_and_hashed(entry):
    pin, *hashes = entry.split(" \\\n")
    assert re.fullmatch(r"[a-z0-9-]+==[\w.]+( ; .+)?", pin)
    assert hashes
    assert all(re.fullmatch(r" {4}--hash=sha256:[0-9a-f]{64}", line) for line in hashes)


def test_torch_and_what_serves_a_gpu_are_not_in_the_lock():
    names = [pin.name for pin in pins()]
    assert not [n for n in names if re.match("torch$|triton|nvidia|cuda", n)]


def test_the_lock_names_no_place():
    body = LOCK.replace(lock.HEADER, "")
    assert not re.search(r"/|@|index-url|find-links|trusted-host", body)
    assert "://" not in LOCK


@pytest.mark.parametrize("system", ["linux", "darwin"])
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_the_lock_has_one_fitting_version_of_all_that_the_project_asks_for(system, python):
    machine = {
        "sys_platform": system,
        "python_version": python,
        "python_full_version": f"{python}.0",
    }
    here = {**default_environment(), **machine}
    chosen = [pin for pin in pins() if pin.marker is None or pin.marker.evaluate(here)]
    versions = {pin.name: next(iter(pin.specifier)).version for pin in chosen}
    assert len(versions) == len(chosen), "one package twice for the same machine"
    asked = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    for wish in map(Requirement, [*asked, *PROJECT["build-system"]["requires"], "editables"]):
        if wish.name != "torch":
            assert wish.specifier.contains(versions[canonicalize_name(wish.name)]), wish


def test_the_project_and_the_setup_mean_the_same_torch():
    assert f"torch=={choices.TORCH}" in PROJECT["project"]["dependencies"]


def test_only_torch_and_its_gpu_packages_are_left_out_of_a_resolution():
    kept = "a==1 \\\n    --hash=sha256:0\ntorchmetrics==1\npytorch==1\nz==2\n    # via torch==2\n"
    gone = [
        "torch==2.13.0 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\n",
        "triton==3 ; x == 'y'\n",
    ]
    gone += ["nvidia-cudnn-cu13==9\n    --hash=sha256:3\n", "cuda-bindings==13\n"]
    mixed = gone[0] + kept.replace("torchm", gone[1] + "torchm").replace("z==", gone[2] + "z==")
    assert lock.without_torch(mixed + gone[3]) == kept


def make(*arguments):
    """What make prints, not as a child of the make that runs these tests."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=outside, capture_output=True, text=True, check=True
    ).stdout


def test_make_alone_lists_every_target():
    listed = re.findall(r"(?m)^make (\w+) +\S", make())
    assert sorted(listed) == sorted(TARGETS)
    assert make("help") == make()


def test_make_test_checks_everything_and_ends_with_pytest():
    lines = make("--dry-run", "test").strip().splitlines()
    checks = ["stamp.py", "ruff check", "ruff format --check", "mypy", "pytest -n 2"]
    assert len(lines) == len(checks)
    assert all(check in line for check, line in zip(checks, lines, strict=True))


@pytest.mark.parametrize("target", ["demo", "test", "lint", "types", "format"])
def test_whatever_needs_the_environment_makes_it_first(target):
    assert "tools/bootstrap.py" in make("--dry-run", target).splitlines()[0]


@pytest.mark.parametrize("target", ["doctor", "lock", "clean", "help"])
def test_what_helps_without_an_environment_does_not_need_one(target):
    assert "bootstrap" not in make("--dry-run", target)


@pytest.mark.parametrize(
    "file", [".ci/run", "tools/install-machine-packages.sh", "tools/with-python.sh"]
)
def test_scripts_can_be_started_and_are_right_shell(file):
    assert os.access(ROOT / file, os.X_OK)
    shell = (ROOT / file).read_text().splitlines()[0].split("/")[-1].split()[-1]
    subprocess.run([shell, "-n", ROOT / file], check=True)


def test_the_table_of_rooms_for_contributors_is_the_one_that_is_enforced():
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"(?m)^\| `(\w+)` \| .+ \| (.+) \|$", guide))
    written = {room: set(re.findall(r"`(\w+)`", rooms)) for room, rooms in table.items()}
    assert table["api"] == "every room above"
    written["api"] = set(list(table)[: list(table).index("api")])
    assert written == {room: below for room, below in MAY_IMPORT.items() if room != "__main__"}


# --- packages of the machine


def install_packages(folder, *, system="debian", user="0"):
    """Run the script where only stand-ins and a few harmless commands exist."""
    for name in ("mktemp", "rm", "tail"):
        (folder / name).symlink_to(shutil.which(name))
    make_script(folder / "sed", f"echo {system}")
    make_script(folder / "id", f"echo {user}")
    make_script(folder / "sleep", ":")
    command = ["/bin/sh", str(TOOLS / "install-machine-packages.sh")]
    return subprocess.run(
        command, env={"PATH": str(folder)}, capture_output=True, text=True, check=True
    )


def pretend_apt(folder, *, fails=""):
    make_script(folder / "apt-get", f'echo "$*" >> {folder}/calls; {fails}')
    return lambda: (folder / "calls").read_text().splitlines()


def test_a_machine_that_has_all_is_left_alone_in_silence(tmp_path):
    make_script(tmp_path / "chromium", ":")
    make_script(tmp_path / "fc-list", "echo NanumGothic")
    pretend_apt(tmp_path)
    done = install_packages(tmp_path)
    assert (done.stdout, done.stderr) == ("", "")
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("other", [{"user": "1000"}, {"system": "fedora"}], ids=str)
def test_who_may_not_install_is_told_in_one_line(tmp_path, other):
    pretend_apt(tmp_path)
    done = install_packages(tmp_path, **other)
    assert done.stderr.count("\n") == 1
    assert "please install chromium fonts-nanum" in done.stderr
    assert not (tmp_path / "calls").exists()


def test_only_what_is_missing_is_installed(tmp_path):
    make_script(tmp_path / "google-chrome", ":")
    make_script(tmp_path / "fc-list", ":")  # it answers, but knows no such font
    calls = pretend_apt(tmp_path)
    install_packages(tmp_path)
    assert calls() == [
        "update -qq", "install -y -qq --no-install-recommends fonts-nanum fontconfig",
    ]  # fmt: skip


def test_a_failing_update_is_repeated_and_a_failing_install_is_one_line(tmp_path):
    make_script(tmp_path / "fc-list", "echo NanumGothic")
    calls = pretend_apt(tmp_path, fails="echo E: no route; exit 100")
    done = install_packages(tmp_path)
    assert [call.split()[0] for call in calls()] == ["update", "update", "update", "install"]
    assert done.stderr.splitlines()[-1].endswith("could not install chromium: E: no route")
