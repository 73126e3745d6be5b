"""Signals: how somebody outside asks a run to save and leave."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@dataclass
class Stop:
    """Somebody asked to leave: by which signal, if any."""

    signal: int | None = None


@contextmanager
def listening() -> Iterator[Stop]:
    """The first of the polite signals asks to save and leave; a second Ctrl-C leaves at once."""
    stop = Stop()

    def ask(number: int, _: FrameType | None) -> None:
        if stop.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.signal = number

    before: dict[int, Callable[..., Any] | int | None] = {}
    try:
        for number in POLITE:
            before[number] = signal.signal(number, ask)
    except ValueError:
        pass  # not in the main thread: signals are somebody else's business
    try:
        yield stop
    finally:
        for known, handler in before.items():
            signal.signal(known, signal.SIG_DFL if handler is None else handler)
