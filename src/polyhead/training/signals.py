"""Signals that end a training run after a checkpoint."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from polyhead.data.batches.base import STOP_SIGNALS
from polyhead.training.processes import Processes


@contextmanager
def handle_signals(processes: Processes) -> Iterator[None]:
    """Record the first signal instead of being killed; a second Ctrl-C stops at once."""

    def record(number: int, _: FrameType | None) -> None:
        if processes.world > 1 and processes.signal:
            return  # torchrun repeats signals, and ends processes that do not react
        if processes.signal and number == signal.SIGINT:
            raise KeyboardInterrupt
        processes.signal = number

    before: dict[int, Callable[..., Any] | int | None] = {}
    try:
        with suppress(ValueError):  # signals can be handled in the main thread only
            for number in STOP_SIGNALS:
                if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN:
                    before[number] = signal.signal(number, record)  # nohup ignores SIGHUP
        yield
    finally:
        for known, handler in before.items():
            signal.signal(known, signal.SIG_DFL if handler is None else handler)
