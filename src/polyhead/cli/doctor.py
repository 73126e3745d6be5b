"""`polyhead doctor`: versions and resources of this machine."""

import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata

import typer

from polyhead.errors import MissingError, torch_needed

TESTED_TORCH = ("2.10", "2.15")  # the oldest and the newest that the tests were run with
MIN_DISK_GIB = 3.0
MIN_BF16_GAIN = 1.3  # casting costs some of the gain
LIBRARIES = ("sentencepiece", "sacrebleu", "safetensors", "pydantic", "numpy", "ctranslate2")


def doctor() -> None:
    """Print versions and resources of this machine.

    Exits with 3 if something is missing.
    """
    from polyhead import __version__

    free = shutil.disk_usage(".").free / 2**30
    torch_rows, problems = describe_torch()
    rows = {
        "polyhead": __version__,
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": f"{platform.system()} {platform.machine()}",
        **torch_rows,
        "disk": f"{free:.1f} GiB free here",
        "libraries": ", ".join(f"{name} {version_of(name)}" for name in LIBRARIES),
        "browser": browser_path() or "not found; attention pages open in any browser",
        "Korean font": korean_fonts(),
    }
    for name, value in rows.items():
        print(f"{name:12} {value}")
    if free < MIN_DISK_GIB:
        problems.append(f"only {free:.1f} GiB of disk are free here; a run may need more")
    for problem in problems:
        print(f"polyhead: {problem}", file=sys.stderr)
    raise typer.Exit(MissingError.exit_code if problems else 0)


def describe_torch() -> tuple[dict[str, str], list[str]]:
    """Return the rows that need torch, and what is wrong with it."""
    try:
        with torch_needed():
            import torch

            from polyhead.devices import choose, memory_size
    except MissingError as error:
        return {"torch": "not installed"}, [f"{error}. The fast engine works without it."]
    memory = memory_size()
    rows = {
        "torch": torch.__version__,
        "device": str(choose("auto")),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "bf16": bf16_advice(),
        "memory": "unknown" if memory is None else f"{memory / 2**30:.1f} GiB",
    }
    oldest, installed, newest = (
        tuple(map(int, text.split(".")[:2]))
        for text in (TESTED_TORCH[0], torch.__version__, TESTED_TORCH[1])
    )
    tested = f"torch {torch.__version__}: polyhead is tested with {' to '.join(TESTED_TORCH)}"
    return rows, [] if oldest <= installed <= newest else [tested]


def version_of(name: str) -> str:
    """Return the version of an installed package, or that it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


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
