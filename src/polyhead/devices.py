"""Which processor to use, and how to make the most of it."""

import ctypes
import platform
import signal
import subprocess
import sys
import time

import torch

from polyhead.errors import ConfigError, MissingError

BF16_PROBE = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(a, a)"
)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # glibc's <malloc.h>


def choose(name: str) -> torch.device:
    """The device that is meant; "auto" takes a GPU if there is one."""
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, available in there.items() if available)
    if name not in there:
        raise ConfigError(f"device = {name!r}: choose one of auto, {', '.join(there)}")
    if not there[name]:
        raise ConfigError(f"device = {name!r}: this machine has none; use auto or cpu")
    return torch.device(name)


def check_bf16(device: torch.device) -> None:
    """Refuse bf16 where it would kill the process.

    Some virtual machines announce instructions for it that they do not allow; the only way to find
    out is to try, in a process that may die.
    """
    if device.type != "cpu":
        return
    probe = subprocess.run([sys.executable, "-c", BF16_PROBE], capture_output=True, check=False)
    if probe.returncode:
        raise MissingError(
            "train.bf16 = true: a matrix product in bf16 fails on this processor "
            f"({_ending(probe.returncode)}); train with bf16 = false"
        )


def bf16_gain(size: int = 512, rounds: int = 5) -> float:
    """How many times faster the processor multiplies matrices in bf16: below 1 where it pretends.

    Only where `check_bf16` has nothing against it. The best of some rounds counts.
    """
    seconds = {}
    for kind in (torch.float32, torch.bfloat16):
        one = torch.ones(size, size, dtype=kind)
        torch.nn.functional.linear(one, one)  # the first is always slow
        found = []
        for _ in range(rounds):
            started = time.perf_counter()
            torch.nn.functional.linear(one, one)
            found.append(time.perf_counter() - started)
        seconds[kind] = min(found)
    return seconds[torch.float32] / seconds[torch.bfloat16]


def _ending(code: int) -> str:
    """How a process ended, in words: a negative code is the signal that killed it."""
    try:
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    except ValueError:
        return f"killed by signal {-code}"


def keep_freed_memory() -> None:
    """Tell glibc not to give memory back between two steps: a third of the time was page faults."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 2**30)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(M_TOP_PAD, 64 * 2**20)
