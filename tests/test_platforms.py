"""Systems without fcntl, links, POSIX signals or torch, simulated in processes of their own."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from expected_errors import raises
from tiny import SMALL, write_corpus

from polyhead.checkpoint.atomic_dir import follow
from polyhead.checkpoint.model_dir import load_model, resolve
from polyhead.cli.main import main
from polyhead.errors import TORCH, PolyheadError
from polyhead.training.run_dir import RunDir

ROOT = Path(__file__).parents[1]
OTHER = ROOT / "tests" / "support" / "other_system.py"
KOREAN = "내일 회의가 있어요."
NO_TORCH = "import sys; sys.modules['torch'] = None; from polyhead.cli.main import main; "


def start(*words, encoding="utf-8", program=(str(OTHER),), **options):
    variables = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "PYTHONUTF8": "0"}
    return subprocess.Popen(
        [sys.executable, *program, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **variables, "PYTHONIOENCODING": encoding}, **options,
    )  # fmt: skip


def run(*words, stdin="", code=0, **options):
    """Run a command; return stdout and stderr as bytes."""
    with start(*words, **options) as process:
        out, err = process.communicate(stdin.encode())
    assert process.returncode == code, err.decode(errors="replace")
    return out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with two checkpoints, made without links in a directory with a difficult name."""
    folder = tmp_path_factory.mktemp("system") / r"내 모델 C:\runs"
    folder.mkdir()
    files = [f"--{side}={paths[0]}" for side, paths in write_corpus(folder).items()]
    words = ["train", "small", *SMALL, "train.workers=1", *files, "--run", folder / "run"]
    run(*words, "train.steps=4", "then", *words, "--accept-changes", encoding="cp949")
    return words


@pytest.mark.slow
def test_a_run_is_trained_and_resumed_without_links(trained):
    folder = trained[-1]
    names = {name: (folder / name).read_text(encoding="utf-8") for name in ("best", "last")}
    assert names["last"] == "checkpoints/step-00000012\n"
    assert resolve(folder) == resolve(folder / "best") == folder / names["best"].strip()
    saved = load_model(folder / "last")
    assert saved.about["step"] == 12
    assert saved.about["run"]["data"]["source"] == ["train.ko"]
    assert not list(folder.rglob(".tmp-*"))


@pytest.mark.slow
def test_ctrl_c_saves_a_run_that_was_moved_from_a_system_with_links(trained):
    """Files become links where there are any, and links become files."""
    folder, more = trained[-1], [*map(str, trained), "--accept-changes"]
    assert main([*more, "train.steps=14"]) == 0
    assert (folder / "last").is_symlink()
    with start(*more, "train.steps=100000") as first:
        for line in first.stderr:
            if b"parameters" in line:
                break
        with raises(PolyheadError, "run_in_use", f"({first.pid})"), RunDir(folder).exclusive_lock():
            pass
        first.send_signal(signal.SIGINT)
        first.communicate()
    assert first.returncode == 130
    assert (folder / "last").is_file()
    assert load_model(follow(folder / "last")).about["step"] >= 14


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp949", "cp1252"])
def test_translations_are_utf_8_and_messages_fit_the_console(trained, encoding):
    missing = trained[-1].with_name("없는 √")
    words = ("translate", trained[-1], "then", "recipes", "then", "translate", missing)
    out, err = run(*words, stdin=f"{KOREAN}\n√ → €\n", code=5, encoding=encoding)
    assert len(b"".join(out.splitlines(keepends=True)[:2]).decode("utf-8").splitlines()) == 2
    assert err.decode(encoding).count("\n") == 1
    assert ("없는" in err.decode(encoding)) == (encoding == "cp949")


@pytest.mark.slow
def test_a_server_is_stopped_by_a_signal(trained):
    with start("serve", trained[-1], "--port", "0") as server:
        address = next(found[0] for line in server.stderr
                       if (found := re.search(r"http://[\d.:]+/", line.decode())))  # fmt: skip
        with urllib.request.urlopen(f"{address}health/ready") as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        server.communicate()
    assert server.returncode == 0


@pytest.mark.parametrize("name", ["../model", "/etc", "checkpoints/../..", "no such", "\0", ""])
def test_only_names_inside_the_run_are_followed(tmp_path, name):
    (tmp_path / "model").mkdir()
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    path = tmp_path / "run" / "best"
    path.write_text(name, encoding="utf-8")
    assert follow(path) == path
    path.write_text("checkpoints\n", encoding="utf-8")
    assert follow(path) == tmp_path / "run" / "checkpoints"


# Without torch


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--version"], 0), (["--help"], 0), (["translate", "--help"], 0), (["data", "list"], 0),
        (["doctor"], 3), (["recipes"], 3), (["train", "small"], 3), (["cost", "small"], 3),
    ],
)  # fmt: skip
def test_commands_without_torch_work_or_say_how_to_install_it(words, code):
    _, err = run(*words, code=code, program=("-c", NO_TORCH + "sys.exit(main())"))
    assert err.count(b"\n") == (code == 3)
    assert code == 0 or f'pip install "{TORCH}"'.encode() in err


def test_the_package_without_torch_is_imported_and_says_what_is_missing():
    code = "import sys; sys.modules['torch'] = None; import polyhead; polyhead.DecodeConfig\n"
    code += "try: polyhead.train\nexcept polyhead.PolyheadError as e: print(e.code, e.exit_code)"
    assert run(program=("-c", code))[0].split() == [b"missing_torch", b"3"]
