"""What every route has at hand, and how a route is described.

An `Endpoint` says all there is to know about a route: the dispatcher finds its function in it,
/openapi.json its words. There is no second list.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from polyhead.errors import DataError
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.server.cancellation import run_cancellable
from polyhead.server.errors import answer, refused
from polyhead.server.metrics import Metrics
from polyhead.server.registry import ModelRegistry, ServedModel
from polyhead.server.scheduler import Scheduler
from polyhead.server.settings import MAX_UNPACKED, Settings
from polyhead.server.uploads import pixels_of

SHORT = 400  # characters that are tokenised at once; more are, aside


@dataclass(frozen=True)
class AppContext:
    """The models, the queue, and the rest."""

    shelf: ModelRegistry
    scheduler: Scheduler
    settings: Settings
    metrics: Metrics
    is_draining: Callable[[], bool]
    files: dict[str, tuple[bytes, str]] = field(default_factory=dict)  # path: content, type
    unpackers: Executor = field(default_factory=lambda: ThreadPoolExecutor(MAX_UNPACKED, "image"))

    async def prepare(self, work: Callable[[], Any], characters: int) -> Any:
        """Do something short now, and something longer without keeping others waiting."""
        return work() if characters <= SHORT else await asyncio.to_thread(work)

    async def unpack(self, labeller: ImageClassifier, content: bytes, request: Request) -> Any:
        """An image's pixels. Few bytes may be many pixels: few images are unpacked at once."""
        work = partial(pixels_of, labeller, content)

        async def unpacked() -> Any:
            try:
                return await asyncio.get_running_loop().run_in_executor(self.unpackers, work)
            except DataError as error:
                raise refused(error, field="image", code="bad_image") from None

        return await self.scheduler.wait(unpacked(), gone(request))

    async def compute(self, book: ServedModel, work: Callable[[], Any], request: Request) -> Any:
        """Let a model do something for one request alone, as long as its client is there."""
        return await self.scheduler.run(partial(run_cancellable, book.model, work), gone(request))


Handler = Callable[[AppContext, Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """A route. `takes` and `gives` are descriptions; `kinds` are the answers that are not JSON."""

    method: str
    path: str
    summary: str
    handler: Handler
    takes: type[BaseModel] | None = None
    gives: type[BaseModel] | None = None
    many: bool = False  # the answer is a list of them
    kinds: tuple[str, ...] = ()
    image: type[BaseModel] | None = None  # what may go with an image, if it takes one too
    form: bool = False  # takes a form too
    public: bool = False  # needs no key
    refuses: tuple[int, ...] = ()


async def gone(request: Request) -> None:
    """Returns when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def reply(content: BaseModel) -> Response:
    """An answer as JSON."""
    return answer(finite(content.model_dump(exclude_none=False)))


def finite(content: Any) -> Any:
    """The same with a very small or large number for what JSON cannot write."""
    if isinstance(content, float) and not math.isfinite(content):
        return 0.0 if math.isnan(content) else math.copysign(1e300, content)
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, list):
        return [finite(value) for value in content]
    return content
