"""Middleware: Host, Origin and API-key checks, security headers, request metrics.

    Host        on loopback only this machine's names and --allow-host (DNS rebinding)
    Origin      no requests from other sites' pages, sandboxed frames and local files; Origin and
                Sec-Fetch-Site are set by browsers, and pages cannot change them. --allow-origin
                permits a site
    API key     Authorization: Bearer KEY, or LibreTranslate's api_key; compared in constant time.
                A wrong one is 403, and 401 for OpenAI's clients
    draining    503, except for health and metrics
    responses   a content security policy that allows the server's own files only

Every exception becomes a JSON error.
"""

import asyncio
import hmac
import logging
import time
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from polyhead.errors import CheckpointError, ConfigError, DataError
from polyhead.server.connections import CLIENT, client_address
from polyhead.server.metrics import Metrics
from polyhead.server.responses import HTTPError, invalid_input, json_response
from polyhead.server.settings import Settings

LOG = logging.getLogger("polyhead.server")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
OPEN_WHILE_DRAINING = ("/health", "/health/live", "/health/ready", "/metrics")
FILES = ("/page/", "/viewer/")


class SecurityMiddleware:
    """ASGI middleware around the routes.

    public: paths that need no API key here; labels: path to route label of the metrics;
    openai: beginnings of paths whose errors have OpenAI's shape and statuses.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        *,
        public: Collection[str],
        labels: Mapping[str, str],
        openai: tuple[str, ...] = (),
    ) -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.public, self.labels, self.openai = public, labels, openai
        self.hosts = (*LOCAL_NAMES, settings.host, *settings.allowed_hosts)
        self.behind_proxy = bool(settings.allowed_hosts)
        self.checks_host = settings.is_local or self.behind_proxy
        self.is_draining = False
        self.n_open = 0
        self._turns = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no websockets
        started, status, size, path = time.monotonic(), 0, 0, scope["path"]
        label = "page" if path.startswith(FILES) else "other"
        label = self.labels.get(path, self.labels.get(f"{path.rpartition('/')[0]}/{{id}}", label))

        async def send_with_headers(message: Message) -> None:
            nonlocal status, size
            size += len(message.get("body", b""))
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if self.is_draining:
                    headers["Connection"] = "close"
            await send(message)

        self.n_open += 1
        self.metrics.open.set(self.n_open)
        try:
            headers = Headers(scope=scope)
            CLIENT.set(client_address(scope, headers, behind_proxy=self.behind_proxy))
            self._check(headers, path, scope["method"])
            if path not in OPEN_WHILE_DRAINING:
                async with self._turns:  # one a round of the event loop, so that rounds are short
                    await asyncio.sleep(0)
            await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass
        except Exception as error:
            failed = _as_http_error(error)
            if failed.status == 500:
                LOG.exception("bug: %s %s", scope["method"], label)
            if not status:
                if path.startswith(self.openai):
                    failed = failed.as_openai()
                response = json_response(failed.content, failed.status, failed.headers)
                await response(scope, receive, send_with_headers)
        finally:
            self.n_open -= 1
            self.metrics.open.set(self.n_open)
            seconds = time.monotonic() - started
            self.metrics.requests.labels(label, str(status or "left")).inc()
            self.metrics.seconds.labels(label).observe(seconds)
            if self.settings.access_log is not None:
                request = f"{scope['method']} {scope['raw_path'].decode()[:200]}"
                answer = f"{status or 'left'} {1000 * seconds:.0f} ms {size} bytes"
                self.settings.access_log(f"{time.strftime('%FT%T%z')} {request} {answer}")

    def _check(self, headers: Headers, path: str, method: str) -> None:
        hosts = headers.getlist("host")
        if self.checks_host and (len(hosts) != 1 or _hostname(f"//{hosts[0]}") not in self.hosts):
            raise HTTPError(
                400, f"Host must be one of {', '.join(LOCAL_NAMES)}. Behind a proxy, start the "
                "server with --allow-host.",
            )  # fmt: skip
        if not self._is_same_site(headers, method):
            raise HTTPError(
                403, "Cross-origin requests are not allowed. To permit a site, start the server "
                "with --allow-origin.",
            )  # fmt: skip
        if self.is_draining and path not in OPEN_WHILE_DRAINING:
            raise HTTPError(503, "the server is stopping", retry_after=5)
        if path not in self.public and not path.startswith(FILES):
            is_openai = path.startswith(self.openai)
            check_key(self.settings.api_key, headers, wrong=401 if is_openai else 403)

    def _is_same_site(self, headers: Headers, method: str) -> bool:
        """Return whether a request comes from no page, or from one that may use the server.

        Links to the server from other pages may be followed.
        """
        origin = headers.get("origin")
        if origin is None:
            is_link = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
            return is_link or headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        scheme, _, place = origin.partition("://")
        if scheme.endswith("-extension") or origin in self.settings.allowed_origins:
            return True
        # a proxy may replace Host
        is_own = place == headers.get("host") or _hostname(origin) in self.settings.allowed_hosts
        return scheme in ("http", "https") and is_own


def _as_http_error(error: Exception) -> HTTPError:
    if isinstance(error, HTTPError):
        return error
    if isinstance(error, ConfigError | DataError):
        return invalid_input(error)
    if isinstance(error, CheckpointError):  # a foreign tokenizer fails on some texts only
        return HTTPError(503, str(error))
    if isinstance(error, HTTPException):  # of the router
        message = "not found; see /openapi.json" if error.status_code == 404 else error.detail
        return HTTPError(error.status_code, message, headers=dict(error.headers or {}))
    return HTTPError(500, "internal server error; see the server log")


def _hostname(address: str) -> str | None:
    """Return the host of an address in lower case without its port."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def check_key(
    expected: str | None, headers: Headers, in_body: str | None = None, *, wrong: int = 403
) -> None:
    """Reject requests without the API key, if the server has one; `wrong` is for another one."""
    if expected is None:
        return
    kind, _, value = headers.get("authorization", "").partition(" ")
    given = (value.strip() if kind.lower() == "bearer" else "") or in_body
    if not given:
        raise HTTPError(
            401, "send the API key: Authorization: Bearer KEY",
            headers={"WWW-Authenticate": "Bearer"},
        )  # fmt: skip
    if not hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode()):
        raise HTTPError(wrong, "wrong API key")
