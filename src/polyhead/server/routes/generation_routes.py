"""/v1/generate: continue a prompt, as server-sent events or at once."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from polyhead.errors import PolyheadError
from polyhead.pipelines.text_generator import GeneratedText, TextGenerator
from polyhead.server import schemas
from polyhead.server.context import AppContext, Endpoint, disconnected
from polyhead.server.queued_work import Stream
from polyhead.server.request_parsing import read_json
from polyhead.server.responses import HTTPError, finite, invalid_input, json_response
from polyhead.server.settings import MAX_TOKENS

EVENT_STREAM = "text/event-stream"
NOT_STORED = {"Cache-Control": "no-store"}


async def generate(context: AppContext, request: Request) -> Response:
    """Continue a prompt."""
    body = await read_json(request, schemas.GenerateRequest)
    served = context.models.pick(body.model, TextGenerator)
    generator = served.model
    changes = {
        "max_length": body.max_tokens,
        **body.model_dump(include={"temperature", "top_k", "top_p"}),
        "sample": not body.greedy,
        "n_best": 1,  # the model's default may be more, which needs sampling
    }
    options = generator.defaults.with_options(changes)
    options = options.with_options({"max_length": min(options.max_length, MAX_TOKENS)})
    start = partial(
        generator.stream_tokens, body.prompt, options=options, seed=body.seed, stop=body.stop,
        forced=body.prefix,
    )  # fmt: skip
    n_parallel = generator.backend(options, forces=bool(body.prefix)).n_parallel
    stream = context.scheduler.stream(start, is_parallel=n_parallel > 0)
    started = time.monotonic()
    if body.stream:
        return StreamingResponse(
            _events(stream, started), media_type=EVENT_STREAM, headers=NOT_STORED
        )
    parts: list[GeneratedText] = await all_parts(context, request, stream)
    return json_response(
        schemas.GenerateResponse(
            model=served.name,
            prompt=body.prompt,
            text="".join(part.text for part in parts),
            tokens=[token for part in parts for token in part.tokens],
            seconds=round(time.monotonic() - started, 3),
        )
    )


async def all_parts(context: AppContext, request: Request, stream: Stream) -> list[Any]:
    """Return the pieces of a stream when it has ended, unless the client disconnects."""

    async def parts() -> list[Any]:
        return [part async for part in parts_of(stream)]

    try:
        return list(await context.scheduler.wait(parts(), disconnected(request)))
    finally:
        stream.is_cancelled = True


async def parts_of(stream: Stream) -> AsyncIterator[Any]:
    """Yield the pieces of a stream; raise its error."""
    while (part := await stream.pieces.get()) is not None:
        if isinstance(part, BaseException):
            raise part
        yield part


async def _events(stream: Stream, started: float) -> AsyncIterator[bytes]:
    """Yield events: text, text, …, done. The stream is cancelled when the client disconnects."""
    text = ""
    try:
        async for part in parts_of(stream):
            text += part.text
            yield event({"text": part.text, "tokens": list(map(asdict, part.tokens))}, "text")
        seconds = round(time.monotonic() - started, 3)
        yield event({"text": text, "seconds": seconds}, "done")
    except (HTTPError, PolyheadError) as error:
        failed = error if isinstance(error, HTTPError) else invalid_input(error)
        yield event(failed.content, "error")
    finally:
        stream.is_cancelled = True


def event(content: dict[str, Any], name: str = "") -> bytes:
    """Return a server-sent event."""
    data = json.dumps(finite(content), ensure_ascii=False).encode("utf-8", "replace")
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + data + b"\n\n"


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/generate", "Continue a prompt, as server-sent events or at once", generate,
        body=schemas.GenerateRequest, response=schemas.GenerateResponse,
        media_types=(EVENT_STREAM,), statuses=(404, 429),
    ),
)  # fmt: skip
