"""Describe this machine and what `make demo` and `make test` lack here: `make doctor`.

Runs with any Python from 3.7 on, without .venv or with a broken one. Exit code 3 if a row is
marked with !, else 0.
"""

import os
import platform
import shutil
import sys

import setup

FINE, NOTE, WRONG = "  ", "- ", "! "
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TORCH = "import torch; print(torch.__version__, 'GPU' if torch.cuda.is_available() else 'no GPU')"


def describe_python() -> list:
    """Return rows about the Python that would create .venv."""
    problem = setup.python_problem()
    text = f"{platform.python_version()} ({sys.executable})"
    rows = [(WRONG, "Python", problem) if problem else (FINE, "Python", text)]
    if setup.run([sys.executable, "-c", "import venv"])[0]:
        rows.append((WRONG, "venv", "missing; Debian: apt install python3-venv"))
    return rows


def describe_machine(root: str) -> list:
    """Return rows about processors, disk, GPU, browser and fonts."""
    free = shutil.disk_usage(root).free / 10**9
    needs_space = free < 3 and setup.judge(root)[0] == setup.BROKEN
    names = (os.environ.get("CHROME", ""), *BROWSERS)
    browser = next((path for path in map(shutil.which, filter(None, names)) if path), "")
    fonts = platform.system() == "Darwin" or setup.run(["fc-list", ":lang=ko", "family"])[1]
    return [
        (FINE, "system", f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"),
        (WRONG if needs_space else FINE, "disk", f"{free:.1f} GB free, .venv needs 3 GB"),
        (FINE, "GPU", "NVIDIA" if setup.has_gpu() else "none by nvidia-smi; the CPU wheel is used"),
        (FINE, "Chromium", browser) if browser else
        (NOTE, "Chromium", "not found, browser tests are skipped; Debian: apt install chromium"),
        (FINE, "Korean font", "found") if fonts else
        (NOTE, "Korean font", "not found; Debian: apt install fonts-nanum"),
    ]  # fmt: skip


def describe_environment(root: str) -> list:
    """Return rows about .venv and its torch."""
    if not os.path.lexists(os.path.join(root, ".venv")):
        return [(NOTE, ".venv", "not created yet; run: make setup")]
    state, reason = setup.judge(root)
    if state != setup.READY:
        return [(WRONG if state == setup.BROKEN else NOTE, ".venv", f"{reason}; run: make setup")]
    code, output = setup.run(
        [os.path.join(root, ".venv", setup.BIN, "python" + setup.EXE), "-I", "-c", TORCH], 300
    )
    line = setup.last_line(output)
    if code:
        return [(WRONG, ".venv", f"torch does not start: {line}; run: make clean setup")]
    return [(FINE, ".venv", f"complete, torch {line}")]


def main(root: str) -> int:
    """Print one row per finding."""
    rows = [*describe_python(), *describe_machine(root), *describe_environment(root)]
    for mark, subject, text in rows:
        print(f"{mark}{subject:<13}{text}")
    wrong = sum(mark == WRONG for mark, _, _ in rows)
    print(f"\n{wrong} to fix (!)" if wrong else "\nNo problems found.")
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(setup.ROOT))
