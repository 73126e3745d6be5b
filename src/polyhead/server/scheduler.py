"""One model, many people: their pieces of work wait in one queue and are done in batches.

    answers = await batcher.ask([Task(lane, content, size), …], leaving)

Tasks of the same *lane* (the same model, options and length, see `pipelines.segments`) may share a
batch; the oldest task chooses the lane. Who finds company is quick to go: a batch waits for more at
most `delay_seconds`, and only if there was a crowd lately. The queue is bounded: what does not fit
is refused at once (429), so that what is accepted is answered soon. Of one request only a part of
the queue's size waits at a time, its *window*: a whole book shuts nobody out. Whoever leaves, or
waits beyond the deadline, takes his tasks with him, also out of a batch that is being computed.

Where a lane can *flow*, there are no batches: whoever comes joins those who
are being served at their next step, and leaves as soon as he is done.

There is one thread that computes; flows, batches and texts that are written token by token take
turns in it. Should it ever die, nobody waits in vain: whoever asks is told at once (503).
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from polyhead.decoding.cancel import Cancelled
from polyhead.server.batch_keys import BatchJob, BatchKey, RunningBatch, Task, Wanted
from polyhead.server.errors import ClientDisconnected, HTTPError
from polyhead.server.metrics import Metrics
from polyhead.server.settings import MAX_STREAMS, Settings

LOG = logging.getLogger("polyhead.server")
LATELY_SECONDS = 0.5  # that a crowd is remembered
PATIENCE_SECONDS = 0.05  # by which each further task of one request lets others go first
WINDOWS = 4  # of the largest requests that fit into the queue together


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
        self._waiting: list[BatchJob] = []
        self._batch: list[BatchJob] = []  # being computed
        self._rivers: list[RunningBatch] = []
        self._streams: list[Stream] = []
        self._closed = self._died = False
        self._crowd, self._crowd_seen = 0, 0.0  # rows of the last batch, and when it ended
        self._pace = 0.05  # seconds for a row, lately
        self._busy = 0.0  # seconds that went into flows since somebody was done
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)

    def start(self) -> None:
        """Begin to work, for requests of the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self, timeout: float = 1.0) -> bool:
        """Stop, and give up what is being computed. Whether the thread has ended by then."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def works(self) -> bool:
        """Whether what is asked will be computed."""
        return not self._died

    @property
    def depth(self) -> int:
        """How many tasks wait."""
        return len(self._waiting)

    async def ask(self, tasks: Sequence[Task], leaving: Coroutine[Any, Any, None]) -> list[Any]:
        """The results of all tasks, as soon as there are all."""
        window = max(1, self.settings.queue // WINDOWS)
        try:
            jobs = self._admit(tasks[:window])
        except HTTPError:
            leaving.close()
            raise
        try:
            return list(await self.until(self._all(tasks, jobs, window), leaving))
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
                raise ClientDisconnected
            self.metrics.rejected.labels("deadline").inc()
            raise HTTPError(
                503,
                f"no answer within {self.settings.deadline_seconds:g} seconds; send less, or later",
                retry_after=self._retry_after(),
            )
        finally:
            left.cancel()
            coming.cancel()

    async def one(self, run: Callable[[Wanted], Any], leaving: Coroutine[Any, Any, None]) -> Any:
        """Something that shares nothing with anybody; it is told how to learn if it is `wanted`."""
        lane = BatchKey(object(), lambda _contents, wanted: [run(wanted)], max_rows=1)
        (result,) = await self.ask([Task(lane, None)], leaving)
        return result

    def stream(self, make: Callable[[], Iterator[str]]) -> Stream:
        """Begin to write a text. Set `wanted` to False to end it early."""
        with self._changed:
            self._check_alive()
            if len(self._streams) >= MAX_STREAMS:
                self.metrics.rejected.labels("streams").inc()
                raise HTTPError(429, f"{MAX_STREAMS} texts are being written", retry_after=2)
            stream = Stream(make)
            self._streams.append(stream)
            self._changed.notify()
        return stream

    def _admit(self, tasks: Sequence[Task]) -> list[BatchJob]:
        """Let a request's first tasks wait, or refuse it if they do not fit into the queue."""
        if len(self._waiting) + len(tasks) > self.settings.queue:
            self.metrics.rejected.labels("queue").inc()
            raise HTTPError(429, "too many requests wait", retry_after=self._retry_after())
        return self._enqueue(tasks)

    def _check_alive(self) -> None:
        if self._died:
            raise broken()

    async def _all(self, tasks: Sequence[Task], jobs: list[BatchJob], window: int) -> list[Any]:
        """All results. `jobs` grows: for each task of the window that is done another comes."""
        pending = {job.result for job in jobs}
        while len(jobs) < len(tasks):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for result in done:
                result.result()  # if it failed, all did
            more = self._enqueue(tasks[len(jobs) : len(jobs) + window - len(pending)])
            pending |= {job.result for job in more}
            jobs += more
        return [await job.result for job in jobs]

    def _enqueue(self, tasks: Sequence[Task]) -> list[BatchJob]:
        loop, now = asyncio.get_running_loop(), time.monotonic()
        with self._changed:
            self._check_alive()
            jobs = [
                BatchJob(task, loop.create_future(), now, now + PATIENCE_SECONDS * number)
                for number, task in enumerate(tasks)
            ]
            self._waiting += jobs
            self._changed.notify()
        return jobs

    def _retry_after(self) -> int:
        """Whole seconds until the queue may be empty."""
        return max(1, min(60, math.ceil(len(self._waiting) * self._pace)))

    def _withdraw(self, jobs: Sequence[BatchJob]) -> None:
        """Nobody waits for these any more; most of them are done."""
        if all(job.result.done() and not job.result.cancelled() for job in jobs):
            return
        with self._changed:
            for job in jobs:
                job.wanted = False
                job.result.cancel()
            self._waiting = [job for job in self._waiting if job.wanted]

    def _work(self) -> None:
        """The thread. If it dies, those who wait are told."""
        try:
            self._prepare()
            self._work_off()
        except BaseException:
            LOG.exception("a bug: the thread that computes has died")
        with self._changed:
            self._died = True
            flowing = [job for river in self._rivers for job in river.jobs]
            waiting, streams = [*self._batch, *flowing, *self._waiting], self._streams
            self._batch, self._rivers, self._waiting, self._streams = [], [], [], []
        self._call(self._deliver, waiting, [broken()] * len(waiting))
        for stream in streams:
            self._call(stream.pieces.put_nowait, broken())

    def _work_off(self) -> None:
        """A batch, a step of all who flow, a token for every text being written, and so on."""
        while True:
            with self._changed:
                while not (self._waiting or self._rivers or self._streams or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
                self._batch = self._take()
            if self._batch and self._batch[0].task.lane.flow is not None:
                self._let_in(self._batch)
            elif self._batch:
                self._run(self._batch)
            self._batch = []
            for river in list(self._rivers):
                self._flow(river)
            for stream in list(self._streams):
                self._advance(stream)

    def _take(self) -> list[BatchJob]:
        """The next batch, after a short wait for company if there was a crowd lately."""
        full = {river.lane for river in self._rivers if len(river.jobs) >= river.lane.max_rows}
        ready = [job for job in self._waiting if job.task.lane not in full]
        if not ready:
            return []
        first = min(ready, key=lambda job: job.turn)
        if first.task.lane.flow is None and not self._rivers:
            self._wait_for_company(first)
        together = [job for job in self._waiting if job.task.lane == first.task.lane]
        together.sort(key=lambda job: job.turn)
        batch: list[BatchJob] = []
        there = [
            job for river in self._rivers if river.lane == first.task.lane for job in river.jobs
        ]
        longest = max((job.task.size for job in there), default=0)
        for job in together:
            longest = max(longest, job.task.size)
            rows = len(there) + len(batch) + 1
            if rows > 1 and (
                rows > job.task.lane.max_rows or rows * longest > job.task.lane.max_tokens
            ):
                break
            batch.append(job)
        taken = set(batch)
        self._waiting = [job for job in self._waiting if job not in taken]
        return batch

    def _wait_for_company(self, first: BatchJob) -> None:
        """Not long, and only if there was a crowd lately."""
        now = time.monotonic()
        expected = self._crowd if now - self._crowd_seen < LATELY_SECONDS else 1
        ripe = first.arrived + self.settings.delay_seconds
        while not self._streams and len(self._waiting) < expected and now < ripe:
            self._changed.wait(ripe - now)
            now = time.monotonic()

    def _let_in(self, jobs: list[BatchJob]) -> None:
        """Join those of the same lane who are being served, or begin."""
        lane = jobs[0].task.lane
        assert lane.flow is not None
        rivers = [river for river in self._rivers if river.lane == lane and river.flow.open]
        try:
            river = rivers[0] if rivers else RunningBatch(lane, lane.flow())
        except Exception:
            LOG.warning("a flow cannot begin; its %d tasks are a batch", len(jobs), exc_info=True)
            self._run(jobs)
            return
        if not rivers:
            self._rivers.append(river)
        river.jobs += jobs
        try:
            river.flow.enter(jobs, [job.task.content for job in jobs])
        except Exception:
            self._one_by_one(river)

    def _flow(self, river: RunningBatch) -> None:
        """One step of a lane; whoever is done gets his answer, whoever has left is let go."""
        left = {job for job in river.jobs if not job.wanted}
        if left:
            river.flow.leave(left)
            river.jobs = [job for job in river.jobs if job not in left]
        rows, started = len(river.jobs), time.monotonic()
        try:
            found = river.flow.step()
        except Exception:
            self._one_by_one(river)
            return
        seconds = time.monotonic() - started
        if rows:
            self.metrics.batch_rows.observe(rows)
            self.metrics.batch_seconds.observe(seconds)
        self._busy += seconds
        if found:
            done = {job for job, _ in found}
            river.jobs = [job for job in river.jobs if job not in done]
            with self._changed:
                self._pace += 0.1 * (self._busy / len(found) - self._pace)
            self._busy = 0.0
            self._call(self._deliver, [job for job, _ in found], [result for _, result in found])
        if not river.jobs:
            with self._changed:
                self._rivers.remove(river)

    def _one_by_one(self, river: RunningBatch) -> None:
        """Something failed, and one of them is to blame: the others must not suffer."""
        LOG.warning(
            "%d tasks failed in company and are done one by one", len(river.jobs), exc_info=True
        )
        with self._changed:
            self._rivers.remove(river)
            self._batch = river.jobs
        for job in river.jobs:
            self._call(self._deliver, [job], self._results([job]))

    def _run(self, batch: list[BatchJob]) -> None:
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

    def _results(self, batch: list[BatchJob]) -> list[Any]:
        """The result of every job, or the exception that it met."""
        run = batch[0].task.lane.run
        try:
            contents = [job.task.content for job in batch]
            results = list(run(contents, lambda: self._is_wanted(batch)))
            assert len(results) == len(batch)
        except Cancelled as left:
            return [left] * len(batch)
        except Exception as error:
            if len(batch) == 1:
                return [error]
            # one of them is to blame: the others must not suffer
            return [result for job in batch for result in self._results([job])]
        return results

    def _is_wanted(self, batch: list[BatchJob]) -> bool:
        return not self._closed and any(job.wanted for job in batch)

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

    def _deliver(self, batch: list[BatchJob], results: list[Any]) -> None:
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


def broken() -> HTTPError:
    """Nothing will be computed any more."""
    return HTTPError(503, "the server is broken and must be restarted", retry_after=60)
