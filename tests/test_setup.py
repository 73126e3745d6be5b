"""What the set-up decides: which Python, which torch, what pip may see, whether .venv is whole."""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest
from rehearsal import TOOLS, bootstrap, choices, finish, machine, make_project, make_script, stamp

NO_NETWORK = (
    "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(...)'"
)
NOT_THERE = "ERROR: No matching distribution found for torch==2.13.0+cpu"
BEFORE_INSTALLING = ["bootstrap", "choices", "doctor", "machine", "stamp"]


@pytest.fixture
def project(tmp_path):
    return make_project(tmp_path / "a project")


# --- which Python


@pytest.mark.parametrize("version", [(3, 6, 15), (3, 9, 18), (3, 10, 99)])
def test_an_old_python_is_refused_with_what_to_do(version):
    line = machine.python_trouble(version, 2**63 - 1)
    assert line.startswith(f"Python {'.'.join(map(str, version))} is too old; install Python 3.11")
    assert "\n" not in line


def test_a_32_bit_python_is_refused():
    assert "3.12.1 is 32-bit" in machine.python_trouble((3, 12, 1), 2**31 - 1)


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 13, 2), (3, 14, 0), (4, 0, 0)])
def test_a_python_that_is_new_enough_is_taken(version):
    assert machine.python_trouble(version, 2**63 - 1) == ""


@pytest.mark.parametrize("name", BEFORE_INSTALLING)
def test_an_old_python_can_read_the_refusal(name):
    """Python 3.7 must parse these files, and evaluate the annotations as it defines functions."""
    tree = ast.parse((TOOLS / f"{name}.py").read_text(encoding="utf-8"), feature_version=(3, 7))
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            assert len(node.items) < 3, "a long `with` is put into parentheses, which is newer"
        if isinstance(node, ast.FunctionDef):
            notes = [a.annotation for a in node.args.args if a.annotation] + [node.returns]
            assert all(n is None or isinstance(n, ast.Name | ast.Constant) for n in notes), (
                node.name
            )


@pytest.mark.parametrize("name", [*BEFORE_INSTALLING, "lock"])
def test_nothing_needs_to_be_installed_before_the_setup(name):
    tree = ast.parse((TOOLS / f"{name}.py").read_text(encoding="utf-8"))
    imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    imported |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    ours = {file.stem for file in TOOLS.glob("*.py")}
    assert {n.split(".")[0] for n in imported} <= sys.stdlib_module_names | ours


