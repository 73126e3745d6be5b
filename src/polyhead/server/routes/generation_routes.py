"""/v1/generate: continue a prompt, as server-sent events or at once."""

import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from polyhead.errors import PolyheadError
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.server import schemas
from polyhead.server.context import AppContext, Endpoint, disconnected
from polyhead.server.request_parsing import read_json
from polyhead.server.responses import HTTPError, invalid_input, json_response
from polyhead.server.settings import MAX_TOKENS
from polyhead.server.worker import Stream

EVENT_STREAM = "text/event-stream"


async def generate(context: AppContext, request: Request) -> Response:
    """Continue a prompt."""
    body = await read_json(request, schemas.GenerateRequest)
    served = context.models.pick(body.model, TextGenerator)
    generator = served.model
    changes = {
        "max_length": body.max_tokens,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "sample": not body.greedy,
        "n_best": 1,  # the model's default may be more, which needs sampling
    }
    options = generator.defaults.with_options(changes)
    options = options.with_options({"max_length": min(options.max_length, MAX_TOKENS)})
    start = partial(generator.stream, body.prompt, options=options, seed=body.seed, stop=body.stop)
    stream, started = context.scheduler.stream(start), time.monotonic()
    if body.stream:
        events = _events(stream, started)
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(events, media_type=EVENT_STREAM, headers=headers)

    async def whole_text() -> str:
        return "".join([piece async for piece in _pieces(stream)])

    try:
        text = await context.scheduler.wait(whole_text(), disconnected(request))
    finally:
        stream.is_cancelled = True
    seconds = round(time.monotonic() - started, 3)
    return json_response(
        schemas.GenerateResponse(model=served.name, prompt=body.prompt, text=text, seconds=seconds)
    )


async def _pieces(stream: Stream) -> AsyncIterator[str]:
    while (piece := await stream.pieces.get()) is not None:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


async def _events(stream: Stream, started: float) -> AsyncIterator[bytes]:
    """Yield events: text, text, …, done. The stream is cancelled when the client disconnects."""
    text = ""
    try:
        async for piece in _pieces(stream):
            text += piece
            yield _event("text", {"text": piece})
        seconds = round(time.monotonic() - started, 3)
        yield _event("done", {"text": text, "seconds": seconds})
    except (HTTPError, PolyheadError) as error:
        failed = error if isinstance(error, HTTPError) else invalid_input(error)
        yield _event("error", failed.content)
    finally:
        stream.is_cancelled = True


def _event(name: str, content: dict[str, Any]) -> bytes:
    data = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/generate", "Continue a prompt, as server-sent events or at once", generate,
        body=schemas.GenerateRequest, response=schemas.GenerateResponse,
        media_types=(EVENT_STREAM,), statuses=(404, 429),
    ),
)  # fmt: skip
