"""Work on many items by several threads, each for instance with a child process of its own."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], n_threads: int
) -> Iterator[Result]:
    """Yield the results of a function in the order of the items, of which few are read ahead.

    If reading the items fails, the results of those before the failure are yielded first.
    """
    pending: deque[Future[Result]] = deque()
    stream, end = iter(items), None
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            while end is None:
                try:
                    pending.append(pool.submit(function, next(stream)))
                except Exception as error:  # StopIteration, or that of reading
                    end = error
                while len(pending) > (2 * n_threads if end is None else 0):
                    yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
    if not isinstance(end, StopIteration):
        raise end
