"""The application: a table of routes behind the border."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from polyhead.server.context import AppContext, Endpoint
from polyhead.server.errors import HTTPError, answer
from polyhead.server.metrics import Metrics
from polyhead.server.openapi import describe
from polyhead.server.registry import ModelRegistry
from polyhead.server.routes import attention as looking
from polyhead.server.routes import generate as writing
from polyhead.server.routes import libretranslate
from polyhead.server.routes import status as telling
from polyhead.server.routes import translate as translating
from polyhead.server.scheduler import Scheduler
from polyhead.server.security import SecurityMiddleware
from polyhead.server.settings import Settings
from polyhead.server.static_files import collect, send_file

PAGE_ROUTES = ("/page/", "/viewer/")


class Application:
    """An ASGI application; `start` it inside the event loop that serves it, `close` it after."""

    def __init__(
        self, shelf: ModelRegistry, settings: Settings, prepare: Callable[[], None] = lambda: None
    ) -> None:
        metrics = Metrics()
        self.scheduler = Scheduler(settings, metrics, prepare)
        self.desk = AppContext(
            shelf, self.scheduler, settings, metrics, lambda: self.border.draining, collect()
        )
        self.endpoints = [
            *libretranslate.ENDPOINTS,
            *translating.ENDPOINTS,
            *looking.ENDPOINTS,
            *writing.ENDPOINTS,
            *telling.ENDPOINTS,
            Endpoint("GET", "/openapi.json", "This description", self._openapi),
        ]
        self.routes: dict[str, dict[str, Endpoint]] = {}
        for one in self.endpoints:
            self.routes.setdefault(one.path, {})[one.method] = one
        for path in self.desk.files:
            self.routes[path] = {"GET": Endpoint("GET", path, "A file of the page", send_file)}
        self._description = describe(self.endpoints)
        self.border = SecurityMiddleware(self._dispatch, settings, metrics, self.route_of)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.border(scope, receive, send)

    def start(self) -> None:
        """Begin to compute."""
        self.scheduler.worker.start()

    def close(self) -> bool:
        """Stop computing. Whether that has succeeded."""
        self.desk.unpackers.shutdown(wait=False, cancel_futures=True)
        return self.scheduler.worker.close(timeout=1.0)

    def route_of(self, path: str) -> str:
        """A route's name for the counters; a stranger's paths have none of their own."""
        if path.startswith(PAGE_ROUTES) or path in self.desk.files:
            return "page"
        return path if path in self.routes else "other"

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        methods = self.routes.get(scope["path"])
        if methods is None:
            raise HTTPError(404, "there is nothing here; see /openapi.json")
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method not in methods:
            allowed = ", ".join(methods)
            raise HTTPError(405, f"this takes {allowed}", headers={"Allow": allowed})
        response = await methods[method].handler(self.desk, Request(scope, receive))
        if scope["method"] == "HEAD":
            response = _without_body(response)
        await response(scope, receive, send)

    async def _openapi(self, _desk: AppContext, _request: Request) -> Response:
        return answer(self._description)


def _without_body(response: Response) -> Response:
    headers = dict(response.headers)
    return Response(status_code=response.status_code, headers=headers)
