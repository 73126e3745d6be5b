"""The queue: who shares a batch, who goes first, who is refused, and what leaving means."""

import asyncio
import time

import pytest

from polyhead.decoding.cancel import Cancelled
from polyhead.errors import ConfigError
from polyhead.server.batch_keys import BatchKey, Task
from polyhead.server.errors import ClientDisconnected, HTTPError
from polyhead.server.metrics import Metrics
from polyhead.server.scheduler import Batcher
from polyhead.server.settings import Settings


class Model:
    """Doubles numbers, notes its batches, and can be held."""

    def __init__(self):
        self.batches = []
        self.held = False

    def run(self, contents, _wanted):
        while self.held:
            time.sleep(0.001)
        self.batches.append(list(contents))
        if "bad" in contents:
            raise ConfigError("bad")
        return [2 * content for content in contents]


async def nobody_leaves():
    await asyncio.Event().wait()


def lane(model, name="a", **limits):
    return BatchKey(name, model.run, **limits)


def alone(scenario, **settings):
    """Run a scenario with a batcher of its own."""

    async def run():
        batcher, model = Batcher(Settings(**settings), Metrics()), Model()
        batcher.start()
        try:
            return await scenario(batcher, model)
        finally:
            model.held = False
            batcher.close()

    return asyncio.run(run())


def ask(batcher, *tasks):
    return asyncio.ensure_future(batcher.ask(tasks, nobody_leaves()))


async def hold(batcher, model):
    """Keep the model busy with a task of its own, so that what follows waits."""
    model.held = True
    first = ask(batcher, Task(lane(model, "first"), 1))
    while batcher.depth or not first:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    return first


def test_what_waits_in_one_lane_is_done_together_and_everyone_gets_his_own():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        asked = [ask(batcher, Task(lane(model), n), Task(lane(model), 10 * n)) for n in range(5)]
        other = ask(batcher, Task(lane(model, "b"), 100))
        await asyncio.sleep(0.01)
        model.held = False
        assert await first == [2]
        assert [await one for one in asked] == [[2 * n, 20 * n] for n in range(5)]
        assert await other == [200]
        return model.batches

    first, *rest = alone(scenario)
    assert first == [1]
    assert sorted(map(sorted, rest)) == [[0, 0, 1, 2, 3, 4, 10, 20, 30, 40], [100]]


def test_a_batch_keeps_its_limits_of_rows_and_of_tokens_with_padding():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        rows = [ask(batcher, Task(lane(model, "rows", max_rows=2), n)) for n in range(5)]
        tokens = lane(model, "tokens", max_tokens=12)
        sizes = [ask(batcher, Task(tokens, size, size)) for size in (3, 4, 4, 6, 100)]
        await asyncio.sleep(0.01)
        model.held = False
        await asyncio.gather(first, *rows, *sizes)
        return model.batches

    batches = alone(scenario)
    assert batches[1:4] == [[0, 1], [2, 3], [4]]
    assert batches[4:] == [[3, 4, 4], [6], [100]]


def test_a_long_request_lets_others_go_first():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        one = lane(model, "x", max_rows=1)
        book = ask(batcher, *(Task(one, n) for n in range(50)))
        await asyncio.sleep(0.06)
        short = ask(batcher, Task(one, 1000))
        await asyncio.sleep(0.01)
        model.held = False
        await asyncio.gather(first, book, short)
        return model.batches.index([1000])

    assert alone(scenario) < 10


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        waiting = [ask(batcher, Task(lane(model), n)) for n in range(4)]
        await asyncio.sleep(0.01)
        with pytest.raises(HTTPError) as refused:
            await ask(batcher, Task(lane(model), 5))
        model.held = False
        await asyncio.gather(first, *waiting)
        return refused.value

    refusal = alone(scenario, queue=4)
    assert refusal.status == 429
    assert int(refusal.headers["Retry-After"]) >= 1


