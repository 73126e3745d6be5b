"""/v1/generate, /v1/fill and /v1/classify."""

import json
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from polyhead.errors import DataError, PolyheadError
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.mask_filler import MaskFiller
from polyhead.pipelines.text_classifier import TextClassifier
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import with_options
from polyhead.server import answer_schemas as answering
from polyhead.server import request_schemas as asking
from polyhead.server.cancellation import run_cancellable
from polyhead.server.context import AppContext, Endpoint, gone, reply
from polyhead.server.errors import HTTPError, refused
from polyhead.server.request_parsing import count_characters, is_image, read_image, read_json
from polyhead.server.settings import MAX_BLANKS, MAX_TOKENS
from polyhead.server.worker import BatchKey, QueuedRequest, Stream

EVENTS = "text/event-stream"


async def generate(desk: AppContext, request: Request) -> Response:
    """Go on with a text: piece by piece as it is written, or all at once."""
    asked = await read_json(request, asking.Generate)
    book = desk.shelf.pick(asked.model, ("generate",))
    writer: TextGenerator = book.model
    changes = {
        "max_length": asked.max_tokens,
        "temperature": asked.temperature,
        "top_k": asked.top_k,
        "top_p": asked.top_p,
        "sample": not asked.greedy,
        "n_best": 1,  # its maker may have set more, which only sampling finds
    }
    options = with_options(writer.defaults, changes)
    options = with_options(options, {"max_length": min(options.max_length, MAX_TOKENS)})

    def begin() -> Iterator[str]:
        return writer.stream(asked.prompt, options=options, seed=asked.seed, stop=asked.stop)

    stream, started = desk.scheduler.stream(begin), time.monotonic()
    if asked.stream:
        events = _events(stream, started)
        return StreamingResponse(events, media_type=EVENTS, headers={"Cache-Control": "no-store"})
    try:
        text = await desk.scheduler.wait(_whole(stream), gone(request))
    finally:
        stream.is_cancelled = True
    seconds = round(time.monotonic() - started, 3)
    return reply(
        answering.Written(model=book.name, prompt=asked.prompt, text=text, seconds=seconds)
    )


async def _whole(stream: Stream) -> str:
    return "".join([piece async for piece in _pieces(stream)])


async def _pieces(stream: Stream) -> AsyncIterator[str]:
    while (piece := await stream.pieces.get()) is not None:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


async def _events(stream: Stream, started: float) -> AsyncIterator[bytes]:
    """Server-sent events: text, text, …, done. Who stops listening stops the writing."""
    written: list[str] = []
    try:
        async for piece in _pieces(stream):
            written.append(piece)
            yield _event("text", {"text": piece})
        seconds = round(time.monotonic() - started, 3)
        yield _event("done", {"text": "".join(written), "seconds": seconds})
    except HTTPError as no:
        yield _event("error", no.content)
    except PolyheadError as error:
        yield _event("error", refused(error).content)
    finally:
        stream.is_cancelled = True


def _event(name: str, content: dict[str, Any]) -> bytes:
    data = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


async def fill(desk: AppContext, request: Request) -> Response:
    """What may stand where [MASK] is."""
    asked = await read_json(request, asking.Fill)
    book = desk.shelf.pick(asked.model, ("fill",))
    filler: MaskFiller = book.model
    if asked.text.count("[MASK]") > MAX_BLANKS:
        raise HTTPError(
            422, f"a text has at most {MAX_BLANKS} blanks", field="text", code="too_many_blanks"
        )
    try:
        found = await desk.compute(book, partial(filler.fill, asked.text, asked.top), request)
    except DataError as error:
        raise refused(error, field="text") from None
    return reply(
        answering.Filled(
            model=book.name,
            text=found.text,
            blanks=[[answering.Guess(**vars(one)) for one in blank] for blank in found.blanks],
            together=[
                answering.Filling(text=one.text, words=list(one.words), log_p=one.log_p)
                for one in found.together
            ],
        )
    )


async def classify(desk: AppContext, request: Request) -> Response:
    """What texts are, or what an image shows."""
    if is_image(request):
        return await _classify_image(desk, request)
    asked = await read_json(request, asking.Classify)
    texts = [asked.text] if isinstance(asked.text, str) else asked.text
    size = count_characters(texts)
    book = desk.shelf.pick(asked.model, ("classify",))
    labeller: TextClassifier = book.model
    key = BatchKey(
        (book.name, "classify"),
        lambda lines, is_cancelled: run_cancellable(
            labeller, partial(labeller.classify, lines), is_cancelled
        ),
    )
    lengths = await desk.prepare(
        lambda: [len(ids) + 1 for ids in labeller.tokenizer.encode_batch(texts)], size
    )
    requests = [
        QueuedRequest(key, text, min(length, labeller.max_length))
        for text, length in zip(texts, lengths, strict=True)
    ]
    labels = await desk.scheduler.submit(requests, gone(request))
    desk.metrics.characters.inc(size)
    results = [
        _classified(label.probabilities, asked.top, length > labeller.max_length)
        for label, length in zip(labels, lengths, strict=True)
    ]
    return reply(answering.Classes(model=book.name, results=results))


async def _classify_image(desk: AppContext, request: Request) -> Response:
    content, asked = await read_image(request, asking.Upload)
    book = desk.shelf.pick(asked.model, ("classify-image",))
    labeller: ImageClassifier = book.model
    pixels = await desk.unpack(labeller, content, request)
    shares = await desk.compute(
        book, lambda: labeller.probabilities(pixels[None])[0].tolist(), request
    )
    named = dict(zip(labeller.classes, shares, strict=True))
    return reply(answering.Classes(model=book.name, results=[_classified(named, asked.top, False)]))


def _classified(shares: dict[str, float], top: int | None, cut: bool) -> answering.Classified:
    ranked = sorted(shares.items(), key=lambda one: -one[1])
    classes = [answering.ClassShare(label=label, probability=p) for label, p in ranked[:top]]
    return answering.Classified(
        label=classes[0].label, probability=classes[0].probability, cut=cut, classes=classes
    )


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/generate", "Go on with a text, as server-sent events or at once", generate,
        takes=asking.Generate, gives=answering.Written, kinds=(EVENTS,), refuses=(404, 429, 503),
    ),
    Endpoint(
        "POST", "/v1/fill", "Say what may stand where [MASK] is", fill,
        takes=asking.Fill, gives=answering.Filled, refuses=(404, 429, 503),
    ),
    Endpoint(
        "POST", "/v1/classify", "Say what texts are, or what an image shows", classify,
        takes=asking.Classify, gives=answering.Classes, image=asking.Upload,
        refuses=(404, 429, 503),
    ),
)  # fmt: skip
