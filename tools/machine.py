"""What this machine is: the questions that `make setup` and `make doctor` both ask.

Everything in tools/ that runs before anything is installed uses the standard library only; and it
must be able to tell an old Python that it is too old, so it keeps to what Python 3.7 understands.
"""

import os
import platform
import shutil
import subprocess
import sys

OLDEST_PYTHON = (3, 11)
GIGABYTE = 10**9
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MAC_BROWSERS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


def run(command: list, seconds: int = 60) -> tuple:
    """The exit code of a command and what it said; 127 and why if it cannot be started."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {seconds} seconds"
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout.strip()


def python_trouble(version: tuple = sys.version_info, biggest: int = sys.maxsize) -> str:
    """Why Polyhead cannot live on this Python, in one line; nothing if it can."""
    name, oldest = (".".join(map(str, numbers)) for numbers in (version[:3], OLDEST_PYTHON))
    another = "or name another one: make setup PYTHON=/path/to/python3"
    if tuple(version[:2]) < OLDEST_PYTHON:
        return f"Python {name} is too old; install Python {oldest} or newer, {another}"
    if biggest < 2**32:
        return f"Python {name} is 32-bit and torch is not; install a 64-bit one, {another}"
    return ""


def nvidia_gpus(ask=run) -> list:
    """The NVIDIA GPUs whose driver answers, one line each."""
    code, answer = ask(["nvidia-smi", "-L"])
    return [line for line in answer.splitlines() if line.startswith("GPU ")] if code == 0 else []


def free_gigabytes(folder: str) -> float:
    """Free space, for us, of the disk that holds a folder."""
    return shutil.disk_usage(folder).free / GIGABYTE


def memory_gigabytes() -> float:
    """Physical memory, or 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIGABYTE
    except (ValueError, OSError):
        return 0.0


def cores() -> int:
    """How many processors this process may use, which in a container is fewer than there are."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chromium() -> str:
    """The browser that the tests of the pages drive: $CHROME, or the first of the usual names."""
    chosen = os.environ.get("CHROME", "")
    found = (shutil.which(name) for name in (chosen, *BROWSERS, *MAC_BROWSERS) if name)
    return next((path for path in found if path), "")


def can_write_hangul(ask=run) -> bool:
    """Whether a font for Korean is installed; pages and pictures show boxes without one."""
    if platform.system() == "Darwin":
        return True
    code, answer = ask(["fc-list", ":lang=ko", "family"])
    return code == 0 and bool(answer)
