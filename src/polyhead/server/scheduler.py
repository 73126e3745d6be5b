"""Request scheduler: a bounded queue in front of the model worker.

    results = await scheduler.submit([QueuedRequest(key, content, size), …], disconnected)

Requests with the same batch key share a batch (`worker.py`); a batch waits at most `delay_seconds`
for more. The queue is bounded (429). One client's request occupies at most a quarter of it.
Disconnected or expired requests are cancelled, also mid-batch (503 after the deadline).
"""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from polyhead.server.metrics import Metrics
from polyhead.server.responses import ClientDisconnected, HTTPError
from polyhead.server.settings import MAX_STREAMS, Settings
from polyhead.server.worker import BatchKey, IsCancelled, QueuedRequest, Stream, Worker

MAX_SHARE = 4  # a client's request occupies at most 1/4 of the queue


class Scheduler:
    """Admission, deadlines and cancellation of requests. Used from the event loop."""

    def __init__(
        self, settings: Settings, metrics: Metrics, prepare: Callable[[], None] = lambda: None
    ) -> None:
        self.settings, self.metrics = settings, metrics
        self.worker = Worker(metrics, settings.delay_seconds, prepare)

    async def submit(
        self, requests: Sequence[QueuedRequest], disconnected: Coroutine[Any, Any, None]
    ) -> list[Any]:
        """Return the results of all requests of one client.

        disconnected: returns when the client has closed its connection.
        """
        enqueued = list(requests[: max(1, self.settings.queue // MAX_SHARE)])
        try:
            if len(self.worker.queue) + len(enqueued) > self.settings.queue:
                self.metrics.rejected.labels("queue").inc()
                raise HTTPError(429, "request queue full", retry_after=self._retry_after())
            self.worker.enqueue(enqueued)
        except HTTPError:
            disconnected.close()
            raise
        try:
            return list(await self.wait(self._results(requests, enqueued), disconnected))
        finally:
            self.worker.cancel(enqueued)

    async def wait(
        self, result: Coroutine[Any, Any, Any], disconnected: Coroutine[Any, Any, None]
    ) -> Any:
        """Return a result that comes before the deadline and before the client disconnects."""
        left, pending = asyncio.ensure_future(disconnected), asyncio.ensure_future(result)
        seconds = self.settings.deadline_seconds
        try:
            await asyncio.wait(
                {pending, left}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if pending.done():
                return pending.result()
            if left.done():
                raise ClientDisconnected
            self.metrics.rejected.labels("deadline").inc()
            message = f"no result within {seconds:g} seconds; send less text, or retry later"
            raise HTTPError(503, message, retry_after=self._retry_after())
        finally:
            left.cancel()
            pending.cancel()

    async def run(
        self, work: Callable[[IsCancelled], Any], disconnected: Coroutine[Any, Any, None]
    ) -> Any:
        """Return the result of work that shares no batch; it polls `is_cancelled`."""
        key = BatchKey(object(), lambda _contents, is_cancelled: [work(is_cancelled)], max_slots=1)
        (result,) = await self.submit([QueuedRequest(key, None)], disconnected)
        return result

    def stream(self, start: Callable[[], Iterator[str]]) -> Stream:
        """Start to generate a text; set `is_cancelled` of the stream to end it early."""
        if len(self.worker.streams) >= MAX_STREAMS:
            self.metrics.rejected.labels("streams").inc()
            raise HTTPError(429, "too many concurrent streams", retry_after=2)
        stream = Stream(start)
        self.worker.add_stream(stream)
        return stream

    async def _results(
        self, requests: Sequence[QueuedRequest], enqueued: list[QueuedRequest]
    ) -> list[Any]:
        """Wait for all; enqueue another request whenever one of the window is done."""
        window = len(enqueued)
        pending = {request.result for request in enqueued}
        while len(enqueued) < len(requests):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for result in done:
                result.result()  # a failed part fails the whole
            more = requests[len(enqueued) : len(enqueued) + window - len(pending)]
            self.worker.enqueue(more)
            pending |= {request.result for request in more}
            enqueued += more
        return [await request.result for request in enqueued]

    def _retry_after(self) -> int:
        """Return whole seconds until the queue may be empty."""
        return max(1, min(60, math.ceil(len(self.worker.queue) * self.worker.seconds_per_request)))
