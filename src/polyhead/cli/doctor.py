"""`polyhead doctor`: what this machine offers, and what it lacks."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata

import torch

from polyhead import __version__
from polyhead.devices import bf16_gain, check_bf16, choose
from polyhead.errors import MissingError

MIN_DISK_GB = 3.0
WORTH_BF16 = 1.3  # times as fast: casting takes its share


def examine() -> int:
    """Print what was found; 3 if something that is needed is missing."""
    problems: list[str] = []
    rows: list[tuple[str, Callable[[list[str]], str]]] = [
        ("polyhead", lambda _: __version__),
        ("python", lambda _: f"{platform.python_version()} at {sys.executable}"),
        ("system", lambda _: f"{platform.system()} {platform.machine()}"),
        ("torch", _torch),
        ("device", lambda _: str(choose("auto"))),
        ("threads", lambda _: f"{torch.get_num_threads()} of {os.cpu_count()} cores"),
        ("bf16", _bf16),
        ("memory", _memory),
        ("disk", _disk),
        ("libraries", _libraries),
        ("browser", _browser),
        ("Korean font", _font),
    ]
    for name, look in rows:
        print(f"{name:12} {look(problems)}")
    for problem in problems:
        print(f"polyhead: {problem}", file=sys.stderr)
    return 3 if problems else 0


def _torch(problems: list[str]) -> str:
    version = torch.__version__
    if not version.startswith("2.13.0"):
        problems.append(f"torch {version} is installed, but 2.13.0 is what polyhead is tested with")
    return version


def _bf16(_: list[str]) -> str:
    try:
        check_bf16(choose("cpu"))
    except MissingError:
        return "crashes on this processor; keep train.bf16 = false"
    gain = bf16_gain()
    advice = "train.bf16 = true saves time" if gain > WORTH_BF16 else "train.bf16 = true saves none"
    return f"works; products are {gain:.1f} times as fast as in float32: {advice}"


def _memory(_: list[str]) -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "unknown"
    return f"{pages * size / 2**30:.1f} GiB"


def _disk(problems: list[str]) -> str:
    free = shutil.disk_usage(".").free / 2**30
    if free < MIN_DISK_GB:
        problems.append(f"only {free:.1f} GiB of disk are free here; a run may need more")
    return f"{free:.1f} GiB free here"


def _libraries(_: list[str]) -> str:
    names = ("sentencepiece", "sacrebleu", "safetensors", "pydantic", "numpy")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def _browser(_: list[str]) -> str:
    names = (os.environ.get("CHROME", ""), "chromium", "google-chrome", "chrome", "firefox")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    return found or "none on the path; attention pages open in any browser"


def _font(_: list[str]) -> str:
    if shutil.which("fc-list") is None:
        return "unknown (no fc-list)"
    listed = subprocess.run(
        ["fc-list", ":lang=ko", "family"], capture_output=True, text=True, check=False
    )
    names = sorted({line.split(",")[0].strip() for line in listed.stdout.splitlines()} - {""})
    return ", ".join(names[:3]) or "none; PNG pictures of Korean need one: apt install fonts-nanum"
