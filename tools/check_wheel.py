"""Build the wheel, install it beside torch in fresh environments, train and translate there.

    python tools/check_wheel.py                          with this Python
    python tools/check_wheel.py python3.12 python3.13    with others
    TORCH=torch==2.10.0 python tools/check_wheel.py      with another torch

Everything happens outside of the source tree, in a temporary directory with a space and Korean
letters in its name. torch is 2.13.0 for CPUs where an index has it, else the newest build that pip
finds. The script uses the standard library only; exit code 1 if a step fails with any Python.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import setup

ROOT = Path(__file__).resolve().parents[1]
CPU = [f"torch=={setup.TORCH}+cpu", "--extra-index-url", setup.TORCH_INDEX + "cpu"]
SIZES = (
    "text.vocab=300", "model.stack.n_layers=1", "model.stack.d_model=16", "model.stack.n_heads=2",
    "model.stack.d_ff=32", "train.steps=4", "train.save_every=2", "train.validate_every=2",
    "data.hold_out=8", "train.bleu_sentences=2",
)  # fmt: skip
VERSIONS = "import torch, platform; print(torch.__version__, platform.python_version())"


def run(command: list, folder: Path, text: str = "") -> str:
    """Run a command in a folder and return its output; raise RuntimeError if it fails."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, input=text.encode(), env=outside,
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        error = setup.last_line(done.stderr.decode("utf-8", "replace"))
        raise RuntimeError(f"{' '.join(map(str, command[:6]))}: {error}")
    return done.stdout.decode("utf-8", "replace").strip()


def install(python: str, wheel: Path, folder: Path) -> Path:
    """Create an environment with torch, then the wheel; return the directory of its programs."""
    run([python, "-m", "venv", "env"], folder)
    programs = folder / "env" / setup.BIN
    pip = [programs / f"python{setup.EXE}", "-m", "pip", "install", "--quiet"]
    if "TORCH" in os.environ:
        run([*pip, os.environ["TORCH"]], folder)
    else:
        try:
            run([*pip, *CPU], folder)
        except RuntimeError:
            run([*pip, "torch"], folder)
    before = run([pip[0], "-c", VERSIONS], folder)
    run([*pip, f"{wheel}[serve,fast]"], folder)
    after = run([pip[0], "-c", VERSIONS], folder)
    if after != before:
        raise RuntimeError(f"the wheel replaced torch {before} by {after}")
    run([*pip[:3], "check"], folder)
    return programs


def use(programs: Path, folder: Path) -> str:
    """Train, resume, and translate in an empty directory; return versions."""
    polyhead, place = programs / f"polyhead{setup.EXE}", folder / "내 모델"
    place.mkdir()
    lines = [f"{n}시에 회의가 있어요.\tThere is a meeting at {n}.\n" for n in range(1, 80)]
    (place / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    assert run([polyhead, "--version"], place).startswith("polyhead ")
    assert "small" in run([polyhead, "recipes"], place)
    words = ["train", "small", "--pairs", "pairs.tsv", "--run", "run", *SIZES]
    run([polyhead, *words, "train.steps=2"], place)
    run([polyhead, *words, "--accept-changes"], place)
    run([polyhead, "translate", "run"], place, "3시에 회의가 있어요.\n")
    return run([programs / f"python{setup.EXE}", "-c", VERSIONS], place)


def main(pythons: list) -> int:
    """Print one line per Python."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="wheel 확인 ", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], folder)
        (wheel,) = folder.glob("polyhead-*.whl")
        for number, python in enumerate(pythons):
            place, started = folder / str(number), time.monotonic()
            place.mkdir()
            try:
                torch, version = use(install(python, wheel, place), place).split()
                line = f"Python {version}, torch {torch}: trained, resumed, translated"
            except (RuntimeError, OSError, AssertionError) as error:
                failed, line = failed + 1, f"{python}: FAILED: {error}"
            print(f"{line} ({time.monotonic() - started:.0f} s)", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or [sys.executable]))
