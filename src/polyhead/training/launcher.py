"""Starting several processes of one training run on this machine.

They find each other in a file of a temporary directory that only this user can open, and accept
connections on the loopback interface only.
"""

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, Popen

STORE = "POLYHEAD_STORE"  # URI of the file in which processes started by `launch` find each other
VARIABLES = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}  # set by torchrun
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1")
POLL = 0.05  # seconds between two looks
NOTICE, GRACE = 3, 30  # seconds to end without a signal, and after SIGTERM until SIGKILL


def is_started_by_torchrun() -> bool:
    """Return True in a process that torchrun, or `launch`, has started."""
    return STORE in os.environ or os.environ.keys() >= VARIABLES


def launch(words: Sequence[str], n_processes: int) -> int:
    """Run `polyhead WORDS` in several processes; return the exit code of the first that failed.

    Each has one thread, unless OMP_NUM_THREADS is set. If one fails, the others are ended. Signals
    are forwarded to all; a second Ctrl-C kills them. They end if this process is killed.
    """
    workers: list[Popen[bytes]] = []
    received: list[int] = []

    def forward(number: int, _: object) -> None:
        received.append(number)
        for worker in workers:
            if received.count(signal.SIGINT) > 1:
                worker.kill()
            elif os.name != "nt":  # there the console sends Ctrl-C to all
                worker.send_signal(number)

    before = {}
    if threading.current_thread() is threading.main_thread():  # others cannot handle signals
        for number in (getattr(signal, name) for name in FORWARDED if hasattr(signal, name)):
            if signal.getsignal(number) != signal.SIG_IGN:  # by nohup
                before[number] = signal.signal(number, forward)
    try:
        with tempfile.TemporaryDirectory(prefix="polyhead-") as folder:
            environment = {"OMP_NUM_THREADS": "1", **os.environ, **loopback()}
            environment |= {STORE: Path(folder, "store").as_uri(), "WORLD_SIZE": str(n_processes)}
            command = [sys.executable, "-m", "polyhead", *words]
            try:
                for rank in map(str, range(n_processes)):
                    own = {**environment, "RANK": rank, "LOCAL_RANK": rank}
                    workers.append(Popen(command, env=own, stdin=PIPE, start_new_session=True))
                for number in received:  # before all had started
                    workers[-1].send_signal(number)
                return wait(workers)
            finally:
                end(workers)
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def loopback() -> dict[str, str]:
    """Return the variables that keep gloo and NCCL on the loopback interface."""
    names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    return {f"{library}_SOCKET_IFNAME": names[0] for library in ("GLOO", "NCCL") if names}


def wait(workers: Sequence[Popen[bytes]]) -> int:
    """Wait until all processes have ended, or one failed; return its exit code, else 0."""
    while True:
        codes = [worker.poll() for worker in workers]
        if failed := [code for code in codes if code]:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        if None not in codes:
            return 0
        time.sleep(POLL)


def end(workers: Sequence[Popen[bytes]]) -> None:
    """End the processes that still run: most notice that one is lost, others save first."""
    notice = GRACE if any((w.poll() or 0) > 128 for w in workers) else NOTICE  # after a signal
    for seconds, stop in ((notice, Popen.terminate), (GRACE, Popen.kill)):
        latest = time.monotonic() + seconds
        while any(worker.poll() is None for worker in workers) and time.monotonic() < latest:
            time.sleep(POLL)
        for worker in workers:
            stop(worker)
    for worker in workers:
        worker.communicate()


def end_with_launcher() -> None:
    """Wait in a thread until the launcher ends, which closes standard input; then save and end."""
    os.read(0, 1)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(128 + signal.SIGTERM)
