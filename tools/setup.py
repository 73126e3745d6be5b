"""Create or update .venv: `make setup`.

    setup.py            what `polyhead` needs
    setup.py --dev      and what lint and tests need
    setup.py --check    only exit with 0 if nothing has to be done

Without make, as on Windows: python tools/setup.py --dev

torch is installed first and alone, because its right wheel depends on the machine (the CPU wheel
unless there is an NVIDIA GPU) and a lock file cannot hold both. All other packages come from
requirements.lock and requirements-dev.lock, pinned by hash. The stamp is written last: an
environment without one is incomplete and is created again. pip's output goes to .venv/setup.log.

The file uses the standard library only and the syntax of Python 3.7, so that an old Python can
print which version is needed. A problem ends as one line on stderr and exit code 3.
"""

import glob
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.request

try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

    fcntl = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST_PYTHON = (3, 11)
TORCH = "2.13.0"
PIP_ARCHIVE = "https://bootstrap.pypa.io/pip/pip.pyz"
TORCH_INDEX = "https://download.pytorch.org/whl/"
LOCKS = ("requirements.lock", "requirements-dev.lock")
INPUTS = (*LOCKS, "pyproject.toml", "tools/setup.py")  # what decides what is installed
BIN, EXE = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
READY, STALE, BROKEN = "ready", "stale", "broken"
PROBE = """
import importlib.metadata, json, torch
names = {package.metadata["Name"] or "" for package in importlib.metadata.distributions()}
print(json.dumps([torch.__version__, sorted(names)]))
"""
DROPPED = re.compile(  # variables that change what pip installs, or where
    "PYTHON(PATH|HOME|USERBASE|OPTIMIZE)|__PYVENV_LAUNCHER__|VIRTUAL_ENV|PIP_(TARGET|PREFIX|ROOT"
    "|PYTHON|SRC|DRY_RUN|LOG|CONSTRAINT|BUILD_CONSTRAINT|NO_BINARY|PRE|REQUIRE_HASHES"
    "|IGNORE_INSTALLED|IGNORE_REQUIRES_PYTHON|PLATFORM|QUIET|PYTHON_VERSION|REPORT)"
)
PIP_SETTINGS = {
    "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1", "PYTHONNOUSERSITE": "1",
    "PIP_PROGRESS_BAR": "off", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}  # fmt: skip
NOT_FOUND = "the package index has no"
EXPLANATIONS = (  # (pattern of pip's output, message); the first match is used
    ("DO NOT MATCH THE HASHES", "a package differs from its hash in the lock; check your index"),
    ("No space left on device", "the disk is full (pip unpacks in $TMPDIR first); free some space"),
    ("Read-only file system|Permission denied", "a folder is not writable; change its permissions"),
    ("CERTIFICATE_VERIFY_FAILED", "the index's certificate is not trusted; set PIP_CERT"),
    (
        "NewConnectionError|NameResolutionError|name resolution|Name or service not known|"
        "nodename nor servname|Network is unreachable|No route to host|Max retries exceeded|"
        "ConnectTimeout|ReadTimeout|timed out|ProxyError|Connection (refused|reset|aborted)",
        "the package index cannot be reached; check the network, or set PIP_INDEX_URL or "
        "PIP_FIND_LINKS to a mirror",
    ),
)


class SetupError(Exception):
    """A problem in one line that says what to do."""


def say(line: str) -> None:
    """Print progress on stderr."""
    print("setup: " + line, file=sys.stderr, flush=True)


def python_problem(version: tuple = sys.version_info, max_size: int = sys.maxsize) -> str:
    """Return why this Python cannot run Polyhead, or an empty string."""
    name, oldest = (".".join(map(str, numbers)) for numbers in (version[:3], OLDEST_PYTHON))
    other = "or choose another one: make setup PYTHON=/path/to/python3"
    if tuple(version[:2]) < OLDEST_PYTHON:
        return f"Python {name} is too old; install Python {oldest} or newer, {other}"
    if max_size < 2**32:
        return f"Python {name} is 32-bit; torch needs a 64-bit one, {other}"
    return ""