def test_a_request_larger_than_the_queue_shuts_nobody_out():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        one = lane(model, "x", max_rows=1)
        book = ask(batcher, *(Task(one, n) for n in range(40)))
        await asyncio.sleep(0.01)
        assert batcher.depth == 2  # a quarter of the queue
        others = [ask(batcher, Task(one, 1000 + n)) for n in range(6)]
        await asyncio.sleep(0.01)
        with pytest.raises(HTTPError):
            await ask(batcher, Task(one, 2000))
        model.held = False
        await first
        assert await book == [2 * n for n in range(40)]
        assert [await other for other in others] == [[2000 + 2 * n] for n in range(6)]
        assert batcher.depth == 0
        return max(model.batches.index([1000 + n]) for n in range(6))

    assert alone(scenario, queue=8) <= 9


def test_a_task_that_fails_late_ends_its_request_and_what_is_left_of_it():
    async def scenario(batcher, model):
        one = lane(model, max_rows=1)
        with pytest.raises(ConfigError, match="bad"):
            await ask(batcher, *(Task(one, n) for n in range(5)), Task(one, "bad"),
                      *(Task(one, n) for n in range(100, 200)))  # fmt: skip
        assert batcher.depth == 0
        return model.batches

    assert len(alone(scenario, queue=4)) < 20


def test_a_request_larger_than_the_queue_is_taken_when_nobody_waits():
    async def scenario(batcher, model):
        return await ask(batcher, *(Task(lane(model), n) for n in range(9)))

    assert alone(scenario, queue=4) == [2 * n for n in range(9)]


def test_who_leaves_takes_his_tasks_along_and_makes_room():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        left = asyncio.Event()
        leaver = asyncio.ensure_future(batcher.ask([Task(lane(model), 7)], left.wait()))
        await asyncio.sleep(0.01)
        assert batcher.depth == 1
        left.set()
        with pytest.raises(ClientDisconnected):
            await leaver
        assert batcher.depth == 0
        model.held = False
        await first
        return model.batches

    assert alone(scenario) == [[1]]


def test_what_is_being_computed_is_told_when_nobody_wants_it_any_more():
    ended = []

    async def scenario(batcher, _model):
        left = asyncio.Event()

        def run(contents, wanted):
            while wanted():
                time.sleep(0.001)
            ended.append(True)
            return contents

        leaver = asyncio.ensure_future(batcher.ask([Task(BatchKey("x", run), 7)], left.wait()))
        await asyncio.sleep(0.02)
        assert not ended
        left.set()
        with pytest.raises(ClientDisconnected):
            await leaver
        assert await ask(batcher, Task(BatchKey("y", lambda c, _: c), 8)) == [8]

    alone(scenario)
    assert ended == [True]


def test_work_for_one_is_told_when_its_client_or_everybody_has_to_go():
    ended = []

    def work(wanted):
        while wanted():
            time.sleep(0.001)
        ended.append(True)
        raise Cancelled

    async def scenario(batcher, _model):
        left = asyncio.Event()
        leaver = asyncio.ensure_future(batcher.one(work, left.wait()))
        await asyncio.sleep(0.02)
        assert not ended
        left.set()
        with pytest.raises(ClientDisconnected):
            await leaver
        assert await batcher.one(lambda _: 8, nobody_leaves()) == 8
        assert ended == [True]
        stays = asyncio.ensure_future(batcher.one(work, nobody_leaves()))
        await asyncio.sleep(0.02)
        assert batcher.close()
        with pytest.raises(Cancelled):
            await stays

    alone(scenario)
    assert ended == [True, True]


