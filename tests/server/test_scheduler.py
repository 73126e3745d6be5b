"""Request scheduler: shared batches, order, admission, cancellation and failures."""

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest
from starlette.requests import ClientDisconnect

from polyhead.errors import Cancelled, ConfigError
from polyhead.server import worker
from polyhead.server.connections import CLIENT
from polyhead.server.metrics import Metrics
from polyhead.server.queued_work import BatchKey, QueuedRequest
from polyhead.server.responses import HTTPError
from polyhead.server.scheduler import Scheduler
from polyhead.server.settings import MAX_STREAMS, Settings

pytestmark = pytest.mark.anyio


class Model:
    """Doubles numbers, records its batches, and can be paused."""

    def __init__(self):
        self.batches = []
        self.resumed, self.entered = threading.Event(), threading.Event()
        self.resumed.set()

    def pause(self):
        self.resumed.clear()
        self.entered.clear()

    def wait(self):
        self.entered.set()
        self.resumed.wait()

    def run(self, contents, _is_cancelled):
        self.wait()
        self.batches.append(list(contents))
        if "bad" in contents:
            raise ConfigError("bad", "bad")
        return [2 * content for content in contents]

    def key(self, name="a", **limits):
        return BatchKey(name, self.run, **limits)

    def running_key(self, name="a", n_open_steps=1000, **limits):
        return BatchKey(name, self.run, start=lambda: Countdown(self, n_open_steps), **limits)


class Countdown:
    """Running batch that doubles n after n steps, and records the requests of every step."""

    def __init__(self, model, n_open_steps):
        self.model, self.slots, self.n_open_steps = model, {}, n_open_steps

    @property
    def open(self):
        return self.n_open_steps > 0

    def add(self, requests, contents):
        if "worse" in contents:
            raise RuntimeError("cannot be added")
        self.slots |= {
            request: (content, content) for request, content in zip(requests, contents, strict=True)
        }

    def step(self):
        self.model.wait()
        self.n_open_steps -= 1
        self.model.batches.append(sorted(str(content) for content, _ in self.slots.values()))
        if any(content == "bad" for content, _ in self.slots.values()):
            raise RuntimeError("a slot failed")
        done = [(r, 2 * content) for r, (content, n) in self.slots.items() if n <= 1]
        self.slots = {r: (content, n - 1) for r, (content, n) in self.slots.items() if n > 1}
        return done

    def cancel(self, requests):
        self.slots = {r: slot for r, slot in self.slots.items() if r not in requests}


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def model():
    return Model()


@pytest.fixture
async def scheduler(model):
    """Start a scheduler with its worker."""
    scheduler = Scheduler(Settings(), Metrics())
    scheduler.worker.start()
    yield scheduler
    model.resumed.set()
    scheduler.worker.close(timeout=10.0)


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def submit(scheduler, key, *contents, sizes=None, disconnected=None):
    """Return the future of one client's requests, which are in the queue."""
    sizes = sizes or [1] * len(contents)
    requests = [QueuedRequest(key, c, size) for c, size in zip(contents, sizes, strict=True)]
    left = (disconnected or asyncio.Event()).wait()
    future = asyncio.ensure_future(scheduler.submit(requests, left))
    await until(lambda: future.done() or hasattr(requests[0], "result"))
    return future


async def pause(scheduler, model, key=None, content=1, **options):
    """Pause the model within a batch, so that later requests stay in the queue."""
    model.pause()
    first = await submit(scheduler, key or model.key("first"), content, **options)
    await until(model.entered.is_set)
    return first


@asynccontextmanager
async def paused(scheduler, model, *request):
    """Pause the model; afterwards wait for the request that it was working on."""
    first = await pause(scheduler, model, *request)
    yield first
    model.resumed.set()
    await first


@contextmanager
def rejected(status):
    with pytest.raises(HTTPError) as caught:
        yield
    assert caught.value.status == status


async def test_requests_with_one_key_share_a_batch_and_get_their_own_results(scheduler, model):
    async with paused(scheduler, model):
        pairs = [await submit(scheduler, model.key(), n, 10 * n) for n in range(5)]
        other = await submit(scheduler, model.key("b"), 100)
    assert [await pair for pair in pairs] == [[2 * n, 20 * n] for n in range(5)]
    assert await other == [200]
    first, *rest = model.batches
    assert first == [1]
    assert sorted(map(sorted, rest)) == [[0, 0, 1, 2, 3, 4, 10, 20, 30, 40], [100]]


