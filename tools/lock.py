"""Resolve pyproject.toml and write its three locks: `make lock`.

uv resolves for all systems and Pythons at once and notes the hash of every file; pip reads the
result. torch and GPU packages are left out: tools/setup.py installs torch. The lock for development
holds all packages of the others in the same versions. requirements-fast.lock is for servers without
torch: the dependencies but torch, with the extras fast and serve.
"""

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

UV = "uv==0.13.7"
ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = re.compile("(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-fast.lock")
BUILD = "hatchling\neditables\n"  # to install the project without build isolation
HEADER = """\
# Every package but torch, each file by its hash, for all systems. Made by `make lock`; do not edit.
# torch is left out because its right wheel depends on the machine: see tools/setup.py.
"""


def index_arguments(python: str) -> list[str]:
    """Return the index that pip is configured to use, as arguments for uv."""
    command = [python, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or configured
    return ["--default-index", index] if index else []


def fast_requirements() -> str:
    """Return what a server without torch needs, one requirement per line."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["fast"], *extras["serve"]]
    return "".join(f"{line}\n" for line in needed if not line.startswith("torch>"))


def resolve(folder: str, sources: list[str], given: str, *extra: str) -> str:
    """Return uv's resolution of files and given lines, run in the environment `folder`."""
    python = os.path.join(folder, "bin", "python")
    command = [os.path.join(folder, "bin", "uv"), "pip", "compile", *sources, "-", *extra]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header"]
    command += ["--no-annotate", "--quiet", "--no-config", *index_arguments(python)]
    done = subprocess.run(
        command, cwd=ROOT, input=given, stdout=subprocess.PIPE, text=True, check=True
    )
    return without_torch(done.stdout)


def without_torch(text: str) -> str:
    """Return the entries of a lock, each a line and its hashes, that do not depend on a GPU."""
    entries = re.split(r"(?m)^(?=\S)", text)
    return "".join(entry for entry in entries if not LEFT_OUT.match(entry))


def main() -> int:
    """Replace the locks, unless uv fails or its output contains an address."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            python = os.path.join(folder, "bin", "python")
            subprocess.run([python, "-m", "pip", "install", "--quiet", UV], check=True)
            dev = resolve(folder, ["pyproject.toml"], BUILD, "--extra", "dev")
            pins = os.path.join(folder, "constraints.txt")
            Path(pins).write_text(re.sub(r"(?m) \\$|^    --hash.*\n", "", dev), encoding="utf-8")
            runtime = resolve(folder, ["pyproject.toml"], BUILD, "--constraint", pins)
            fast = resolve(folder, [], fast_requirements(), "--constraint", pins)
    except subprocess.CalledProcessError as error:
        print(f"lock: {error.cmd[0]} failed; nothing changed", file=sys.stderr)
        return 3
    if "/" in dev + runtime + fast:
        print("lock: an address or a path is in the output; nothing changed", file=sys.stderr)
        return 1
    for name, text in zip(LOCKS, (runtime, dev, fast), strict=True):
        (ROOT / name).write_text(HEADER + text, encoding="utf-8")
        print(f"lock: {name}: {text.count('==')} versions", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