def test_a_thread_that_hangs_is_not_waited_for():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        first.cancel()
        assert not batcher.close(timeout=0.05)

    alone(scenario)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_thread_that_has_died(caplog):
    def die(_contents, _wanted):
        raise SystemExit

    async def scenario(batcher, model):
        assert batcher.works
        first = await hold(batcher, model)
        asked = [ask(batcher, Task(BatchKey("x", die), 1)), ask(batcher, Task(lane(model), 1))]
        await asyncio.sleep(0.01)
        text = batcher.stream(lambda: iter(lambda: "x", None))
        model.held = False
        assert await first == [2]
        for one in asked:
            with pytest.raises(HTTPError, match="restarted"):
                await asyncio.wait_for(one, 5)
        pieces = [await text.pieces.get()]
        while pieces[-1] == "x":
            pieces.append(await text.pieces.get())
        assert isinstance(pieces[-1], HTTPError)
        assert not batcher.works
        for late in (lambda: batcher.stream(lambda: iter("a")), lambda: batcher._admit([])):
            with pytest.raises(HTTPError) as refused:
                late()
            assert refused.value.status == 503

    alone(scenario)
    assert "has died" in caplog.text


def test_the_deadline_is_kept():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        with pytest.raises(HTTPError) as refused:
            await ask(batcher, Task(lane(model), 7))
        with pytest.raises(HTTPError):
            await first
        return refused.value

    assert alone(scenario, deadline_seconds=0.05).status == 503


def test_one_bad_task_does_not_spoil_the_batch():
    async def scenario(batcher, model):
        first = await hold(batcher, model)
        good = [ask(batcher, Task(lane(model), n)) for n in range(3)]
        bad = ask(batcher, Task(lane(model), "bad"))
        await asyncio.sleep(0.01)
        model.held = False
        await first
        assert [await one for one in good] == [[0], [2], [4]]
        with pytest.raises(ConfigError, match="bad"):
            await bad

    alone(scenario)


def test_an_exception_that_no_future_takes_is_told_too():
    async def scenario(batcher, _model):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(batcher.one(lambda _: next(iter(())), nobody_leaves()), 5)

    alone(scenario)


def test_a_lone_client_is_not_kept_waiting_for_company():
    async def scenario(batcher, model):
        started = time.monotonic()
        for n in range(5):
            await ask(batcher, Task(lane(model), n))
        return time.monotonic() - started

    assert alone(scenario, delay_seconds=1.0) < 1.0


def test_texts_that_are_written_take_turns_with_batches():
    async def scenario(batcher, model):
        endless = batcher.stream(lambda: iter(lambda: "x", None))
        assert await endless.pieces.get() == "x"
        assert await ask(batcher, Task(lane(model), 4)) == [8]
        assert await endless.pieces.get() == "x"
        endless.wanted = False
        while await endless.pieces.get() is not None:
            pass
        short = batcher.stream(lambda: iter("ab"))
        return [await short.pieces.get() for _ in range(3)]

    assert alone(scenario) == ["a", "b", None]


def test_a_text_that_fails_says_so_to_its_reader():
    async def scenario(batcher, _model):
        def fail():
            raise ConfigError("no")

        return await batcher.stream(fail).pieces.get()

    assert str(alone(scenario)) == "no"


class River:
    """A flow of numbers: n is doubled after n steps. It notes who was there, and can be held."""

    def __init__(self, model, age=1000):
        self.model, self.left, self.age = model, {}, age

    def __len__(self):
        return len(self.left)

    @property
    def open(self):
        return self.age > 0

    def enter(self, tickets, contents):
        if "worse" in contents:
            raise RuntimeError("cannot begin")
        self.left |= {
            ticket: [content, content] for ticket, content in zip(tickets, contents, strict=True)
        }

    def step(self):
        while self.model.held:
            time.sleep(0.001)
        self.age -= 1
        self.model.batches.append(sorted(str(content) for content, _ in self.left.values()))
        if any(content == "bad" for content, _ in self.left.values()):
            raise RuntimeError("one of them is bad")
        done = [(t, 2 * content) for t, (content, n) in self.left.items() if n <= 1]
        self.left = {t: [content, n - 1] for t, (content, n) in self.left.items() if n > 1}
        return done

    def leave(self, tickets):
        self.left = {t: state for t, state in self.left.items() if t not in tickets}


def flowing(model, name="a", age=1000, **limits):
    return BatchKey(name, model.run, flow=lambda: River(model, age), **limits)


async def begun(batcher, model, lane, number):
    """A task that is being computed, and held there."""
    model.held = True
    one = ask(batcher, Task(lane, number))
    while batcher.depth:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    return one


