"""Worker processes of a comparison: one for each run, which trains and scores it."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from polyhead.devices import describe_exit
from polyhead.errors import PolyheadError, ReportedElsewhere
from polyhead.training.callbacks import Callback
from polyhead.training.processes import Processes, handle_signals

POLL = 0.2  # seconds until a signal is noticed
SIGNALLED = 128  # plus the signal: exit code of a worker whose training was interrupted
Job = Callable[[Any, Any], None]  # takes its argument, and a lock that all workers share


class Interrupted(Exception):
    """A training was stopped by a signal; everything is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.signal = number


def run_in_workers(
    job: Job, arguments: Mapping[str, Any], n_workers: int, n_threads: int,
    reporter: Callback,
) -> None:  # fmt: skip
    """Call a function for each titled argument, in at most `n_workers` processes at a time.

    A signal, or an error in one process, ends all; a training saves a checkpoint first.
    """
    context, signals, waiting = get_context("spawn"), Processes(), list(arguments)
    lock = context.Lock()
    running: dict[str, BaseProcess] = {}
    problem: Exception | None = None
    try:
        with handle_signals(signals):
            while running or (waiting and problem is None):
                while waiting and problem is None and len(running) < n_workers:
                    title = waiting.pop(0)
                    words = (n_threads, job, arguments[title], lock)
                    running[title] = context.Process(target=_work, args=words)
                    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker's too
                    running[title].start()
                    signal.signal(signal.SIGINT, handler)
                    reporter.on_stage(title)
                wait([process.sentinel for process in running.values()], POLL)
                before = problem
                if signals.signal:
                    problem = problem or Interrupted(signals.signal)
                for title in [t for t, process in running.items() if process.exitcode is not None]:
                    failure = _end(title, running.pop(title).exitcode or 0, reporter)
                    problem = problem or failure
                if before is None and problem is not None:
                    for process in running.values():
                        process.terminate()
    finally:
        for process in running.values():
            process.kill()
    if problem is not None:
        raise problem


def _end(title: str, code: int, reporter: Callback) -> Exception | None:
    """Report the end of a worker; return an error if it failed."""
    if code < 0:
        return PolyheadError(
            f"{title}: {describe_exit(code)}. Run the same command again to resume.", "worker_lost"
        )
    if code == 0:
        reporter.on_notice(f"{title}: finished")
        return None
    return Interrupted(code - SIGNALLED) if code > SIGNALLED else ReportedElsewhere(code)


def _work(n_threads: int, job: Job, argument: Any, lock: Any) -> None:
    """Do a job in this process; training handles signals, and SIGINT is ignored before it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(n_threads)
    try:
        job(argument, lock)
    except Interrupted as stopped:
        sys.exit(SIGNALLED + stopped.signal)
    except KeyboardInterrupt:  # a second Ctrl-C
        sys.exit(SIGNALLED + signal.SIGINT)
    except PolyheadError as error:
        print(f"polyhead: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _end_with_parent() -> None:
    """Stop this process, after a checkpoint, when the comparison's was killed."""
    if (parent := parent_process()) is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
