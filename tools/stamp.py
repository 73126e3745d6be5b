"""Is .venv whole, of this folder, and made from the present files? Asked before every command.

`make test` runs this alone, by the environment's own Python, so a whole environment costs a few
hundredths of a second and one whose Python is gone fails by itself. It must stay small and import
little. The stamp is the last file that setting up writes: without it the environment is half-made.
"""

import hashlib
import json
import os
import sys

INPUTS = (  # all that decides what is installed
    "requirements.lock",
    "pyproject.toml",
    "tools/bootstrap.py",
    "tools/choices.py",
    "tools/machine.py",
    "tools/stamp.py",
)
READY, STALE, BROKEN = "ready", "stale", "broken"
STAMP = os.path.join(".venv", "stamp.json")


def fingerprint(root: str) -> str:
    """One number for the contents of all inputs."""
    digest = hashlib.sha256()
    for name in INPUTS:
        with open(os.path.join(root, name), "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def read(root: str) -> dict:
    """The stamp of a finished environment: its folder, its inputs, its build of torch."""
    with open(os.path.join(root, STAMP), encoding="utf-8") as file:
        stamp = json.load(file)
    return {name: str(stamp[name]) for name in ("folder", "inputs", "build")}


def write(root: str, inputs: str, build: str) -> None:
    """Declare the environment whole; in one movement, so that a stamp is there or is not."""
    path = os.path.join(root, STAMP)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump({"folder": os.path.realpath(root), "inputs": inputs, "build": build}, file)
    os.replace(path + ".new", path)


def judge(root: str, asked: str = "") -> tuple:
    """The environment's state and why: ready, stale (bring up to date) or broken (make anew).

    `asked` is the build of torch that the caller insists on, if any.
    """
    try:
        stamp = read(root)
    except FileNotFoundError:
        return BROKEN, "it was never finished"
    except (OSError, ValueError, KeyError, TypeError):
        return BROKEN, "its stamp cannot be read"
    if stamp["folder"] != os.path.realpath(root):
        return BROKEN, f"it was made in another folder, {stamp['folder']}"
    if not os.path.exists(os.path.join(root, ".venv", "bin", "polyhead")):
        return BROKEN, "the command polyhead is gone from it"
    if asked and asked != stamp["build"]:
        return BROKEN, f"its torch is the build {stamp['build']}, and TORCH={asked} is asked for"
    try:
        changed = stamp["inputs"] != fingerprint(root)
    except OSError as error:
        return STALE, f"{error.filename} cannot be read"
    return (STALE, "the files it was made from have changed") if changed else (READY, "it is whole")


if __name__ == "__main__":
    project = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.exit(judge(project, os.environ.get("TORCH", ""))[0] != READY)