def with_python(folder, **variables):
    """Run with-python.sh where only the commands in `folder` exist."""
    (folder / "uname").symlink_to(shutil.which("uname"))
    command = ["/bin/sh", str(TOOLS / "with-python.sh"), "script.py"]
    done = subprocess.run(
        command, env={"PATH": str(folder), **variables}, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def test_the_newest_python_that_starts_is_found(tmp_path):
    make_script(
        tmp_path / "python3.13", "exit 127"
    )  # as pyenv's stub of a version that is not chosen
    for name in ("python3", "python3.11", "python3.12"):
        make_script(tmp_path / name, f'[ "$3" = -c ] || echo {name} "$@"')
    assert with_python(tmp_path) == (0, "python3.12 -E -s script.py\n", "")


def test_without_any_python_one_line_says_what_to_install(tmp_path):
    make_script(tmp_path / "python3", "exit 1")
    code, out, err = with_python(tmp_path)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "found no Python 3.11 or newer; install one" in err


def test_a_chosen_python_that_does_not_start_is_not_replaced_by_another(tmp_path):
    make_script(tmp_path / "python3", "exit 0")
    code, _, err = with_python(tmp_path, PYTHON="/no/such/python")
    assert (code, err.count("\n")) == (3, 1)
    assert "PYTHON=/no/such/python does not start" in err


# --- which torch


@pytest.mark.parametrize(
    "answer",
    [(127, "not found"), (9, "NVIDIA-SMI has failed\nGPU 0: ?"), (0, "No devices were found")],
    ids=["no driver", "broken driver", "no device"],
)
def test_without_a_working_gpu_pip_can_only_take_the_wheel_without_cuda(answer):
    gpus = machine.nvidia_gpus(lambda _: answer)
    assert choices.choose_build("Linux", gpus, "") == "cpu"
    for wanted in choices.torch_attempts("Linux", "cpu"):
        assert wanted[0] == "torch==2.13.0+cpu"  # never one that the wheel with CUDA fits too
        assert "--no-deps" in wanted


def test_with_a_gpu_torch_comes_with_cuda():
    gpus = machine.nvidia_gpus(lambda _: (0, "GPU 0: NVIDIA L4 (UUID: GPU-1)"))
    assert choices.choose_build("Linux", gpus, "") == "plain"
    assert choices.torch_attempts("Linux", "plain") == [["torch==2.13.0"]]
    assert choices.choose_build("Linux", gpus, "cpu") == "cpu"


def test_macos_has_one_torch():
    assert choices.choose_build("Darwin", [], "") == "plain"
    assert choices.torch_attempts("Darwin", "plain") == [["torch==2.13.0", "--no-deps"]]
    with pytest.raises(choices.SetupError, match=r"^TORCH=cu130 does not exist for macOS"):
        choices.choose_build("Darwin", [], "cu130")


def test_a_build_can_be_forced_and_comes_from_its_own_index_last():
    assert choices.choose_build("Linux", [], "cu130") == "cu130"
    here, there = choices.torch_attempts("Linux", "cu130")
    assert here == ["torch==2.13.0+cu130"]
    assert there == [*here, "--extra-index-url", "https://download.pytorch.org/whl/cu130"]


@pytest.mark.parametrize("asked", ["cuda", "cu130; rm", "--index-url", "2.13.0"])
def test_a_build_that_does_not_exist_is_refused(asked):
    with pytest.raises(choices.SetupError, match=f"^TORCH={re.escape(asked)} is no build"):
        choices.choose_build("Linux", [], asked)


@pytest.mark.parametrize(
    ("build", "version", "packages", "wrong"),
    [
        ("cpu", "2.13.0+cpu", ["torch", "numpy"], ""),
        (
            "cpu",
            "2.13.0+cu130",
            ["torch"],
            "torch 2.13.0+cu130 was installed instead of 2.13.0+cpu",
        ),
        ("cpu", "2.13.0", ["torch"], "torch 2.13.0 was installed instead of 2.13.0+cpu"),
        ("cpu", "2.12.0+cpu", ["torch"], "torch 2.12.0+cpu was installed instead of 2.13.0+cpu"),
        ("cpu", "2.13.0+cpu", ["nvidia-nccl-cu13", "six", "triton"], "nvidia-nccl-cu13, triton"),
        ("cpu", "2.13.0+cpu", ["nvidia_cublas"], "nvidia_cublas"),
        ("plain", "2.13.0", ["nvidia-nccl-cu13"], ""),
    ],
)
def test_another_torch_than_meant_is_noticed(build, version, packages, wrong):
    found = choices.wrong_torch("Linux", build, version, packages)
    assert found.endswith(wrong) if wrong else found == ""


# --- what pip sees and says


def test_misleading_variables_do_not_reach_pip_and_all_others_do():
    named = ["PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_CONSTRAINT", "PIP_REQUIRE_HASHES"]
    useful = {"PIP_INDEX_URL": "mirror", "PIP_FIND_LINKS": "wheels", "PIP_CERT": "ca", "HOME": "h"}
    misled = {**dict.fromkeys(named, "x"), "PIP_USER": "1", "PIP_REQUIRE_VIRTUALENV": "1", **useful}
    clean = choices.clean_environment(misled)
    assert not set(named) & set(clean)
    assert (clean["PIP_USER"], clean["PIP_REQUIRE_VIRTUALENV"]) == ("0", "0")
    assert {name: clean[name] for name in useful} == useful


def test_a_poisoned_pythonpath_does_not_reach_the_commands(project, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('poisoned')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    poisoned = subprocess.run([sys.executable, "-c", "import json"], check=False)
    assert poisoned.returncode != 0, "the poison does not work, so this test shows nothing"
    environment = bootstrap.Environment(str(project), dict(os.environ), sys.executable)
    environment.hold()
    assert environment.attempt(sys.executable, "-c", "import json; print(1)") == (True, "1")


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        (NO_NETWORK + "\n" + NOT_THERE, "cannot be reached; connect to the network"),
        ("Cannot connect to proxy: ProxyError('...')", "cannot be reached"),
        ("SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] Max retries exceeded", "set PIP_CERT"),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE",
            "not the file that requirements",
        ),
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
        ("[Errno 30] Read-only file system: '/x'", "cannot be written"),
        (NOT_THERE + "\n", "the package index has no torch==2.13.0+cpu for this Python"),
        ("Collecting a\nERROR: a and b do not fit\nhint: wait", "a and b do not fit"),
        ("Traceback\nKeyError: 3", "KeyError: 3"),
        ("", "no message"),
    ],
)
def test_what_pip_says_is_explained_in_one_line(words, meaning):
    line = choices.explain(words)
    assert meaning in line
    assert "\n" not in line


# --- the stamp


def test_a_finished_environment_is_ready(project):
    finish(project)
    assert stamp.judge(str(project))[0] == stamp.READY
    assert stamp.judge(str(project), "cpu")[0] == stamp.READY


def test_without_a_stamp_it_is_half_made(project):
    assert stamp.judge(str(project)) == (stamp.BROKEN, "it was never finished")


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "null", "{}", '{"folder": 1}', "\udcff"])
def test_a_stamp_that_cannot_be_read_means_broken(project, text):
    finish(project)
    (project / stamp.STAMP).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert stamp.judge(str(project))[0] == stamp.BROKEN


@pytest.mark.parametrize("name", stamp.INPUTS)
def test_each_input_that_changes_makes_it_stale(project, name):
    finish(project)
    with open(project / name, "a", encoding="utf-8") as file:
        file.write("\n")
    assert stamp.judge(str(project))[0] == stamp.STALE


def test_a_moved_folder_is_broken_and_the_old_place_is_named(project, tmp_path):
    finish(project)
    moved = project.rename(tmp_path / "elsewhere")
    state, reason = stamp.judge(str(moved))
    assert state == stamp.BROKEN
    assert str(project) in reason


def test_another_build_of_torch_or_a_lost_command_is_broken(project):
    finish(project)
    assert stamp.judge(str(project), "cu130")[0] == stamp.BROKEN
    (project / ".venv" / "bin" / "polyhead").unlink()
    assert stamp.judge(str(project))[0] == stamp.BROKEN


def test_an_environment_whose_python_is_gone_is_broken(project):
    finish(project)
    environment = bootstrap.Environment(str(project), {}, sys.executable)
    environment.hold()
    assert environment.state()[0] == stamp.READY
    (project / ".venv" / "bin" / "python").unlink()
    (project / ".venv" / "bin" / "python").symlink_to("/no/such/python")
    assert environment.state() == (stamp.BROKEN, "its Python does not start")


def test_the_quick_question_answers_by_exit_code_and_imports_little(project):
    command = [
        sys.executable,
        "-E",
        "-s",
        "-S",
        "-X",
        "importtime",
        str(project / "tools/stamp.py"),
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    finish(project)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    slow = {"subprocess", "argparse", "urllib.request", "typing", "platform", "tempfile", "site"}
    assert not slow & set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