async def test_a_batch_has_at_most_max_slots_and_max_tokens_with_padding(scheduler, model):
    by_slots, by_tokens = model.key("slots", max_slots=2), model.key("tokens", max_tokens=12)
    async with paused(scheduler, model):
        queued = [await submit(scheduler, by_slots, n) for n in range(5)]
        queued += [await submit(scheduler, by_tokens, n, sizes=[n]) for n in (3, 4, 4, 6, 100)]
    await asyncio.gather(*queued)
    assert model.batches[1:] == [[0, 1], [2, 3], [4], [3, 4, 4], [6], [100]]


async def test_a_short_request_is_served_before_the_rest_of_a_long_one(
    scheduler, model, monkeypatch
):
    monkeypatch.setattr(worker, "YIELD_SECONDS", 60)
    key = model.key("x", max_slots=1)
    async with paused(scheduler, model):
        queued = [await submit(scheduler, key, *n) for n in (range(50), [1000])]
    await asyncio.gather(*queued)
    assert model.batches.index([1000]) == 2


async def test_a_full_queue_rejects_with_429_and_retry_after(scheduler, model):
    scheduler.settings = Settings(queue=4)
    async with paused(scheduler, model):
        queued = [await submit(scheduler, model.key(), n) for n in range(4)]
        with pytest.raises(HTTPError) as rejected:
            await (await submit(scheduler, model.key(), 5))
    await asyncio.gather(*queued)
    assert rejected.value.status == 429
    assert int(rejected.value.headers["Retry-After"]) >= 1


async def test_a_request_larger_than_the_queue_occupies_a_quarter_of_it(
    scheduler, model, monkeypatch
):
    monkeypatch.setattr(worker, "YIELD_SECONDS", 60)
    scheduler.settings = Settings(queue=8)
    key = model.key("x", max_slots=1)
    async with paused(scheduler, model):
        long = await submit(scheduler, key, *range(40))
        assert len(scheduler.worker.queue) == 2
        others = [await submit(scheduler, key, 1000 + n) for n in range(6)]
        with rejected(429):
            await (await submit(scheduler, key, 2000))
    assert await long == [2 * n for n in range(40)]
    assert [await other for other in others] == [[2000 + 2 * n] for n in range(6)]
    assert scheduler.worker.queue == []
    assert max(model.batches.index([1000 + n]) for n in range(6)) <= 20  # of 47


async def test_a_failing_part_ends_its_request_and_removes_the_rest(scheduler, model):
    scheduler.settings = Settings(queue=4)
    key = model.key(max_slots=1)
    contents = [*range(5), "bad", *range(100, 200)]
    with pytest.raises(ConfigError, match="bad"):
        await (await submit(scheduler, key, *contents))
    assert scheduler.worker.queue == []
    assert len(model.batches) < 100


async def test_a_disconnected_client_frees_its_place_in_the_queue(scheduler, model):
    left = asyncio.Event()
    async with paused(scheduler, model):
        cancelled = await submit(scheduler, model.key(), 7, disconnected=left)
        assert len(scheduler.worker.queue) == 1
        left.set()
        with pytest.raises(ClientDisconnect):
            await cancelled
        assert scheduler.worker.queue == []
    assert model.batches == [[1]]


async def test_a_computation_is_cancelled_when_its_client_disconnects_or_the_server_closes(
    scheduler,
):
    entered, ended = threading.Event(), []

    def work(is_cancelled):
        entered.set()
        while not is_cancelled():
            pass
        ended.append(True)
        raise Cancelled

    left = asyncio.Event()
    cancelled = asyncio.ensure_future(scheduler.run(work, left.wait()))
    await until(entered.is_set)
    assert not ended
    left.set()
    with pytest.raises(ClientDisconnect):
        await cancelled
    assert await scheduler.run(lambda _: 8, asyncio.Event().wait()) == 8
    assert ended == [True]
    entered.clear()
    closed = asyncio.ensure_future(scheduler.run(work, asyncio.Event().wait()))
    await until(entered.is_set)
    assert scheduler.worker.close(timeout=10.0)
    with pytest.raises(Cancelled):
        await closed
    assert ended == [True, True]


