"""Training runs of several processes: started, watched and killed by tests."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tiny import SMALL

SOURCE = Path(__file__).parents[2] / "src"
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "RANK"},
    "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip
SETTINGS = (
    *SMALL, "train.steps=12", "train.accumulate=4", "train.max_tokens=200",
    "model.stack.dropout=0.2", "train.validate_every=6", "train.save_every=4",
    "train.bleu_sentences=6",
)  # fmt: skip


def command(corpus, run, n_processes, *more):
    files = ["--source", *corpus["source"], "--target", *corpus["target"]]
    return [
        sys.executable, "-m", "polyhead", "train", "small", *SETTINGS, *more, *files,
        "--run", str(run), "--processes", str(n_processes),
    ]  # fmt: skip


def train(corpus, run, n_processes, *more):
    words = command(corpus, run, n_processes, *more)
    return subprocess.run(
        words, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=300
    )


def wait_for(condition, seconds=120):
    latest = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < latest, "timeout"
        time.sleep(0.01)


def children(pid):
    """Return the process ids of the processes that a process started."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found


def ranks(pid):
    """Return the processes of a run by rank."""
    result = {}
    for child in children(pid):
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        for variable in variables:
            if variable.startswith(b"RANK="):
                result[int(variable[5:])] = child
    return result


def is_training(run):
    """Return True if a run has logged an update."""
    path = run / "metrics.jsonl"
    return path.exists() and '"train"' in path.read_text()


def open_addresses(pid):
    """Return the addresses on which a process accepts packets, as the kernel writes them."""
    inodes = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            inodes.add(os.readlink(file).removeprefix("socket:[").removesuffix("]"))
    rows = [
        line.split()
        for name in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    waiting = ("0A", "07")  # TCP that accepts connections, UDP without a peer
    return {row[1].split(":")[0] for row in rows if row[9] in inodes and row[3] in waiting}
