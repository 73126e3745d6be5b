"""Make .venv from nothing: `make setup`. One short line per step; pip's own words go to a log.

    hold → judge → venv → pip → torch → requirements.lock → polyhead → check → stamp

* torch comes first and alone. Which of its wheels is right depends on the machine: the plain one
  for Linux brings 2.7 GB of CUDA along, the one without is 0.2 GB, and a lock cannot hold both.
* Everything else is in requirements.lock, every file by its hash.
* The stamp comes last. An interrupted environment has none and is made anew; a whole one whose
  inputs changed is only brought up to date.

What the user or the machine can cause ends as one line on stderr and exit code 3.
"""

import fcntl
import glob
import http.client
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request

import choices
import machine
import stamp
from choices import SetupError

LOG = os.path.join(".venv", "setup.log")
KEPT = ("setup.lock", "setup.log")  # of .venv, when it is made anew
PIP_ARCHIVE = "https://bootstrap.pypa.io/pip/pip.pyz"
PIP_HELP = "install it (Debian: apt install python3-venv) and repeat"
PROBE = """
import importlib.metadata, json, torch
names = {package.metadata["Name"] or "" for package in importlib.metadata.distributions()}
print(json.dumps([torch.__version__, sorted(names)]))
"""


def say(line: str) -> None:
    """Tell the user what happens; on stderr, so that the output of commands stays clean."""
    print(f"setup: {line}", file=sys.stderr, flush=True)


def bundled_pips() -> list:
    """Wheels of pip that the system keeps on disk, as Debian does."""
    folders = {"/usr/share/python-wheels", sysconfig.get_config_var("WHEEL_PKG_DIR") or ""} - {""}
    return sorted(path for f in folders for path in glob.glob(os.path.join(f, "pip-*.whl")))


