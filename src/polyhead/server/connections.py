"""HTTP connections with limits on time and number.

    head      a request head must be complete `head_seconds` after its first byte (after the
              connection, for the first one): else 408
    body      a time limit in `request_parsing.py`
    response  a client that reads nothing for `write_seconds` is disconnected
    number    at most `max_open`, of these a quarter from one remote address. A connection over a
              limit replaces the one that has waited longest for a request or for its body: idle and
              half-sent connections do not keep clients out

Loopback addresses, of local programs and of a reverse proxy, have only the total limit.
"""

import asyncio
import contextlib
from collections.abc import Collection
from contextvars import ContextVar
from dataclasses import dataclass

import h11
from starlette.datastructures import Headers
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from polyhead.server.settings import MAX_CONNECTIONS, is_loopback

CLIENT: ContextVar[str] = ContextVar("client", default="")  # `client_address` of the request
SHARE = 4  # a remote address has at most 1/4 of the connections
RESERVED_FILES = 64  # open files of the process besides connections
LAST = b'HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n{"error":"%s"}'
TIMEOUT = LAST % (b"408 Request Timeout", b"the request head arrived too slowly")
NOT_HTTP = LAST % (b"400 Bad Request", b"this is not HTTP")


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of a server's connections."""

    max_open: int = MAX_CONNECTIONS
    head_seconds: float = 10.0
    write_seconds: float = 30.0


class LimitedConnection(H11Protocol):
    """Uvicorn's HTTP connection with time limits; one above a limit replaces an idle one."""

    limits = ConnectionLimits()
    address = ""  # of the client; "" for a loopback address
    waiting_since = 0.0
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    @classmethod
    def with_limits(cls, limits: ConnectionLimits) -> type["LimitedConnection"]:
        """Return a connection class with other limits."""
        return type(cls.__name__, (cls,), {"limits": limits})

    @property
    def is_waiting(self) -> bool:
        """Return whether the client has yet to send a request, or the rest of its body."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.waiting_since = self.loop.time()
        self._start_head_timer()
        if self.client and not is_loopback(self.client[0]):
            self.address = self.client[0]
        limit = self.limits.max_open
        if len(self.connections) <= max(1, limit // SHARE):
            return
        others = [other for other in self.connections if isinstance(other, LimitedConnection)]
        own = [other for other in others if self.address and other.address == self.address]
        if len(own) > max(1, limit // SHARE):
            _close_idle(own, self)
        elif len(others) > limit:
            _close_idle(others, self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_head_timer()
        else:
            self._stop_head_timer()

    def send_400_response(self, _msg: str) -> None:
        """Reject what is not HTTP, unless a response has started; no other response follows."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(NOT_HTTP)  # h11 would refuse some, such as a body after HEAD
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def _head_timeout(self) -> None:
        if not self.transport.is_closing():
            if self.conn.trailing_data[0]:
                self.transport.write(TIMEOUT)
            self.transport.close()
            self._abort_later()

    def _abort_later(self) -> None:
        """Abort the connection if its client does not read the response."""
        abort = self.transport.abort
        self._write_timer = self.loop.call_later(self.limits.write_seconds, abort)

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            seconds = self.limits.head_seconds
            self._head_timer = self.loop.call_later(seconds, self._head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()


def _close_idle(connections: Collection[LimitedConnection], newest: LimitedConnection) -> None:
    """Disconnect the one that has waited longest; the newest, if none of the others waits."""
    waiting = [c for c in connections if c is not newest and c.is_waiting]
    oldest = min(waiting, key=lambda c: c.waiting_since, default=newest)
    oldest.connections.discard(oldest)
    oldest.transport.abort()


def client_address(scope: Scope, headers: Headers, *, behind_proxy: bool) -> str:
    """Return the address whose requests share limits; "" is a program on this machine.

    The proxy on this machine appends the address of its client to X-Forwarded-For.
    """
    host = scope["client"][0] if scope.get("client") else ""
    if not is_loopback(host):
        return str(host)
    forwarded = headers.get("x-forwarded-for", "") if behind_proxy else ""
    return forwarded.rsplit(",", 1)[-1].strip()[:64]


def open_files_limit(wanted: int) -> int:
    """Raise the limit of open files for that many connections; return how many can be open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + RESERVED_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(16, min(wanted, soft - RESERVED_FILES))
    return wanted