def test_whoever_comes_late_joins_those_in_work_and_leaves_before_them():
    async def scenario(batcher, model):
        lane = flowing(model)
        slow = await begun(batcher, model, lane, 6)
        quick = ask(batcher, Task(lane, 2))
        await asyncio.sleep(0.01)
        model.held = False
        assert await quick == [4]
        assert await slow == [12]
        return model.batches

    assert alone(scenario) == [["6"], ["2", "6"], ["2", "6"], ["6"], ["6"], ["6"]]


def test_a_flow_keeps_its_limit_of_rows_and_others_wait_outside():
    async def scenario(batcher, model):
        lane = flowing(model, max_rows=2)
        first = await begun(batcher, model, lane, 3)
        rest = [ask(batcher, Task(lane, 3)) for _ in range(4)]
        other = ask(batcher, Task(flowing(model, "b"), 1))
        await asyncio.sleep(0.01)
        model.held = False
        assert await asyncio.gather(first, other, *rest) == [[6], [2], [6], [6], [6], [6]]
        return model.batches

    batches = alone(scenario)
    assert max(len(batch) for batch in batches) == 2
    assert batches.index(["1"]) < 4  # another lane did not wait for this one


def test_a_flow_that_is_old_lets_nobody_in_and_a_new_one_begins():
    async def scenario(batcher, model):
        lane = flowing(model, age=1)
        first = await begun(batcher, model, lane, 4)
        late = ask(batcher, Task(lane, 2))
        await asyncio.sleep(0.01)
        model.held = False
        assert await asyncio.gather(first, late) == [[8], [4]]
        return model.batches

    batches = alone(scenario)
    assert ["2", "4"] not in batches
    assert batches.index(["2"]) < 4


@pytest.mark.parametrize("bad", ["bad", "worse"])
def test_one_who_fails_in_a_flow_fails_alone(bad):
    async def scenario(batcher, model):
        lane = flowing(model)
        good = await begun(batcher, model, lane, 5)
        broken = ask(batcher, Task(lane, bad))
        await asyncio.sleep(0.01)
        model.held = False
        assert await good == [10]
        if bad == "bad":  # the model itself says no; "worse" cannot even begin in company
            with pytest.raises(ConfigError, match="bad"):
                await broken
        else:
            assert await broken == ["worseworse"]
        assert await ask(batcher, Task(lane, 1)) == [2]

    alone(scenario)


def test_where_no_flow_can_begin_a_batch_is_run_and_the_log_says_why(caplog):
    async def scenario(batcher, model):
        lane = BatchKey("a", model.run, flow=lambda: 1 / 0)
        assert await ask(batcher, Task(lane, 4)) == [8]
        return model.batches

    assert alone(scenario) == [[4]]
    (said,) = caplog.records
    assert "a flow cannot begin" in said.message
    assert said.exc_info[0] is ZeroDivisionError


def test_whoever_leaves_a_flow_is_not_computed_any_more():
    async def scenario(batcher, model):
        lane, leaves, model.held = flowing(model), asyncio.Event(), True
        gone = asyncio.ensure_future(batcher.ask([Task(lane, 90)], leaves.wait()))
        await asyncio.sleep(0.05)  # it is in the middle of its first step
        good = ask(batcher, Task(lane, 4))
        leaves.set()
        with pytest.raises(ClientDisconnected):
            await gone
        model.held = False
        assert await good == [8]
        return model.batches

    assert alone(scenario) == [["90"], ["4"], ["4"], ["4"], ["4"]]


def test_those_in_a_flow_are_told_if_the_thread_dies():
    async def scenario(batcher, model):
        river = await begun(batcher, model, flowing(model), 3)
        batcher._advance = lambda _stream: 1 / 0
        batcher.stream(lambda: iter(()))
        model.held = False
        with pytest.raises(HTTPError) as refusal:
            await asyncio.wait_for(river, 10)  # long before the deadline
        assert refusal.value.status == 503

    alone(scenario)
