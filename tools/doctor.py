"""Explain this machine: `make doctor`. What is here, what is wrong, and what to do about it.

It must run where nothing else does: with an old Python, without .venv, and with a broken one. The
exit code is 3 if anything is wrong that would stop `make demo` or `make test`, else 0.
"""

import os
import platform
import sys

import choices
import machine
import stamp

FINE, NOTE, WRONG = "  ", "- ", "! "
CHROMIUM_HELP = "the tests of the pages are left out; Debian: apt install chromium"
FONTS_HELP = "Korean shows as boxes in pictures; Debian: apt install fonts-nanum"
ASK_PIP = "import pip; print(pip.__version__)"
ASK_TORCH = """
import torch
gpu = "with GPU" if torch.cuda.is_available() else "without GPU"
print(f"{torch.__version__}, {torch.get_num_threads()} threads, {gpu}")
"""


def describe_python(ask=machine.run) -> list:
    """The Python that would make .venv, and what it brings along."""
    trouble = machine.python_trouble()
    text = f"{platform.python_version()} ({sys.executable})"
    rows = [(WRONG, "Python", trouble) if trouble else (FINE, "Python", text)]
    if ask([sys.executable, "-c", "import venv"])[0] != 0:
        rows.append((WRONG, "venv", "missing from this Python; Debian: apt install python3-venv"))
    if ask([sys.executable, "-c", "import ensurepip"])[0] != 0:
        rows.append((NOTE, "ensurepip", "missing from this Python; `make setup` finds another pip"))
    code, answer = ask([sys.executable, "-m", "pip", "--version"])
    version = " ".join(answer.split()[1:2]) if code == 0 else "none"
    return [*rows, (FINE, "pip", f"{version}; not touched, .venv has its own")]


def describe_machine() -> list:
    """Processors, memory, disk and GPU."""
    memory, gpus = machine.memory_gigabytes(), machine.nvidia_gpus()
    return [
        (FINE, "system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        (FINE, "cores", str(machine.cores())),
        (FINE, "memory", f"{memory:.1f} GB") if memory >= 2 else
        (NOTE, "memory", f"{memory:.1f} GB; the demonstration needs about 2"),
        (FINE, "GPU", "; ".join(gpus) or "none by nvidia-smi -L; torch without CUDA is used"),
    ]  # fmt: skip


def describe_disk(root: str, finished: bool) -> tuple:
    """Free space; only an environment that is still to be made needs much."""
    free, needed = machine.free_gigabytes(root), choices.NEEDED_GIGABYTES
    if free < needed and not finished:
        return WRONG, "disk", f"{free:.1f} GB free, {needed} GB needed by .venv; make room"
    return FINE, "disk", f"{free:.1f} GB free"


def describe_environment(root: str, ask=machine.run) -> list:
    """The state of .venv, and whether its pip and its torch start."""
    if not os.path.lexists(os.path.join(root, ".venv")):
        return [(NOTE, ".venv", "not made yet; run: make setup")]
    state, reason = stamp.judge(root)
    python = os.path.join(root, ".venv", "bin", "python")
    code, version = ask([python, "-I", "-c", "import platform; print(platform.python_version())"])
    if code != 0:
        why = f"its Python does not start: {choices.last_line(version)}"
        return [(WRONG, ".venv", f"{why}; `make setup` makes it anew")]
    rows = [(FINE, ".venv", f"{reason}, Python {version}")]
    if state == stamp.STALE:
        rows = [(NOTE, ".venv", f"{reason}; `make setup` brings it up to date")]
    if state == stamp.BROKEN:
        return [(WRONG, ".venv", f"{reason}; `make setup` makes it anew")]
    for name, question in (("pip", ASK_PIP), ("torch", ASK_TORCH)):
        code, answer = ask([python, "-I", "-c", question], 300)
        line = choices.last_line(answer)
        broken = (WRONG, f".venv {name}", f"does not start: {line}; run: make clean setup")
        rows.append((FINE, f".venv {name}", line) if code == 0 else broken)
    return rows


def describe_browser() -> list:
    """What the tests of the pages need besides Python."""
    browser = machine.chromium()
    version = choices.last_line(machine.run([browser, "--version"])[1]) if browser else ""
    fonts = machine.can_write_hangul()
    return [
        (FINE, "Chromium", f"{version} ({browser})") if browser else
        (NOTE, "Chromium", f"not found; {CHROMIUM_HELP}"),
        (FINE, "Korean", "a font is installed") if fonts else
        (NOTE, "Korean", f"no font found by fc-list; {FONTS_HELP}"),
    ]  # fmt: skip


def main(root: str) -> int:
    """Print one row per finding; wrong ones are marked with ! and notes with -."""
    finished = stamp.judge(root)[0] != stamp.BROKEN
    rows = [*describe_python(), *describe_machine(), describe_disk(root, finished)]
    rows += [*describe_environment(root), *describe_browser()]
    for mark, subject, text in rows:
        print(f"{mark}{subject:<13}{text}")
    wrong = sum(mark == WRONG for mark, _, _ in rows)
    print(f"\n{wrong} of these must be repaired (!)" if wrong else "\nnothing is in the way")
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
