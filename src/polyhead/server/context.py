"""Objects that every route uses, and the description of a route."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from polyhead.errors import Cancelled, DataError
from polyhead.server.metrics import Metrics
from polyhead.server.model_registry import ModelRegistry
from polyhead.server.responses import invalid_input
from polyhead.server.scheduler import Scheduler
from polyhead.server.settings import MAX_UNPACKED, Settings

if TYPE_CHECKING:
    from polyhead.pipelines.base import Pipeline

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

    async def run(
        self, model: "Pipeline", work: Callable[[], T], request: Request, field: str | None = None
    ) -> T:
        """Run work that uses a model alone, unless the client disconnects; errors name `field`."""
        run = partial(run_cancellable, model, work)
        try:
            result: T = await self.scheduler.run(run, disconnected(request))
        except DataError as error:
            raise invalid_input(error, field=field) from None
        return result


async def disconnected(request: Request) -> None:
    """Return when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def run_cancellable(
    model: "Pipeline", work: Callable[[], T], is_cancelled: Callable[[], bool]
) -> T:
    """Return the result of `work`, or raise Cancelled before its next layer.

    Nothing else may use the model meanwhile.
    """

    def check(_layer: Any, _inputs: Any) -> None:
        if is_cancelled():
            raise Cancelled

    with ExitStack() as hooks:
        for saved in model.models:
            for layer in saved.model.modules():
                hooks.enter_context(layer.register_forward_pre_hook(check))
        return work()


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
    is_openai: bool = False  # its errors have OpenAI's shape and statuses
    statuses: tuple[int, ...] = ()  # of further errors
