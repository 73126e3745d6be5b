"""ASGI application: Starlette's router with all routes, behind the security middleware."""

from collections.abc import Callable
from functools import partial
from importlib import import_module

from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from polyhead.server.context import AppContext, Endpoint
from polyhead.server.metrics import Metrics
from polyhead.server.model_registry import ModelRegistry
from polyhead.server.openapi import describe_api
from polyhead.server.responses import HTTPError, json_response
from polyhead.server.routes import (
    completion_routes,
    generation_routes,
    libretranslate,
    status,
    translation_routes,
)
from polyhead.server.scheduler import Scheduler
from polyhead.server.security import SecurityMiddleware
from polyhead.server.settings import Settings
from polyhead.server.static_files import read_files

ROUTES_OF_TORCH = {  # modules that import torch, and their paths
    "attention_routes": ("/v1/attention", "/v1/steps", "/v1/beam"),
    "classification_routes": ("/v1/fill", "/v1/detect", "/v1/classify"),
    "embedding_routes": ("/v1/embed", "/v1/embeddings"),
    "task_routes": ("/v1/tag", "/v1/answer"),
}
NEEDS_TORCH = "not available: this server runs without torch; start it with --engine torch or auto"


async def reject(_context: AppContext, _request: Request) -> Response:
    """Reject a request that needs torch."""
    raise HTTPError(501, NEEDS_TORCH)


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
        modules = (
            libretranslate, translation_routes, generation_routes, completion_routes, status
        )  # fmt: skip
        endpoints = [endpoint for module in modules for endpoint in module.ENDPOINTS]
        for module, paths in ROUTES_OF_TORCH.items():
            if models.use_torch:
                endpoints += import_module(f"polyhead.server.routes.{module}").ENDPOINTS
            else:
                endpoints += [Endpoint("POST", path, NEEDS_TORCH, reject) for path in paths]
        if models.use_torch:
            from polyhead.server.routes.task_routes import plugin_endpoints

            endpoints += plugin_endpoints()
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
            openai=tuple(e.path.removesuffix("{id}") for e in endpoints if e.is_openai),
        )  # fmt: skip
        self.front: ASGIApp = self.security
        if settings.allowed_origins:  # also answers the browsers' preflight requests
            self.front = CORSMiddleware(
                self.security, settings.allowed_origins, ("GET", "POST"),
                ("Authorization", "Content-Type"), expose_headers=("Retry-After",),
            )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # lets the router raise its 404 and 405
        await self.front(scope, receive, send)

    def start(self) -> None:
        """Start the model thread."""
        self.scheduler.worker.start()

    def close(self) -> bool:
        """Stop the threads; return whether the model thread has ended."""
        self.context.image_threads.shutdown(wait=False, cancel_futures=True)
        return self.scheduler.worker.close(timeout=1.0)

    async def _openapi(self, _context: AppContext, _request: Request) -> Response:
        return json_response(self._description)
