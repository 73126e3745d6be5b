"""Model worker: the thread that computes queued requests in batches.

Requests with equal batch keys share a batch. Where the key can start a *running batch*, further
requests occupy its free slots between two steps and leave when they are done (continuous batching,
Yu et al. 2022); otherwise a batch is computed as a whole. Batches of an engine that does without
the interpreter are computed in threads of their own, several at once, and so are its text streams.
Between batches and steps every other open text stream gets one more piece. Methods without an
underscore are called from the event loop.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from polyhead.errors import Cancelled
from polyhead.server.metrics import Metrics
from polyhead.server.queued_work import BatchKey, ContinuousBatch, QueuedRequest, Stream
from polyhead.server.responses import HTTPError

LOG = logging.getLogger("polyhead.server")
BUSY_SECONDS = 0.5  # after a batch, during which the next one waits for further requests
MIN_SHARE = 8  # requests of a parallel batch before others are left to further threads
YIELD_SECONDS = 0.05  # by which each further part of a client's request is ranked later


@dataclass(eq=False)
class RunningBatch:
    """A started batch with the requests in its slots."""

    key: BatchKey
    computation: ContinuousBatch
    requests: list[QueuedRequest] = field(default_factory=list)


class Worker:
    """Queue and thread of the model."""

    def __init__(
        self, metrics: Metrics, delay_seconds: float, prepare: Callable[[], None], n_threads: int
    ) -> None:
        self.metrics, self.delay_seconds, self._prepare = metrics, delay_seconds, prepare
        self.streams: list[Stream] = []
        self.is_alive = True
        self.seconds_per_request = 0.05  # moving average
        self._changed = threading.Condition()
        self.queue: list[QueuedRequest] = []
        self._batch: list[QueuedRequest] = []  # being computed
        self._running: list[RunningBatch] = []
        self._parallel: list[list[QueuedRequest]] = []  # batches in threads of their own
        self._threads = ThreadPoolExecutor(thread_name_prefix="batch")
        self._stream_threads = ThreadPoolExecutor(n_threads, thread_name_prefix="stream")
        self._closed = False
        self._n_expected, self._batch_ended = 0, 0.0
        self._busy_seconds = 0.0  # since the last request was finished
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)

    def start(self) -> None:
        """Start the thread, for requests of the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self, timeout: float) -> bool:
        """Cancel everything; return whether the thread has ended within `timeout` seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def check_alive(self) -> None:
        """Raise HTTPError 503 if nothing is computed any more."""
        if not self.is_alive:
            raise HTTPError(503, "the model thread has failed; restart the server", retry_after=60)

    def enqueue(self, requests: Sequence[QueuedRequest]) -> None:
        """Add requests of one client to the queue."""
        loop, now = asyncio.get_running_loop(), time.monotonic()
        with self._changed:
            self.check_alive()
            for number, request in enumerate(requests):
                request.result, request.arrived = loop.create_future(), now
                request.rank = now + YIELD_SECONDS * number
            self.queue += requests
            self._changed.notify()

    def add_stream(self, stream: Stream) -> None:
        """Start to generate a text."""
        with self._changed:
            self.check_alive()
            self.streams.append(stream)
            if stream.is_parallel:
                self._stream_threads.submit(self._run_stream, stream)
            self._changed.notify()

    def cancel(self, requests: Sequence[QueuedRequest]) -> None:
        """Remove requests from the queue, or stop them at their next step."""
        if all(request.result.done() and not request.result.cancelled() for request in requests):
            return
        with self._changed:
            for request in requests:
                request.is_cancelled = True
                request.result.cancel()
            self.queue = [request for request in self.queue if not request.is_cancelled]

    def _work(self) -> None:
        try:
            self._prepare()
            self._compute_until_closed()
        except BaseException:
            LOG.exception("bug: the model thread has failed")
        self._threads.shutdown()
        with self._changed:
            self.is_alive = False
            in_slots = [request for batch in self._running for request in batch.requests]
            requests, streams = [*self._batch, *in_slots, *self.queue], self._own_streams()
            self._batch, self._running, self.queue = [], [], []
            self.streams = [stream for stream in self.streams if stream.is_parallel]
        try:
            self.check_alive()
        except HTTPError as error:
            self._call_in_loop(_set_results, requests, [error] * len(requests))
            for stream in streams:
                self._call_in_loop(stream.pieces.put_nowait, error)
        self._stream_threads.shutdown()

    def _compute_until_closed(self) -> None:
        while True:
            with self._changed:
                while not (self._ready() or self._running or self._own_streams() or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
                self._batch = self._next_batch()
            if self._batch and self._batch[0].key.start is not None:
                self._add_to_running(self._batch)
            elif self._batch and self._batch[0].key.n_parallel:
                self._parallel.append(self._batch)
                self._threads.submit(self._run_parallel, self._batch)
            elif self._batch:
                self._run(self._batch)
            self._batch = []
            for batch in list(self._running):
                self._step(batch)
            for stream in self._own_streams():
                self._advance(stream)

    def _own_streams(self) -> list[Stream]:
        """Return the streams of the model thread."""
        return [stream for stream in self.streams if not stream.is_parallel]

    def _run_stream(self, stream: Stream) -> None:
        while self._advance(stream):
            pass

    def _ready(self) -> list[QueuedRequest]:
        """Return the queued requests whose batch has a free slot or thread."""
        full = {batch.key for batch in self._running if len(batch.requests) >= batch.key.max_slots}
        n_busy = len(self._parallel)
        return [
            request
            for request in self.queue
            if not (0 < request.key.n_parallel <= n_busy or (full and request.key in full))
        ]

    def _next_batch(self) -> list[QueuedRequest]:
        """Take the first request whose batch has a free slot, and those that fit beside it."""
        ready = self._ready()
        if not ready:
            return []
        first = min(ready, key=lambda request: request.rank)
        key = first.key
        if key.start is None and not self._running:
            self._wait_for_more(first)
        in_slots = [r for batch in self._running if batch.key == key for r in batch.requests]
        longest = max((request.size for request in in_slots), default=0)
        batch: list[QueuedRequest] = []
        candidates = [request for request in self.queue if request.key == key]
        max_slots = key.max_slots
        if key.n_parallel:  # leave work for the other threads
            share = math.ceil(len(candidates) / (key.n_parallel - len(self._parallel)))
            max_slots = min(max_slots, max(share, MIN_SHARE))
        for request in sorted(candidates, key=lambda request: request.rank):
            longest = max(longest, request.size)
            n_slots = len(in_slots) + len(batch) + 1
            if n_slots > 1 and (n_slots > max_slots or n_slots * longest > key.max_tokens):
                break
            batch.append(request)
        taken = set(batch)
        self.queue = [request for request in self.queue if request not in taken]
        return batch

    def _wait_for_more(self, first: QueuedRequest) -> None:
        """Wait at most `delay_seconds` for as many requests as there were lately."""
        now = time.monotonic()
        n_expected = self._n_expected if now - self._batch_ended < BUSY_SECONDS else 1
        latest = first.arrived + self.delay_seconds
        while not self._own_streams() and len(self.queue) < n_expected and now < latest:
            self._changed.wait(latest - now)
            now = time.monotonic()

    def _add_to_running(self, requests: list[QueuedRequest]) -> None:
        """Add requests to the running batch of their key, or start one."""
        key = requests[0].key
        assert key.start is not None
        open_batches = (b for b in self._running if b.key == key and b.computation.open)
        batch = next(open_batches, None)
        if batch is None:
            try:
                batch = RunningBatch(key, key.start())
            except Exception:
                LOG.warning("cannot start a running batch; computing a whole one", exc_info=True)
                self._run(requests)
                return
            self._running.append(batch)
        batch.requests += requests
        try:
            batch.computation.add(requests, [request.content for request in requests])
        except Exception:
            self._run_separately(batch)

    def _step(self, batch: RunningBatch) -> None:
        """Advance a running batch by one step and deliver what it finished."""
        cancelled = {request for request in batch.requests if request.is_cancelled}
        if cancelled:
            batch.computation.cancel(cancelled)
            batch.requests = [r for r in batch.requests if r not in cancelled]
        started, finished = time.monotonic(), {}
        if batch.requests:
            try:
                finished = dict(batch.computation.step())
            except Exception:
                self._run_separately(batch)
                return
            self._record(len(batch.requests), time.monotonic() - started, len(finished))
            batch.requests = [r for r in batch.requests if r not in finished]
            self._call_in_loop(_set_results, list(finished), list(finished.values()))
        if not batch.requests:
            with self._changed:
                self._running.remove(batch)

    def _run_separately(self, batch: RunningBatch) -> None:
        """Compute the requests of a failed running batch one by one."""
        n_requests = len(batch.requests)
        LOG.warning("a batch of %d failed; running its requests alone", n_requests, exc_info=True)
        with self._changed:
            self._running.remove(batch)
            self._batch = batch.requests
        for request in batch.requests:
            self._call_in_loop(_set_results, [request], self._results([request]))

    def _run(self, batch: list[QueuedRequest]) -> None:
        started = time.monotonic()
        results = self._results(batch)
        self._batch_ended = time.monotonic()
        self._n_expected = len(batch) + len(self.queue)
        self._record(len(batch), self._batch_ended - started, len(batch))
        self._call_in_loop(_set_results, batch, results)

    def _run_parallel(self, batch: list[QueuedRequest]) -> None:
        try:
            self._run(batch)
        finally:
            with self._changed:
                self._parallel.remove(batch)
                self._changed.notify()

    def _results(self, batch: list[QueuedRequest]) -> list[Any]:
        """Return the result of every request, or its exception."""

        def is_cancelled() -> bool:
            return self._closed or all(request.is_cancelled for request in batch)

        try:
            contents = [request.content for request in batch]
            results = list(batch[0].key.run(contents, is_cancelled))
            assert len(results) == len(batch)
        except Cancelled as cancelled:
            return [cancelled] * len(batch)
        except Exception as error:
            if len(batch) == 1:
                return [error]
            return [result for request in batch for result in self._results([request])]
        return results

    def _advance(self, stream: Stream) -> bool:
        """Generate one more piece of a stream; return whether there may be another."""
        piece: Any = None
        try:
            if stream.error is None and time.monotonic() - stream.started > stream.max_seconds:
                message = f"the text took more than {stream.max_seconds:g} seconds; ask for less"
                stream.error = HTTPError(503, message)
            if stream.error is not None:
                piece = stream.error
            elif not (stream.is_cancelled or self._closed):
                stream.iterator = stream.iterator or stream.start()
                piece = next(stream.iterator, None)
        except Exception as error:
            piece = error
        has_ended = piece is None or isinstance(piece, BaseException)
        if has_ended:
            stream.iterator = None  # ends its computation
            with self._changed:
                self.streams.remove(stream)
        self._call_in_loop(stream.pieces.put_nowait, piece)
        return not has_ended

    def _record(self, n_slots: int, seconds: float, n_finished: int) -> None:
        """Update the metrics, and the average time between two finished requests."""
        self.metrics.batch_rows.observe(n_slots)
        self.metrics.batch_seconds.observe(seconds)
        self._busy_seconds += seconds
        if n_finished:
            average = self.seconds_per_request
            self.seconds_per_request += 0.1 * (self._busy_seconds / n_finished - average)
            self._busy_seconds = 0.0

    def _call_in_loop(self, function: Callable[..., None], *values: Any) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(function, *values)


def _set_results(requests: Sequence[QueuedRequest], results: Sequence[Any]) -> None:
    """Resolve the futures of requests that were not cancelled."""
    for request, result in zip(requests, results, strict=True):
        if request.result.done():
            continue
        if isinstance(result, StopIteration):  # futures do not accept it
            result = RuntimeError(repr(result))
        if isinstance(result, BaseException):
            request.result.set_exception(result)
            request.result.exception()  # marks it as retrieved
        else:
            request.result.set_result(result)
