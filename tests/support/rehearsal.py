"""For the tests of the set-up: its scripts, a project folder, and steps with rehearsed commands."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))  # they are scripts and find each other beside themselves

import bootstrap  # noqa: E402
import choices  # noqa: E402, F401
import doctor  # noqa: E402, F401
import lock  # noqa: E402, F401
import machine  # noqa: E402, F401
import stamp  # noqa: E402


def make_project(root):
    """A folder with all that decides what is installed, and no .venv."""
    (root / "tools").mkdir(parents=True)
    for name in stamp.INPUTS:
        shutil.copy(ROOT / name, root / name)
    return root


def finish(project, build="cpu"):
    """A .venv as a set-up leaves it."""
    folder = project / ".venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "polyhead").touch()
    (folder / "python").symlink_to(sys.executable)
    stamp.write(str(project), stamp.fingerprint(str(project)), build)


def make_script(path, body):
    """A command of that name, to stand in for a real one."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


class Rehearsal(bootstrap.Environment):
    """The steps of a set-up; a command that matches a pattern of `failures` fails with its words.

    The command with the number `interrupted_at` is interrupted instead, in the midst of its work.
    """

    def __init__(self, project, *, asked="", failures=(), interrupted_at=-1, installed=None):
        super().__init__(str(project), {"TORCH": asked}, sys.executable)
        self.failures = dict(failures)
        self.interrupted_at = interrupted_at
        self.installed = installed or ["2.13.0+cpu", ["numpy", "torch"]]
        self.commands = []

    def attempt(self, *command):
        self.commands.append(" ".join(command))
        failing = [
            words for part, words in self.failures.items() if re.search(part, self.commands[-1])
        ]
        if failing:
            return False, failing[0]
        if "venv" in command:
            os.makedirs(os.path.dirname(self.python))
            os.symlink(sys.executable, self.python)
        Path(self.folder, f"trace of command {len(self.commands)}").touch()
        if len(self.commands) - 1 == self.interrupted_at:
            raise KeyboardInterrupt
        if "--editable" in command:
            Path(self.folder, "bin", "polyhead").touch()
        return True, json.dumps(self.installed)