async def test_closing_does_not_wait_for_a_hanging_thread(scheduler, model):
    first = await pause(scheduler, model)
    first.cancel()
    assert not scheduler.worker.close(timeout=0.05)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_requests_and_streams_fail_with_503_after_the_thread_has_failed(
    scheduler, model, caplog
):
    def fail(_contents, _is_cancelled):
        raise SystemExit

    assert scheduler.worker.is_alive
    in_slot = await pause(scheduler, model, model.running_key("r"), 1000)
    failing = [await submit(scheduler, BatchKey("x", fail), 1)]
    failing += [in_slot, await submit(scheduler, model.key(), 1)]
    stream = scheduler.stream(lambda: iter(lambda: "x", None))
    model.resumed.set()
    for future in failing:
        with rejected(503):
            await asyncio.wait_for(future, 20)  # before the deadline
    pieces = [await stream.pieces.get()]
    while pieces[-1] == "x":
        pieces.append(await stream.pieces.get())
    assert isinstance(pieces[-1], HTTPError)
    assert not scheduler.worker.is_alive
    with rejected(503):
        scheduler.stream(lambda: iter("a"))
    with rejected(503):
        await (await submit(scheduler, model.key(), 1))
    assert "thread has failed" in caplog.text


async def test_requests_fail_with_503_after_the_deadline(scheduler, model):
    scheduler.settings = Settings(deadline_seconds=0.05)
    first = await pause(scheduler, model)
    for future in (first, await submit(scheduler, model.key(), 7)):
        with rejected(503):
            await future


async def test_a_failing_request_does_not_affect_the_rest_of_its_batch(scheduler, model):
    async with paused(scheduler, model):
        good = [await submit(scheduler, model.key(), n) for n in range(3)]
        bad = await submit(scheduler, model.key(), "bad")
    assert [await future for future in good] == [[0], [2], [4]]
    with pytest.raises(ConfigError, match="bad"):
        await bad


async def test_stop_iteration_is_reported_as_an_error(scheduler):
    work = scheduler.run(lambda _: next(iter(())), asyncio.Event().wait())
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(work, 20)


async def test_a_single_client_is_served_without_delay(scheduler, model):
    scheduler.worker.delay_seconds = 600.0
    for n in range(5):
        assert await (await submit(scheduler, model.key(), n)) == [2 * n]


async def test_streams_alternate_with_batches_and_can_be_cancelled(scheduler, model):
    endless = scheduler.stream(lambda: iter(lambda: "x", None))
    assert await endless.pieces.get() == "x"
    assert await (await submit(scheduler, model.key(), 4)) == [8]
    assert await endless.pieces.get() == "x"
    endless.is_cancelled = True
    while await endless.pieces.get() is not None:
        pass
    short = scheduler.stream(lambda: iter("ab"))
    assert [await short.pieces.get() for _ in range(3)] == ["a", "b", None]


def open_streams(scheduler, address, count=1):
    """Start endless streams of a client."""
    CLIENT.set(address)
    return [scheduler.stream(lambda: iter(lambda: "x", None)) for _ in range(count)]


async def last_piece(stream):
    piece = "x"
    while isinstance(piece, str):
        piece = await asyncio.wait_for(stream.pieces.get(), 20)
    return piece


