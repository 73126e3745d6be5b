"""The border: who may come in, in what state everybody leaves, and what is counted.

    Host        on loopback only its own names, and those that the server was told: no foreign page
                reaches us by a name of its own
    Origin      no other site's scripts
    key         Authorization: Bearer …, or LibreTranslate's api_key; compared in constant time
    draining    503, but for those who ask how we are
    answers     a content policy that allows our own files only, and nothing else from anywhere

Whatever goes wrong inside becomes one line of JSON.
"""

import hmac
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyhead.errors import ConfigError, DataError
from polyhead.server.errors import ClientDisconnected, HTTPError, refused
from polyhead.server.metrics import Metrics
from polyhead.server.settings import Settings

LOG = logging.getLogger("polyhead.server")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ALWAYS_OPEN = ("/health", "/health/live", "/health/ready")
STATES = (*ALWAYS_OPEN, "/metrics")
PUBLIC = ("/", "/favicon.ico", "/languages", "/frontend/settings", *ALWAYS_OPEN)
PUBLIC_FOLDERS = ("/page/", "/viewer/")
BY_BODY = ("/translate", "/detect")  # LibreTranslate's clients send the key there; the routes check


class SecurityMiddleware:
    """An ASGI application around another one."""

    def __init__(
        self, inside: ASGIApp, settings: Settings, metrics: Metrics, route_of: Callable[[str], str]
    ) -> None:
        self.inside, self.settings, self.metrics = inside, settings, metrics
        self.route_of = route_of
        self.draining = False
        self.n_open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets here
        started, status, route = time.monotonic(), [0], self.route_of(scope["path"])

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
                if self.draining:
                    MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        self.n_open += 1
        self.metrics.open.set(self.n_open)
        try:
            await self._answer(scope, receive, send_safely, status)
        finally:
            self.n_open -= 1
            self.metrics.open.set(self.n_open)
            self.metrics.requests.labels(route, str(status[0] or "left")).inc()
            self.metrics.seconds.labels(route).observe(time.monotonic() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, status: list[int]) -> None:
        try:
            self._admit(scope)
            await self.inside(scope, receive, send)
            return
        except (ClientDisconnected, ClientDisconnect):
            return
        except HTTPError as no:
            refusal = no
        except (ConfigError, DataError) as wrong:
            refusal = refused(wrong)
        except Exception:
            LOG.exception("a bug: %s %s", scope["method"], self.route_of(scope["path"]))
            refusal = HTTPError(500, "a mistake of the server; its log says more")
        if not status[0]:
            await refusal.response()(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        allowed = self.settings.allowed_hosts
        if self.settings.is_local or allowed:
            check_host(headers, (*LOCAL_NAMES, self.settings.host, *allowed))
        check_origin(headers, allowed)
        if self.draining and path not in STATES:
            raise HTTPError(503, "the server is stopping", retry_after=5)
        if self.settings.api_key is None or path in PUBLIC or path in BY_BODY:
            return
        if not path.startswith(PUBLIC_FOLDERS):
            check_key(self.settings.api_key, given_key(headers))


def check_host(headers: Headers, names: Sequence[str]) -> None:
    """Only names that mean this server: a foreign one may be a foreign page's trick."""
    given = headers.getlist("host")
    name = _hostname(f"//{given[0]}") if len(given) == 1 else None
    if name not in names:
        raise HTTPError(
            400,
            f"Host must be one of {', '.join(LOCAL_NAMES)}; behind a proxy, start the server with "
            "--allow-host NAME",
        )


def check_origin(headers: Headers, allowed: Sequence[str] = ()) -> None:
    """No scripts of other sites; browser extensions and programs may come.

    A proxy may put another Host in the place of its own, but the browser says where its page is.
    """
    origin = headers.get("origin")
    if origin is None or not origin.startswith(("http://", "https://")):
        return
    if origin.split("//", 1)[1] != headers.get("host") and _hostname(origin) not in allowed:
        raise HTTPError(403, "this server answers no other site's pages")


def _hostname(address: str) -> str | None:
    """The name in an address, in small letters and without a port; None if there is none."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def given_key(headers: Headers) -> str | None:
    """The key in the head of a request."""
    kind, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if kind.lower() == "bearer" and value else None


def check_key(right: str, given: Any) -> None:
    """Let in who has the key. It takes as long for any wrong one."""
    if not isinstance(given, str) or not given:
        raise HTTPError(
            401, "send the API key: Authorization: Bearer KEY",
            headers={"WWW-Authenticate": "Bearer"},
        )  # fmt: skip
    if not hmac.compare_digest(given.encode("utf-8", "replace"), right.encode()):
        raise HTTPError(403, "the API key is wrong")
