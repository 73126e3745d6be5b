"""Processor time of a piece of code, independent of the machine's load and of earlier tests."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class CpuTime:
    """The measured seconds, set when the block has ended."""

    seconds = 0.0


@contextmanager
def cpu_time() -> Iterator[CpuTime]:
    """Measure the time of this thread alone, without garbage collection.

    A collection visits all objects that earlier tests left, which can take half a second.
    """
    measured, enabled = CpuTime(), gc.isenabled()
    gc.disable()
    started = time.thread_time()
    try:
        yield measured
    finally:
        measured.seconds = time.thread_time() - started
        if enabled:
            gc.enable()