async def test_a_new_address_gets_a_stream_of_the_address_with_the_most(scheduler):
    first, *rest = open_streams(scheduler, "1.1.1.1", MAX_STREAMS)
    open_streams(scheduler, "2.2.2.2", 2)
    assert [(await last_piece(stream)).status for stream in (first, rest[0])] == [503, 503]
    with rejected(429):
        open_streams(scheduler, "1.1.1.1")
    for _ in range(MAX_STREAMS // 2 - 2):
        open_streams(scheduler, "2.2.2.2")
    with rejected(429):  # half each
        open_streams(scheduler, "2.2.2.2")


async def test_a_stream_is_guaranteed_the_deadline_and_ended_by_its_limit(scheduler):
    old, *_ = open_streams(scheduler, "", MAX_STREAMS)
    with rejected(429):
        open_streams(scheduler, "")
    old.started -= scheduler.settings.deadline_seconds
    (new,) = open_streams(scheduler, "")
    assert (await last_piece(old)).status == 503
    new.started -= scheduler.settings.stream_seconds
    assert (await last_piece(new)).status == 503


async def test_an_address_occupies_at_most_half_of_the_queue(scheduler, model):
    queued = []
    async with paused(scheduler, model):
        for address, share in (("1.1.1.1", 2), ("", 1)):
            CLIENT.set(address)
            room = scheduler.settings.queue // share - len(scheduler.worker.queue)
            queued += [await submit(scheduler, model.key(), 1) for _ in range(room)]
            with rejected(429):
                await (await submit(scheduler, model.key(), 1))
        CLIENT.set("")
    await asyncio.gather(*queued)


async def test_a_failing_stream_ends_with_its_error(scheduler):
    def fail():
        raise ConfigError("no", "no")

    assert (await scheduler.stream(fail).pieces.get()).code == "no"


async def test_a_late_request_joins_a_running_batch_and_leaves_when_it_is_done(scheduler, model):
    key = model.running_key()
    async with paused(scheduler, model, key, 6) as slow:
        quick = await submit(scheduler, key, 2)
    assert await quick == [4]
    assert await slow == [12]
    assert model.batches == [["6"], ["2", "6"], ["2", "6"], ["6"], ["6"], ["6"]]


async def test_a_full_running_batch_does_not_delay_other_keys(scheduler, model):
    key = model.running_key(max_slots=2)
    async with paused(scheduler, model, key, 3) as first:
        rest = [await submit(scheduler, key, 3) for _ in range(4)]
        other = await submit(scheduler, model.running_key("b"), 1)
    assert await asyncio.gather(first, other, *rest) == [[6], [2], [6], [6], [6], [6]]
    assert max(len(batch) for batch in model.batches) == 2
    assert model.batches.index(["1"]) < 4


async def test_a_second_running_batch_starts_when_the_first_is_not_open(scheduler, model):
    key = model.running_key(n_open_steps=1)
    async with paused(scheduler, model, key, 4) as first:
        late = await submit(scheduler, key, 2)
    assert await asyncio.gather(first, late) == [[8], [4]]
    assert ["2", "4"] not in model.batches
    assert model.batches.index(["2"]) < 4


@pytest.mark.parametrize("content", ["bad", "worse"])
async def test_requests_of_a_failed_running_batch_are_computed_alone(scheduler, model, content):
    key = model.running_key()
    async with paused(scheduler, model, key, 5) as good:
        failing = await submit(scheduler, key, content)
    assert await good == [10]
    if content == "bad":
        with pytest.raises(ConfigError, match="bad"):
            await failing
    else:  # it only cannot be added to others
        assert await failing == ["worseworse"]
    assert await (await submit(scheduler, key, 1)) == [2]


async def test_a_whole_batch_is_computed_where_no_running_one_can_start(scheduler, model, caplog):
    key = BatchKey("a", model.run, start=lambda: 1 / 0)
    assert await (await submit(scheduler, key, 4)) == [8]
    assert model.batches == [[4]]
    (record,) = caplog.records
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_disconnected_client_frees_its_slot_of_a_running_batch(scheduler, model):
    key, left = model.running_key(), asyncio.Event()
    cancelled = await pause(scheduler, model, key, 90, disconnected=left)
    good = await submit(scheduler, key, 4)
    left.set()
    with pytest.raises(ClientDisconnect):
        await cancelled
    model.resumed.set()
    assert await good == [8]
    assert model.batches == [["90"], ["4"], ["4"], ["4"], ["4"]]


async def test_batches_of_an_engine_run_at_once_and_share_the_queue():
    together, batches = threading.Barrier(2, timeout=60), []

    def run(contents, _is_cancelled):
        batches.append(len(contents))
        together.wait()  # passes only if two batches run at the same time
        return [2 * content for content in contents]

    key = BatchKey("engine", run, max_slots=12, n_parallel=2)
    scheduler = Scheduler(Settings(), Metrics())
    requests = [QueuedRequest(key, n) for n in range(48)]
    pending = asyncio.ensure_future(scheduler.submit(requests, asyncio.sleep(60)))
    while len(scheduler.worker.queue) < 48:
        await asyncio.sleep(0.001)
    scheduler.worker.start()
    assert await pending == [2 * n for n in range(48)]
    assert batches == [12] * 4
    assert scheduler.worker.close(timeout=60.0)
