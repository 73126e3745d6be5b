"""Signals that ask a run to save and stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@dataclass
class StopRequest:
    """The number of the signal that asked to stop, if any."""

    signal: int | None = None


@contextmanager
def handle_signals() -> Iterator[StopRequest]:
    """Record the first signal instead of being killed; a second Ctrl-C stops at once."""
    stop = StopRequest()

    def record(number: int, _: FrameType | None) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    before: dict[int, Callable[..., Any] | int | None] = {}
    try:
        for number in HANDLED:
            before[number] = signal.signal(number, record)
    except ValueError:
        pass  # not in the main thread, where signals cannot be handled
    try:
        yield stop
    finally:
        for known, handler in before.items():
            signal.signal(known, signal.SIG_DFL if handler is None else handler)
