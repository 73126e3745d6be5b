"""Request scheduler: a bounded queue in front of the model worker.

    results = await scheduler.submit([QueuedRequest(key, content, size), …], disconnected)

Requests with the same batch key share a batch (`worker.py`); a batch waits at most `delay_seconds`
for more. The queue is bounded (429). One request occupies at most a quarter of it, and the requests
of one remote address at most half. Disconnected or expired requests are cancelled, also mid-batch
(503 after the deadline).

Streams: at most `MAX_STREAMS`. When all are taken, a new one replaces the oldest stream of the
address that has the most, if these are at least two more than its own, or the oldest of all if it
has run for `deadline_seconds`; else it gets 429. No stream runs longer than `stream_seconds`.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from starlette.requests import ClientDisconnect

from polyhead.server.connections import CLIENT
from polyhead.server.metrics import Metrics
from polyhead.server.queued_work import BatchKey, IsCancelled, QueuedRequest, Stream
from polyhead.server.responses import HTTPError
from polyhead.server.settings import MAX_STREAMS, Settings
from polyhead.server.worker import Worker

MAX_SHARE = 4  # a request occupies at most 1/4 of the queue
MAX_ADDRESS_SHARE = 2  # the requests of a remote address occupy at most 1/2 of it


class Scheduler:
    """Admission, deadlines and cancellation of requests. Used from the event loop."""

    def __init__(
        self, settings: Settings, metrics: Metrics, prepare: Callable[[], None] = lambda: None
    ) -> None:
        self.settings, self.metrics = settings, metrics
        self.worker = Worker(
            metrics, settings.delay_seconds, prepare, settings.threads or MAX_STREAMS
        )

    async def submit(
        self, requests: Sequence[QueuedRequest], disconnected: Coroutine[Any, Any, None]
    ) -> list[Any]:
        """Return the results of all requests of one client.

        disconnected: returns when the client has closed its connection.
        """
        enqueued = list(requests[: max(1, self.settings.queue // MAX_SHARE)])
        client = CLIENT.get()
        try:
            self._check_queue(client, len(enqueued))
            for request in requests:
                request.client = client
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
                raise ClientDisconnect
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

    def stream(self, start: Callable[[], Iterator[Any]], *, is_parallel: bool = False) -> Stream:
        """Start to generate a text; set `is_cancelled` of the stream to end it early.

        is_parallel: it does not need the model thread.
        """
        seconds = self.settings.stream_seconds
        stream = Stream(start, is_parallel, client=CLIENT.get(), max_seconds=seconds)
        streams = [other for other in self.worker.streams if other.error is None]
        if len(streams) >= MAX_STREAMS:
            self._replace_stream(streams, stream.client)
        self.worker.add_stream(stream)
        return stream

    def _replace_stream(self, streams: Sequence[Stream], client: str) -> None:
        """End one of the streams for a new one of this address, or raise HTTPError 429."""
        counts = Counter(stream.client for stream in streams)
        most, count = counts.most_common(1)[0]
        is_unfair = count >= counts[client] + 2
        candidates = [s for s in streams if s.client == most or not is_unfair]
        oldest = min(candidates, key=lambda stream: stream.started)
        left = self.settings.deadline_seconds - (time.monotonic() - oldest.started)
        if left > 0 and not is_unfair:
            self.metrics.rejected.labels("streams").inc()
            raise HTTPError(429, "too many concurrent streams", retry_after=math.ceil(left))
        oldest.error = HTTPError(503, "ended early, because other clients wait", retry_after=1)

    def _check_queue(self, client: str, n_requests: int) -> None:
        """Raise HTTPError 429 if the queue has no room for these requests of an address."""
        queue, size = self.worker.queue, self.settings.queue
        message = ""
        if len(queue) + n_requests > size:
            message = "request queue full"
        elif client and sum(r.client == client for r in queue) + n_requests > max(
            1, size // MAX_ADDRESS_SHARE
        ):
            message = "too many requests of this address are queued"
        if message:
            self.metrics.rejected.labels("queue").inc()
            raise HTTPError(429, message, retry_after=self._retry_after())

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
