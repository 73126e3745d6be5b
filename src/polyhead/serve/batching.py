"""One model, many people: their pieces of work wait in one queue and are done in batches.

    answers = await batcher.ask([Task(lane, content, size), …], leaving)

Tasks of the same *lane* (the same model, options and length, see `api/portions.py`) may share a
batch; the oldest task chooses the lane. Who finds company is quick to go: a batch waits for more at
most `delay_seconds`, and only if there was a crowd lately. The queue is bounded: what does not fit
is refused at once (429), so that what is accepted is answered soon. Whoever leaves, or waits beyond
the deadline, takes his tasks with him, also out of a batch that is being computed.

There is one thread that computes; texts that are written token by token take turns in it.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from polyhead.api.portions import Abandoned
from polyhead.serve.metrics import Metrics
from polyhead.serve.refusals import Gone, Refusal
from polyhead.serve.settings import MAX_STREAMS, Settings

LOG = logging.getLogger("polyhead.serve")
LATELY_SECONDS = 0.5  # that a crowd is remembered
PATIENCE_SECONDS = 0.05  # by which each further task of one request lets others go first

Run = Callable[[list[Any], Callable[[], bool]], Sequence[Any]]


@dataclass(frozen=True)
class Lane:
    """What may be done together: equal names share batches. `run` takes contents and `wanted`."""

    name: Hashable
    run: Run = field(compare=False)
    max_rows: int = field(default=64, compare=False)
    max_tokens: int = field(default=4096, compare=False)


@dataclass(frozen=True)
class Task:
    """A piece of work; `size` is its length in tokens."""

    lane: Lane
    content: Any
    size: int = 1


@dataclass(eq=False)
class _Job:
    """A task that waits, and who waits for it."""

    task: Task
    result: "asyncio.Future[Any]"
    arrived: float
    turn: float  # when it would have arrived, had its request been patient
    wanted: bool = True


@dataclass(eq=False)
class Stream:
    """A text that is being written; pieces come out of `pieces`, then None or an exception."""

    make: Callable[[], Iterator[str]]
    pieces: "asyncio.Queue[str | BaseException | None]" = field(default_factory=asyncio.Queue)
    wanted: bool = True
    iterator: Iterator[str] | None = None


class Batcher:
    """The queue and the thread that works it off. Methods are called from the event loop."""

    def __init__(
        self, settings: Settings, metrics: Metrics, prepare: Callable[[], None] = lambda: None
    ) -> None:
        self.settings, self.metrics, self._prepare = settings, metrics, prepare
        self._changed = threading.Condition()
        self._waiting: list[_Job] = []
        self._streams: list[Stream] = []
        self._closed = False
        self._crowd, self._crowd_seen = 0, 0.0  # rows of the last batch, and when it ended
        self._pace = 0.05  # seconds for a row, lately
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)

    def start(self) -> None:
        """Begin to work, for requests of the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self, timeout: float = 1.0) -> None:
        """Stop after what is being computed."""
        with self._changed:
            self._closed = True
            for job in self._waiting:
                job.wanted = False
            self._changed.notify()
        self._thread.join(timeout)

    @property
    def depth(self) -> int:
        """How many tasks wait."""
        return len(self._waiting)

    async def ask(self, tasks: Sequence[Task], leaving: Coroutine[Any, Any, None]) -> list[Any]:
        """The results of all tasks, as soon as there are all."""
        try:
            jobs = self._enqueue(tasks)
        except Refusal:
            leaving.close()
            raise
        try:
            return list(await self.until(_all(jobs), leaving))
        finally:
            self._withdraw(jobs)

    async def until(
        self, result: Coroutine[Any, Any, Any], leaving: Coroutine[Any, Any, None]
    ) -> Any:
        """A result, if it comes before the deadline and before the client leaves."""
        left, coming = asyncio.ensure_future(leaving), asyncio.ensure_future(result)
        try:
            await asyncio.wait(
                {coming, left},
                timeout=self.settings.deadline_seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if coming.done():
                return coming.result()
            if left.done():
                raise Gone
            self.metrics.rejected.labels("deadline").inc()
            raise Refusal(
                503,
                f"no answer within {self.settings.deadline_seconds:g} seconds; send less, or later",
                retry_after=self._retry_after(),
            )
        finally:
            left.cancel()
            coming.cancel()

    async def one(self, run: Callable[[], Any], leaving: Coroutine[Any, Any, None]) -> Any:
        """Something that shares nothing with anybody."""
        lane = Lane(object(), lambda _contents, _wanted: [run()], max_rows=1)
        (result,) = await self.ask([Task(lane, None)], leaving)
        return result

    def stream(self, make: Callable[[], Iterator[str]]) -> Stream:
        """Begin to write a text. Set `wanted` to False to end it early."""
        with self._changed:
            if len(self._streams) >= MAX_STREAMS:
                self.metrics.rejected.labels("streams").inc()
                raise Refusal(429, f"{MAX_STREAMS} texts are being written", retry_after=2)
            stream = Stream(make)
            self._streams.append(stream)
            self._changed.notify()
        return stream

    def _enqueue(self, tasks: Sequence[Task]) -> list[_Job]:
        loop, now = asyncio.get_running_loop(), time.monotonic()
        with self._changed:
            n_waiting = len(self._waiting)
            if n_waiting and n_waiting + len(tasks) > self.settings.queue:
                self.metrics.rejected.labels("queue").inc()
                raise Refusal(429, "too many requests wait", retry_after=self._retry_after())
            jobs = [
                _Job(task, loop.create_future(), now, now + PATIENCE_SECONDS * number)
                for number, task in enumerate(tasks)
            ]
            self._waiting += jobs
            self._changed.notify()
        return jobs

    def _retry_after(self) -> int:
        """Whole seconds until the queue may be empty."""
        return max(1, min(60, math.ceil(len(self._waiting) * self._pace)))

    def _withdraw(self, jobs: Sequence[_Job]) -> None:
        """Nobody waits for these any more; most of them are done."""
        if all(job.result.done() and not job.result.cancelled() for job in jobs):
            return
        with self._changed:
            for job in jobs:
                job.wanted = False
                job.result.cancel()
            self._waiting = [job for job in self._waiting if job.wanted]

    def _work(self) -> None:
        """The thread: a batch, then a token for every text that is being written, and so on."""
        self._prepare()
        while True:
            with self._changed:
                while not (self._waiting or self._streams or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
                batch = self._take()
            if batch:
                self._run(batch)
            for stream in list(self._streams):
                self._advance(stream)

    def _take(self) -> list[_Job]:
        """The next batch, after a short wait for company if there was a crowd lately."""
        if not self._waiting:
            return []
        first = min(self._waiting, key=lambda job: job.turn)
        now = time.monotonic()
        expected = self._crowd if now - self._crowd_seen < LATELY_SECONDS else 1
        ripe = first.arrived + self.settings.delay_seconds
        while not self._streams and len(self._waiting) < expected and now < ripe:
            self._changed.wait(ripe - now)
            now = time.monotonic()
        together = [job for job in self._waiting if job.task.lane == first.task.lane]
        together.sort(key=lambda job: job.turn)
        batch: list[_Job] = []
        longest = 0
        for job in together:
            longest = max(longest, job.task.size)
            rows = len(batch) + 1
            if batch and (
                rows > job.task.lane.max_rows or rows * longest > job.task.lane.max_tokens
            ):
                break
            batch.append(job)
        taken = set(batch)
        self._waiting = [job for job in self._waiting if job not in taken]
        return batch

    def _run(self, batch: list[_Job]) -> None:
        started = time.monotonic()
        results = self._results(batch)
        now = time.monotonic()
        seconds = now - started
        with self._changed:
            self._crowd, self._crowd_seen = len(batch) + len(self._waiting), now
            self._pace += 0.1 * (seconds / len(batch) - self._pace)
        self.metrics.batch_rows.observe(len(batch))
        self.metrics.batch_seconds.observe(seconds)
        self._call(self._deliver, batch, results)

    def _results(self, batch: list[_Job]) -> list[Any]:
        """The result of every job, or the exception that it met."""
        run = batch[0].task.lane.run
        try:
            contents = [job.task.content for job in batch]
            results = list(run(contents, lambda: any(job.wanted for job in batch)))
            assert len(results) == len(batch)
        except Abandoned as left:
            return [left] * len(batch)
        except Exception as error:
            if len(batch) == 1:
                return [error]
            # one of them is to blame: the others must not suffer
            return [result for job in batch for result in self._results([job])]
        return results

    def _advance(self, stream: Stream) -> None:
        """Write one more piece of a text."""
        try:
            if stream.iterator is None:
                stream.iterator = stream.make()
            piece = next(stream.iterator, None) if stream.wanted and not self._closed else None
            self._call(stream.pieces.put_nowait, piece)
            ended = piece is None
        except Exception as error:
            self._call(stream.pieces.put_nowait, error)
            ended = True
        if ended:
            with self._changed:
                self._streams.remove(stream)

    def _deliver(self, batch: list[_Job], results: list[Any]) -> None:
        """In the event loop: wake those who wait."""
        for job, result in zip(batch, results, strict=True):
            if job.result.done():
                continue
            if isinstance(result, StopIteration):  # which no future takes
                result = RuntimeError(repr(result))
            if isinstance(result, BaseException):
                job.result.set_exception(result)
                job.result.exception()  # it is read, if anybody is still there
            else:
                job.result.set_result(result)

    def _call(self, function: Callable[..., None], *values: Any) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(function, *values)


async def _all(jobs: Sequence[_Job]) -> list[Any]:
    return [await job.result for job in jobs]
