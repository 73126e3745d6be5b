"""Objects that every route uses, and the description of a route."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from polyhead.server.cancellation import run_cancellable
from polyhead.server.metrics import Metrics
from polyhead.server.model_registry import ModelRegistry, ServedModel
from polyhead.server.scheduler import Scheduler
from polyhead.server.settings import MAX_UNPACKED, Settings
from polyhead.server.worker import QueuedRequest

T = TypeVar("T")
SHORT = 400  # characters that are tokenized in the event loop


@dataclass(frozen=True)
class AppContext:
    """Models, scheduler, settings and counters of a server."""

    models: ModelRegistry
    scheduler: Scheduler
    settings: Settings
    metrics: Metrics
    is_draining: Callable[[], bool]
    image_threads: Executor = field(
        default_factory=lambda: ThreadPoolExecutor(MAX_UNPACKED, "image")
    )

    async def prepare(self, work: Callable[[], T], n_characters: int) -> T:
        """Run short work at once, and longer work in a thread."""
        return work() if n_characters <= SHORT else await asyncio.to_thread(work)

    async def submit(self, requests: list[QueuedRequest], request: Request) -> list[Any]:
        """Return the results of work that may share batches, unless the client disconnects."""
        return await self.scheduler.submit(requests, disconnected(request)) if requests else []

    async def run(self, served: ServedModel, work: Callable[[], T], request: Request) -> T:
        """Return the result of work that uses a model alone, unless the client disconnects."""
        run = partial(run_cancellable, served.model, work)
        result: T = await self.scheduler.run(run, disconnected(request))
        return result


async def disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True)
class Endpoint:
    """A route, for the dispatcher and for /openapi.json."""

    method: str
    path: str
    summary: str
    handler: Callable[[AppContext, Request], Awaitable[Response]]
    body: type[BaseModel] | None = None
    response: type[BaseModel] | None = None
    is_list: bool = False  # the response is a list of them
    media_types: tuple[str, ...] = ()  # of responses other than JSON
    image_options: type[BaseModel] | None = None  # accepts an image too
    is_form: bool = False  # accepts a form too, and an API key in the body
    is_public: bool = False  # needs no API key
    statuses: tuple[int, ...] = ()  # of further errors
