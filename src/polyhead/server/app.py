"""ASGI application: Starlette's router with all routes, behind the security middleware."""

from collections.abc import Callable
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from polyhead.server.context import AppContext, Endpoint
from polyhead.server.metrics import Metrics
from polyhead.server.model_registry import ModelRegistry
from polyhead.server.openapi import describe_api
from polyhead.server.responses import json_response
from polyhead.server.routes import attention_routes as attention
from polyhead.server.routes import classification_routes as classify
from polyhead.server.routes import generation_routes as generate
from polyhead.server.routes import libretranslate, status
from polyhead.server.routes import translation_routes as translate
from polyhead.server.scheduler import Scheduler
from polyhead.server.security import SecurityMiddleware
from polyhead.server.settings import Settings
from polyhead.server.static_files import read_files


class Application:
    """ASGI application; `start` it inside the event loop that serves it, `close` it afterwards."""

    def __init__(
        self, models: ModelRegistry, settings: Settings, prepare: Callable[[], None] = lambda: None
    ) -> None:
        metrics = Metrics()
        self.scheduler = Scheduler(settings, metrics, prepare)
        self.files = read_files()
        self.context = AppContext(
            models, self.scheduler, settings, metrics, lambda: self.security.is_draining
        )
        modules = (libretranslate, translate, attention, generate, classify, status)
        endpoints = [endpoint for module in modules for endpoint in module.ENDPOINTS]
        endpoints.append(Endpoint("GET", "/openapi.json", "API description", self._openapi))
        self._description = describe_api(endpoints)
        routes = [
            Route(e.path, partial(e.handler, self.context), methods=[e.method]) for e in endpoints
        ]
        routes += [Route(path, file.respond) for path, file in self.files.items()]
        self.security = SecurityMiddleware(
            Router(routes, redirect_slashes=False), settings, metrics,
            public={e.path for e in endpoints if e.is_public or e.is_form} | set(self.files),
            labels={e.path: e.path for e in endpoints} | dict.fromkeys(self.files, "page"),
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # lets the router raise its 404 and 405
        await self.security(scope, receive, send)

    def start(self) -> None:
        """Start the model thread."""
        self.scheduler.worker.start()

    def close(self) -> bool:
        """Stop the threads; return whether the model thread has ended."""
        self.context.image_threads.shutdown(wait=False, cancel_futures=True)
        return self.scheduler.worker.close(timeout=1.0)

    async def _openapi(self, _context: AppContext, _request: Request) -> Response:
        return json_response(self._description)
