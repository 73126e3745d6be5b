"""Limits of connections, with a real socket and a small application behind it."""

import asyncio
import contextlib
import socket

import pytest
import uvicorn
from starlette.datastructures import Headers
from uvicorn.protocols.http.h11_impl import H11Protocol

from polyhead.server import connections
from polyhead.server.connections import ConnectionLimits, LimitedConnection, client_address
from polyhead.server.process import SignalFreeServer

GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_HEAD = b"GET / HTTP/1.1\r\nHo"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab"
HOUR = 3600.0
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Served:
    """Application that answers with the length of the body; /held waits, /large is 32 MB."""

    def __init__(self):
        self.release, self.held = asyncio.Event(), 0

    async def __call__(self, scope, receive, send):
        length, more = 0, True
        while more:
            message = await receive()
            length += len(message.get("body", b""))
            more = message.get("more_body", False)
        if scope["path"] == "/held":
            self.held += 1
            await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        parts = 512 if scope["path"] == "/large" else 0
        for _ in range(parts):
            await send({"type": "http.response.body", "body": bytes(2**16), "more_body": True})
        await send({"type": "http.response.body", "body": str(length).encode()})


@contextlib.asynccontextmanager
async def serving(**limits):
    """Serve with these limits; the others are an hour."""
    limits = ConnectionLimits(**{"head_seconds": HOUR, "write_seconds": HOUR, **limits})
    app = Served()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, http=LimitedConnection.with_limits(limits), ws="none", lifespan="off",
        log_level="critical", timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = SignalFreeServer(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await until(lambda: server.started)
    try:
        yield app, server.server_state.connections, listener.getsockname()
    finally:
        app.release.set()
        server.should_exit = True
        await task


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def send(address, content=b""):
    """Open a connection and send something; return its streams."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(content)
    return reader, writer


async def ask(address, path=b""):
    """Return the response to a whole request."""
    reader, writer = await send(address, GET % path)
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    writer.close()
    return answer


async def ended(reader):
    """Return what a connection sent until the server closed it."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), 30)
    return b""


async def test_slow_and_missing_heads_are_closed():
    async with serving(head_seconds=0.1) as (_, open_connections, address):
        slow, _slow = await send(address, HALF_HEAD)
        idle, _idle = await send(address)
        assert (await ended(slow)).startswith(b"HTTP/1.1 408 ")
        assert await ended(idle) == b""
        await until(lambda: not open_connections)


async def test_the_head_of_every_request_has_the_limit_and_the_request_has_not():
    async with serving(head_seconds=0.5) as (app, _, address):
        reader, writer = await send(address, GET % b"held")
        await until(lambda: app.held)
        await asyncio.sleep(0.8)
        app.release.set()
        await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 30)
        writer.write(HALF_HEAD)
        assert (await ended(reader)).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("content", [b"", HALF_HEAD, HALF_BODY], ids=["idle", "head", "body"])
async def test_a_new_connection_replaces_the_one_that_waits_longest(content):
    async with serving(max_open=8) as (app, open_connections, address):
        held, _writer = await send(address, GET % b"held")
        await until(lambda: app.held)
        waiting = []
        for _ in range(20):
            waiting.append(await send(address, content))
            assert (await ask(address)).startswith(b"HTTP/1.1 200")
        assert len(open_connections) <= 8
        assert await ended(waiting[0][0]) == b""
        app.release.set()
        answer = await asyncio.wait_for(held.readuntil(b"0\r\n\r\n"), 30)
        assert answer.startswith(b"HTTP/1.1 200")


async def test_a_remote_address_has_a_quarter_of_the_connections():
    loopback, connections.is_loopback = connections.is_loopback, lambda _: False
    try:
        async with serving(max_open=16) as (_, open_connections, address):
            sent = [await send(address, HALF_HEAD) for _ in range(10)]
            await ended(sent[5][0])
            assert len(open_connections) == 4
            assert (await ask(address)).startswith(b"HTTP/1.1 200")
    finally:
        connections.is_loopback = loopback


async def test_a_client_that_does_not_read_is_disconnected():
    async with serving(write_seconds=0.2) as (_, open_connections, address):
        with socket.create_connection(address) as client:
            client.sendall(GET % b"large")
            await until(lambda: open_connections)
            await until(lambda: not open_connections)


async def test_uvicorn_has_all_that_the_connection_overrides():
    """Uvicorn's class is not a public interface; a renamed method would not be called any more."""
    added = {"with_limits", "is_waiting", "limits", "address", "waiting_since"}
    own = {name for name in vars(LimitedConnection) if not name.startswith("_")} - added
    assert len(own) > 7
    assert own <= {name for base in H11Protocol.__mro__ for name in vars(base)}


@pytest.mark.parametrize(
    ("peer", "forwarded", "behind_proxy", "expected"),
    [("127.0.0.1", "", False, ""), ("::1", "1.2.3.4", False, ""), ("9.9.9.9", "", False, "9.9.9.9"),
     ("127.0.0.1", "6.6.6.6, 1.2.3.4", True, "1.2.3.4"), ("9.9.9.9", "1.2.3.4", True, "9.9.9.9")],
)  # fmt: skip
def test_the_address_of_a_client_is_forged_by_no_header(peer, forwarded, behind_proxy, expected):
    headers = Headers({"x-forwarded-for": forwarded})
    assert client_address({"client": (peer, 1)}, headers, behind_proxy=behind_proxy) == expected


def test_the_limit_of_open_files_allows_the_connections():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(300, before[1]), before[1]))
        allowed = connections.open_files_limit(1000)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert allowed == min(1000, soft - connections.RESERVED_FILES)
        assert soft >= min(1064, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
