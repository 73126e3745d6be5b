"""Write requirements.lock anew from pyproject.toml: `make lock`.

uv resolves for all systems and Pythons at once and notes the hash of every file; plain pip can read
the result. torch and what only serves a GPU stay out: tools/bootstrap.py installs torch, as its
right wheel depends on the machine. Neither an index nor a path of this machine may get in.
"""

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

UV = "uv==0.13.7"
ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = re.compile("(torch|triton|nvidia-[a-z0-9-]+|cuda-[a-z0-9-]+)==")
BUILD = "hatchling\neditables\n"  # to install the project itself without a second environment
HEADER = """\
# Every package but torch, each file by its hash, for all systems. Made by `make lock`; do not edit.
# torch is left out because its right wheel depends on the machine: see tools/bootstrap.py.
"""


def configured_index(python: str) -> list:
    """The index that pip is told to use here, as arguments for uv, which does not ask pip."""
    asked = subprocess.run(
        [python, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    index = os.environ.get("PIP_INDEX_URL") or asked.stdout.strip()
    return ["--default-index", index] if index else []


def resolve(folder: str) -> str:
    """What uv answers, installed into a scratch environment of its own."""
    venv.create(folder, with_pip=True)
    python = os.path.join(folder, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", UV], check=True)
    command = [os.path.join(folder, "bin", "uv"), "pip", "compile", "pyproject.toml", "-"]
    command += ["--extra", "dev", "--universal", "--python-version", "3.11"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--quiet", "--no-config"]
    command += configured_index(python)
    done = subprocess.run(
        command, cwd=ROOT, input=BUILD, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def without_torch(text: str) -> str:
    """The entries of a lock, each a line and its hashes, that a machine without a GPU needs."""
    entries = re.split(r"(?m)^(?=\S)", text)
    return "".join(entry for entry in entries if not LEFT_OUT.match(entry))


def main() -> int:
    """Replace the lock, unless uv fails or a place has got into its answer."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            text = without_torch(resolve(folder))
    except subprocess.CalledProcessError as error:
        print(
            f"lock: {Path(error.cmd[0]).name} failed, see above; nothing changed", file=sys.stderr
        )
        return 3
    if "/" in text:
        print("lock: an address or a path is in the answer; nothing changed", file=sys.stderr)
        return 1
    (ROOT / "requirements.lock").write_text(HEADER + text, encoding="utf-8")
    print(f"lock: {text.count('==')} versions, {text.count('--hash')} files", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
