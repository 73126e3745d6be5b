"""Devices: choosing and describing one, testing bf16, keeping freed memory."""

import ctypes
import os
import platform
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from polyhead.errors import ConfigError, MissingError

BF16_PROBE = (
    "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); torch.nn.functional.linear(a, a)"
)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # glibc's <malloc.h>


def set_seed(seed: int, *, deterministic: bool = True) -> None:
    """Seed the random numbers of Python, NumPy and torch, and let torch compute the same each time.

    seed: from 0 to 2³² - 1.
    deterministic: also choose deterministic algorithms; torch warns where it has none.

    `polyhead.train` does not need it: its results follow from `train.seed`. Raises ConfigError for
    an impossible seed.

    Example: `polyhead.set_seed(1)`
    """
    if not 0 <= seed < 2**32:
        raise ConfigError(f"seed = {seed}: expected 0 to {2**32 - 1:,}", "invalid_seed")
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # of all devices
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read by cuBLAS
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False


def memory_size() -> int | None:
    """Return the bytes of main memory, or None if the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def choose(name: str) -> torch.device:
    """Return the named device; "auto" takes a GPU if there is one."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, usable in available.items() if usable)
    if name not in available:
        raise ConfigError(
            f"device = {name!r}: expected one of auto, {', '.join(available)}", "unknown_device"
        )
    if not available[name]:
        raise ConfigError(
            f"device = {name!r}: not available on this machine. Use auto or cpu.", "no_device"
        )
    return torch.device(name)


def environment(device: torch.device) -> dict[str, str | int]:
    """Return everything beside configuration and data on which the bits of a result depend."""
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model name of the processor."""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def check_bf16(device: torch.device) -> None:
    """Refuse bf16 where it would kill the process.

    Some virtual machines announce bf16 instructions that they do not support. This is tried in
    another process.
    """
    if device.type != "cpu":
        return
    probe = subprocess.run([sys.executable, "-c", BF16_PROBE], capture_output=True, check=False)
    if probe.returncode:
        raise MissingError(
            "train.bf16 = true: bf16 matrix products fail on this processor "
            f"({describe_exit(probe.returncode)}). Train with bf16 = false.",
            "no_bf16",
        )


def bf16_gain(size: int = 512, rounds: int = 5) -> float:
    """Return how many times faster bf16 matrix products are; < 1 where bf16 is emulated.

    Call `check_bf16` first. The fastest of several rounds counts.
    """
    seconds = {}
    for kind in (torch.float32, torch.bfloat16):
        matrix = torch.ones(size, size, dtype=kind)
        torch.nn.functional.linear(matrix, matrix)  # the first is always slow
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            torch.nn.functional.linear(matrix, matrix)
            times.append(time.perf_counter() - started)
        seconds[kind] = min(times)
    return seconds[torch.float32] / seconds[torch.bfloat16]


def describe_exit(code: int) -> str:
    """Describe an exit code; a negative one is the signal that killed the process."""
    try:
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    except ValueError:
        return f"killed by signal {-code}"


def keep_freed_memory() -> None:
    """Keep glibc from returning memory between steps, which cost a third of the time."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, 2**30)
    libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(M_TOP_PAD, 64 * 2**20)
