"""Work for the model: requests that share batches, and streams of text."""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from polyhead.server.responses import HTTPError

IsCancelled = Callable[[], bool]
Run = Callable[[list[Any], IsCancelled], Sequence[Any]]


@runtime_checkable
class ContinuousBatch(Protocol):
    """A computation that requests join and leave between steps."""

    @property
    def open(self) -> bool:
        """Return whether requests can still be added."""

    def add(self, requests: Sequence[Any], contents: Sequence[Any]) -> None:
        """Put requests into free slots, from the next step on."""

    def step(self) -> Sequence[tuple[Any, Any]]:
        """Advance all slots; return the finished requests with their results."""

    def cancel(self, requests: Collection[Any]) -> None:
        """Free the slots of these requests."""


@dataclass(frozen=True)
class BatchKey:
    """Condition for sharing a batch: equal names.

    run: computes a whole batch from its contents; polls its second argument, `is_cancelled`.
    start: opens a running batch; `run` is then used for requests that fail in it.
    n_parallel: batches that may run at once, outside of the model thread; 0 for none.
    """

    name: Hashable
    run: Run = field(compare=False)
    max_slots: int = field(default=64, compare=False)
    max_tokens: int = field(default=4096, compare=False)
    start: Callable[[], ContinuousBatch] | None = field(default=None, compare=False)
    n_parallel: int = field(default=0, compare=False)


@dataclass(eq=False)
class QueuedRequest:
    """Work for the model; `size` is its length in tokens."""

    key: BatchKey
    content: Any
    size: int = 1
    result: "asyncio.Future[Any]" = field(init=False)
    arrived: float = field(init=False)
    rank: float = field(init=False)  # lowest first
    is_cancelled: bool = field(default=False, init=False)
    client: str = field(default="", init=False)  # its address; "" is this machine


@dataclass(eq=False)
class Stream:
    """A text being generated; `pieces` ends with None or an exception, at the latest `error`."""

    start: Callable[[], Iterator[Any]]
    is_parallel: bool = False  # in a thread of its own
    pieces: "asyncio.Queue[Any]" = field(default_factory=asyncio.Queue)
    is_cancelled: bool = False
    iterator: Iterator[Any] | None = None
    client: str = ""  # its address; "" is this machine
    max_seconds: float = math.inf
    started: float = field(default_factory=time.monotonic)
    error: HTTPError | None = None  # set to end the stream
