"""`polyhead doctor`: versions and resources of this machine."""

import os
import platform
import shutil
import subprocess
import sys

import typer

from polyhead.errors import MissingError

TESTED_TORCH = "2.13.0"
MIN_DISK_GIB = 3.0
MIN_BF16_GAIN = 1.3  # casting costs some of the gain
LIBRARIES = ("sentencepiece", "sacrebleu", "safetensors", "pydantic", "numpy")


def doctor() -> None:
    """Print versions and resources of this machine; exits with 3 if something is missing."""
    from importlib import metadata

    import torch

    from polyhead import __version__
    from polyhead.devices import choose

    free = shutil.disk_usage(".").free / 2**30
    rows = {
        "polyhead": __version__,
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": f"{platform.system()} {platform.machine()}",
        "torch": torch.__version__,
        "device": str(choose("auto")),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "bf16": bf16_advice(),
        "memory": memory_size(),
        "disk": f"{free:.1f} GiB free here",
        "libraries": ", ".join(f"{name} {metadata.version(name)}" for name in LIBRARIES),
        "browser": browser_path() or "not found; attention pages open in any browser",
        "Korean font": korean_fonts(),
    }
    for name, value in rows.items():
        print(f"{name:12} {value}")
    problems = []
    if not torch.__version__.startswith(TESTED_TORCH):
        problems.append(f"torch {torch.__version__}: polyhead is tested with {TESTED_TORCH}")
    if free < MIN_DISK_GIB:
        problems.append(f"only {free:.1f} GiB of disk are free here; a run may need more")
    for problem in problems:
        print(f"polyhead: {problem}", file=sys.stderr)
    raise typer.Exit(MissingError.exit_code if problems else 0)


def bf16_advice() -> str:
    """Return whether train.bf16 works on this processor, and whether it is faster."""
    from polyhead.devices import bf16_gain, check_bf16, choose

    try:
        check_bf16(choose("cpu"))
    except MissingError:
        return "crashes on this processor; keep train.bf16=false"
    gain = bf16_gain()
    if gain > MIN_BF16_GAIN:
        return f"bf16 is {gain:.1f}x faster here; set train.bf16=true"
    return f"bf16 is {gain:.1f}x as fast as float32 here; keep train.bf16=false"


def memory_size() -> str:
    """Return the size of the main memory."""
    try:
        n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "unknown"
    return f"{n_bytes / 2**30:.1f} GiB"


def browser_path() -> str | None:
    """Return the path of the first known browser."""
    names = (os.environ.get("CHROME", ""), "chromium", "google-chrome", "chrome", "firefox")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def korean_fonts() -> str:
    """Return the names of installed fonts with Korean letters."""
    if shutil.which("fc-list") is None:
        return "unknown (no fc-list)"
    command = ["fc-list", ":lang=ko", "family"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    names = sorted({line.split(",")[0].strip() for line in output.splitlines()} - {""})
    return ", ".join(names[:3]) or "none; PNG pictures of Korean need one: apt install fonts-nanum"