def run(command: list, seconds: int = 60) -> tuple:
    """Run a command; return its exit code and its output (127 if it does not start)."""
    pipe = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(
            command, encoding="utf-8", errors="replace", timeout=seconds, check=False, **pipe
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {seconds} seconds"
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout.strip()


def has_gpu() -> bool:
    """Return True if an NVIDIA driver lists a GPU."""
    code, output = run(["nvidia-smi", "-L"])
    return code == 0 and output.startswith("GPU ")


def choose_build(system: str, gpu: bool, requested: str) -> str:
    """Return the build of torch: `plain` is the wheel without suffix (macOS; CUDA on Linux)."""
    if requested and not re.fullmatch("cpu|xpu|plain|cu[0-9]+|rocm[0-9.]+", requested):
        raise SetupError(f"TORCH={requested}: unknown build; expected cpu, plain, cu130 or similar")
    if system == "Darwin" and requested not in ("", "plain"):
        raise SetupError(f"TORCH={requested} does not exist for macOS; leave TORCH out")
    return requested or ("plain" if gpu or system == "Darwin" else "cpu")


def torch_requirements(system: str, build: str) -> list:
    """Return pip's arguments to try in turn; configured indexes first, a mirror may have it.

    The suffix is explicit, so that pip never takes the CUDA wheel for the CPU one.
    """
    alone = ["--no-deps"] if build == "cpu" or system == "Darwin" else []
    if build == "plain":
        return [[f"torch=={TORCH}", *alone]]
    wanted = [f"torch=={TORCH}+{build}", *alone]
    return [wanted, [*wanted, "--extra-index-url", TORCH_INDEX + build]]


def torch_problem(system: str, build: str, version: str, packages: list) -> str:
    """Return what is wrong with an installed torch, or an empty string."""
    suffix = "" if build == "plain" else f"+{build}"
    if not version.startswith(TORCH) or not version.endswith(suffix):
        return f"torch {version} was installed instead of {TORCH}{suffix}"
    cuda = [name for name in packages if re.match("nvidia[-_]|cuda[-_]|triton$", name.lower())]
    if cuda and (build == "cpu" or system == "Darwin"):
        return f"GPU packages were installed: {', '.join(cuda)}"
    return ""


def explain(output: str) -> str:
    """Return in one line why pip failed."""
    for pattern, message in EXPLANATIONS:
        if re.search(pattern, output):
            return message
    missing = re.search("No matching distribution found for ([^ \n]+)", output)
    if missing:
        return f"{NOT_FOUND} {missing[1]} for this Python"
    errors = re.findall("^ *(?:ERROR|error): *([^\n]+)", output, re.MULTILINE)
    return errors[-1] if errors else last_line(output)


def last_line(output: str) -> str:
    """Return the last line, where a traceback names its error."""
    return output.strip().rpartition("\n")[2] or "no message"


def fingerprint(root: str) -> str:
    """Return one digest of all inputs."""
    digest = hashlib.sha256()
    for name in INPUTS:
        with open(os.path.join(root, name), "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def try_lock(descriptor: int) -> bool:
    """Lock an open file; return False if another process has locked it."""
    try:
        if fcntl:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


def judge(root: str, requested: str = "", dev: bool = False) -> tuple:
    """Return the state of .venv (ready, stale: update it, broken: create it) and the reason."""
    try:
        with open(os.path.join(root, ".venv", "stamp.json"), encoding="utf-8") as file:
            stamp = json.load(file)
        folder, inputs, build = (str(stamp[name]) for name in ("folder", "inputs", "build"))
    except (OSError, ValueError, KeyError, TypeError):
        return BROKEN, "it is incomplete"
    if folder != os.path.realpath(root):
        return BROKEN, f"it was created in another folder, {folder}"
    if not os.path.exists(os.path.join(root, ".venv", BIN, "polyhead" + EXE)):
        return BROKEN, "its command polyhead is missing"
    if requested and requested != build:
        return BROKEN, f"its torch is the build {build}, not {requested}"
    if inputs != fingerprint(root):
        return STALE, "its requirements have changed"
    if dev and not stamp.get("dev"):
        return STALE, "the packages for lint and tests are missing"
    return READY, "complete"


class Environment:
    """The .venv of a project folder."""

    def __init__(self, root: str, variables: dict, dev: bool = False) -> None:
        self.root, self.dev = os.path.realpath(root), dev
        self.folder = os.path.join(self.root, ".venv")
        self.python = os.path.join(self.folder, BIN, "python" + EXE)
        self.log = os.path.join(self.folder, "setup.log")
        self.requested = variables.get("TORCH", "")
        self.variables = {k: v for k, v in variables.items() if not DROPPED.fullmatch(k)}
        self.variables.update(PIP_SETTINGS)
        self.lock = ()

    def hold(self) -> None:
        """Wait until no other set-up runs in this folder, and keep others out until we exit."""
        try:
            os.makedirs(self.folder, exist_ok=True)
            lock = os.open(os.path.join(self.folder, "setup.lock"), os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise SetupError(f"cannot write {self.folder} ({error.strerror})") from error
        if not try_lock(lock):
            say("another set-up is running in this folder; waiting")
            while not try_lock(lock):
                time.sleep(0.1)
        self.lock = (lock,) if fcntl else ()  # what children inherit
        open(self.log, "wb").close()

    def attempt(self, *command: str) -> tuple:
        """Run a command, output to the log; return success and output.

        The child inherits the lock, so that it stays held if the child outlives this process.
        """
        with open(self.log, "ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            start = log.tell()
            try:
                done = subprocess.run(
                    command, cwd=self.root, env=self.variables, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log, pass_fds=self.lock, check=False,
                )  # fmt: skip
            except OSError as error:
                return False, str(error)
        with open(self.log, "rb") as log:
            log.seek(start)
            return done.returncode == 0, log.read().decode("utf-8", "replace").strip()

    def pip(self, *arguments: str) -> None:
        """Run `pip install` in the environment."""
        success, output = self.attempt(self.python, "-m", "pip", "install", *arguments)
        if not success:
            raise SetupError(f"{explain(output)} (details: .venv/setup.log)")

    def create(self, needed: int) -> None:
        """Create an empty environment with pip in it."""
        free = shutil.disk_usage(self.folder).free / 10**9
        if free < needed:
            raise SetupError(
                f"{free:.1f} GB free on this disk, {needed} GB needed; free some space"
            )
        for name in set(os.listdir(self.folder)) - {"setup.lock", "setup.log"}:
            path = os.path.join(self.folder, name)
            is_folder = os.path.isdir(path) and not os.path.islink(path)
            (shutil.rmtree if is_folder else os.remove)(path)
        say(f"creating .venv with Python {platform.python_version()}")
        base, hint = sys._base_executable, "install it (Debian: apt install python3-venv)"
        success, output = self.attempt(base, "-m", "venv", "--without-pip", self.folder)
        if not success:
            raise SetupError(f"Python lacks venv ({last_line(output)}); {hint}")
        folders = ("/usr/share/python-wheels", sysconfig.get_config_var("WHEEL_PKG_DIR") or "/none")
        wheels = sorted(path for f in folders for path in glob.glob(os.path.join(f, "pip-*.whl")))
        sources = [[self.python, "-m", "ensurepip", "--default-pip"]]
        sources += [[self.python, f"{w}/pip", "install", "--no-index", w] for w in wheels]
        sources += [[base, "-m", "pip", "--python", self.python, "install", "pip"]]
        sources += [["uv", "pip", "install", "--python", self.python, "pip"]]
        for command in sources:
            if self.attempt(*command)[0] and self.attempt(self.python, "-m", "pip", "-V")[0]:
                return
        archive = os.path.join(self.folder, "pip.pyz")
        try:
            with urllib.request.urlopen(PIP_ARCHIVE, timeout=60) as answer:
                data = answer.read()
            with open(archive, "wb") as file:
                file.write(data)
        except OSError as error:
            raise SetupError(f"this Python lacks pip ({error}); {hint}") from error
        if not self.attempt(self.python, archive, "install", "--ignore-installed", "pip")[0]:
            raise SetupError(f"this Python lacks pip; {hint}")

    def install_torch(self, system: str, build: str) -> None:
        """Install torch from the first index that has it."""
        reasons = []
        for arguments in torch_requirements(system, build):
            success, output = self.attempt(self.python, "-m", "pip", "install", *arguments)
            if success:
                return
            reasons.append(explain(output))
            if not reasons[-1].startswith(NOT_FOUND):
                break
        if reasons[0].startswith(NOT_FOUND):
            machine = f"Python {platform.python_version()} on {system} {platform.machine()}"
            reasons[0] = (
                f"no package index in use has torch {TORCH} ({build}) for {machine}; choose "
                "another Python (make setup PYTHON=/path/to/python3), or set PIP_FIND_LINKS to a "
                "folder of wheels"
            )
        raise SetupError(f"{reasons[0]} (details: .venv/setup.log)")

    def check_torch(self, system: str, build: str) -> None:
        """Check that torch starts and is the intended build."""
        success, output = self.attempt(self.python, "-c", PROBE)
        if not success:
            raise SetupError(f"torch does not start: {last_line(output)} (see .venv/setup.log)")
        problem = torch_problem(system, build, *json.loads(last_line(output)))
        if problem:
            raise SetupError(f"{problem}; correct the index that pip uses")

    def make_ready(self) -> None:
        """Run the steps that are needed."""
        self.hold()
        state, reason = judge(self.root, self.requested, self.dev)
        if state != BROKEN and not self.attempt(self.python, "-c", "")[0]:
            state, reason = BROKEN, "its Python does not start"
        if state == READY:
            return
        system, inputs, stamp = (
            platform.system(),
            fingerprint(self.root),
            self.folder + "/stamp.json",
        )
        if state == STALE:
            say(f"updating .venv: {reason}")
            with open(stamp, encoding="utf-8") as file:
                old = json.load(file)
            build, self.dev = old["build"], self.dev or bool(old.get("dev"))
            os.remove(stamp)
        else:
            build = choose_build(system, has_gpu(), self.requested)
            large = system != "Darwin" and build != "cpu"
            self.create(12 if large else 3)
            say(f"installing torch {TORCH} ({build}), about {'2.7 GB' if large else '200 MB'}")
        self.install_torch(system, build)
        say(f"installing the other packages, about {150 if self.dev else 60} MB")
        self.pip("--require-hashes", "--requirement", LOCKS[1] if self.dev else LOCKS[0])
        self.pip("--no-deps", "--no-build-isolation", "--no-index", "--editable", ".")
        self.check_torch(system, build)
        with open(stamp + ".new", "w", encoding="utf-8") as file:
            contents = {"folder": self.root, "inputs": inputs, "build": build, "dev": self.dev}
            json.dump(contents, file)
        os.replace(stamp + ".new", stamp)
        say(".venv is ready")


def main(arguments: list) -> int:
    """Return 0 if .venv is ready, 3 if it cannot be made here, 130 and 143 if interrupted."""
    dev = "--dev" in arguments
    if "--check" in arguments:
        return int(judge(ROOT, os.environ.get("TORCH", ""), dev)[0] != READY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        problem = python_problem()
        if problem:
            raise SetupError(problem)
        Environment(ROOT, dict(os.environ), dev).make_ready()
    except SetupError as error:
        say(str(error))
        return 3
    except OSError as error:
        say(f"{error.strerror or error}: {error.filename or ROOT}")
        return 3
    except KeyboardInterrupt:
        say("interrupted; run `make setup` again")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