class Environment:
    """The .venv of a project folder, and the steps that make it."""

    def __init__(self, root: str, variables: dict, base: str) -> None:
        self.root = os.path.realpath(root)
        self.folder = os.path.join(self.root, ".venv")
        self.python = os.path.join(self.folder, "bin", "python")
        self.log = os.path.join(self.root, LOG)
        self.base = base  # the Python that it is made with
        self.asked = variables.get("TORCH", "")
        self.variables = choices.clean_environment(variables)
        self.held = ()  # the lock, once we have it

    def attempt(self, *command: str) -> tuple:
        """Run a command, its words to the log; whether it went well, and what it said.

        The child holds the lock too: should it outlive us, nobody interferes with it.
        """
        with open(self.log, "ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            try:
                code = subprocess.run(
                    command,
                    cwd=self.root,
                    env=self.variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=self.held,
                    check=False,
                ).returncode
            except OSError as error:
                return False, str(error)
        with open(self.log, "rb") as log:
            log.seek(start)
            return code == 0, log.read().decode("utf-8", "replace").strip()

    def install(self, *arguments: str) -> None:
        """Let the environment's own pip install something, or say why it cannot."""
        fine, words = self.attempt(self.python, "-m", "pip", "install", *arguments)
        if not fine:
            raise SetupError(f"{choices.explain(words)} (details: {LOG})")

    def hold(self) -> None:
        """Wait until no other set-up works in this folder, then keep others out until we end."""
        try:
            os.makedirs(self.folder, exist_ok=True)
            lock = os.open(os.path.join(self.folder, "setup.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise SetupError(
                f"cannot write {self.folder} ({error.strerror}); "
                "make the folder writable, or copy the project elsewhere"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work in this folder; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        self.held = (lock,)
        with open(self.log, "wb"):
            pass  # one log per set-up

    def state(self) -> tuple:
        """What the stamp says, unless the environment's Python does not even start."""
        state, reason = stamp.judge(self.root, self.asked)
        if state != stamp.BROKEN and not self.attempt(self.python, "-c", "")[0]:
            return stamp.BROKEN, "its Python does not start"
        return state, reason

    def clear(self) -> bool:
        """Empty the folder, except for the lock and the log; whether there was anything in it."""
        names = sorted(set(os.listdir(self.folder)) - set(KEPT))
        for path in (os.path.join(self.folder, name) for name in names):
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.remove(path)
        return bool(names)

    def create(self, needed: int) -> None:
        """An empty environment with pip in it."""
        free = machine.free_gigabytes(self.folder)
        if free < needed:
            raise SetupError(
                f"{free:.1f} GB are free on this disk, {needed} GB are needed; make room"
            )
        say(f"making .venv with Python {platform.python_version()}")
        fine, words = self.attempt(self.base, "-m", "venv", "--without-pip", self.folder)
        if not fine:
            raise SetupError(f"Python lacks venv ({choices.last_line(words)}); {PIP_HELP}")
        with tempfile.TemporaryDirectory() as scratch:
            for command in self.pips(scratch):
                if self.attempt(*command)[0] and self.attempt(self.python, "-m", "pip", "-V")[0]:
                    return
        raise SetupError(f"this Python lacks pip and it cannot be fetched; {PIP_HELP}")

    def pips(self, scratch: str):
        """Ways to get a pip into the environment, nearest first; Debian keeps ensurepip apart."""
        yield self.python, "-m", "ensurepip", "--default-pip"
        for wheel in bundled_pips():
            yield self.python, os.path.join(wheel, "pip"), "install", "--no-index", wheel
        yield self.base, "-m", "pip", "--python", self.python, "install", "pip"
        yield "pip", "--python", self.python, "install", "pip"
        yield "uv", "pip", "install", "--python", self.python, "pip"
        say("fetching pip, which this Python lacks")
        archive = os.path.join(scratch, "pip.pyz")
        try:
            with urllib.request.urlopen(PIP_ARCHIVE, timeout=60) as answer:
                data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            with open(self.log, "a", encoding="utf-8") as log:
                log.write(f"\n{PIP_ARCHIVE}: {error}\n")
            return
        with open(archive, "wb") as file:
            file.write(data)
        yield self.python, archive, "install", "--ignore-installed", "pip"

    def install_torch(self, system: str, build: str) -> None:
        """The first attempt that succeeds; a failure names what torch is missing for."""
        meanings = []
        for wanted in choices.torch_attempts(system, build):
            fine, words = self.attempt(self.python, "-m", "pip", "install", *wanted)
            if fine:
                return
            meanings.append(choices.explain(words))
            if not meanings[-1].startswith(choices.NOT_THERE):
                break
        where = f"Python {platform.python_version()} on {system} {platform.machine()}"
        raise SetupError(f"{choices.explain_torch(build, where, meanings)} (details: {LOG})")

    def check(self, system: str, build: str) -> None:
        """See that torch starts and is the one that was meant; if not, nothing of it may stay."""
        fine, words = self.attempt(self.python, "-c", PROBE)
        if not fine:
            reason = choices.last_line(words)
            raise SetupError(f"torch is installed but does not start: {reason} (details: {LOG})")
        version, packages = json.loads(choices.last_line(words))
        wrong = choices.wrong_torch(system, build, version, packages)
        if wrong:
            self.clear()
            raise SetupError(f"{wrong}, so .venv was removed; correct the index that pip uses")

    def make_ready(self) -> None:
        """All steps that are needed, and no others."""
        self.hold()
        state, reason = self.state()
        if state == stamp.READY:
            return
        system, inputs = platform.system(), stamp.fingerprint(self.root)
        build = choices.choose_build(system, machine.nvidia_gpus(), self.asked)
        if state == stamp.STALE:
            say(f"bringing .venv up to date: {reason}")
            build = stamp.read(self.root)["build"]
            os.remove(os.path.join(self.root, stamp.STAMP))
        else:
            if self.clear():
                say(f"making .venv anew: {reason}")
            size, needed = choices.torch_size(system, build)
            self.create(needed)
            say(f"installing torch {choices.TORCH} ({build}), {size} ...")
        self.install_torch(system, build)
        say("installing the other packages, about 150 MB if they are not here yet ...")
        self.install("--require-hashes", "--requirement", "requirements.lock")
        say("installing polyhead itself and checking")
        self.install("--no-deps", "--no-build-isolation", "--no-index", "--editable", ".")
        self.check(system, build)
        stamp.write(self.root, inputs, build)
        say(".venv is ready")


def main(root: str) -> int:
    """The exit code: 0 ready, 3 not possible here (one line said why), 130 and 143 interrupted."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # raised in run(), which ends the child
    trouble = machine.python_trouble()
    try:
        if trouble:
            raise SetupError(trouble)
        Environment(root, dict(os.environ), sys._base_executable).make_ready()
    except SetupError as error:
        say(str(error))
        return 3
    except OSError as error:
        say(f"{error.strerror or error}: {error.filename or root}; repair that and repeat")
        return 3
    except KeyboardInterrupt:
        say("interrupted; `make setup` begins again")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
