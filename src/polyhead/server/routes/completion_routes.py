"""/v1/completions: OpenAI's API of text completion, for its clients.

The completions of a request are generated one after the other in one stream of the scheduler, the
j-th one of each prompt with the seed `seed` + j.
"""

import math
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from polyhead.decoding.options import N_SEEDS, DecodeConfig
from polyhead.errors import PolyheadError
from polyhead.pipelines.text_generator import (
    GeneratedText,
    ScoredToken,
    TextGenerator,
    stream_text,
)
from polyhead.server import openai_schemas as schemas
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.queued_work import Stream
from polyhead.server.request_parsing import count_characters, read_json
from polyhead.server.responses import HTTPError, invalid_input, json_response
from polyhead.server.routes.generation_routes import (
    EVENT_STREAM,
    NOT_STORED,
    all_parts,
    event,
    parts_of,
)
from polyhead.special_tokens import EOS

DEFAULT_TOKENS = 16  # OpenAI's
GREEDY_BELOW = 0.01  # temperature
SMALLEST = 1e-45  # probability, the smallest of single precision


@dataclass(frozen=True)
class Chunk:
    """A part of one of the completions; `n_read`: tokens of its prompt, with its first part."""

    index: int
    part: GeneratedText
    n_read: int = 0
    finish_reason: Literal["stop", "length"] | None = None


class Answer:
    """Responses to one request, made from its chunks in their order."""

    def __init__(self, model: str, generator: TextGenerator, has_logprobs: bool) -> None:
        self.has_logprobs, self.line_end = has_logprobs, None if generator.has_end else "\n"
        self.model, self.created = model, int(time.time())
        self.id = f"cmpl-{secrets.token_hex(12)}"
        self.n_read = self.n_written = self.offset = 0

    def respond(
        self, choices: Sequence[schemas.CompletionChoice], *, with_usage: bool = False
    ) -> schemas.CompletionResponse:
        """Return the response, or the event, with these choices."""
        counts = (self.n_read, self.n_written, self.n_read + self.n_written)
        return schemas.CompletionResponse(
            id=self.id, created=self.created, model=self.model, choices=list(choices),
            usage=dict(zip(schemas.USAGE, counts, strict=True)) if with_usage else None,
        )  # fmt: skip

    def choice(self, chunks: Sequence[Chunk]) -> schemas.CompletionChoice:
        """Return consecutive parts of one completion as a choice."""
        logprobs = schemas.Logprobs()
        for chunk in chunks:
            part = chunk.part
            self.n_read += chunk.n_read
            self.n_written += len(part.tokens)
            if part.text:  # the tokens of a stop, and EOS, are not part of the text
                tokens = [self._named_log_p(token) for token in part.tokens]
                logprobs.tokens += [name for name, _ in tokens]
                logprobs.token_logprobs += [log_p for _, log_p in tokens]
                logprobs.top_logprobs += [dict(map(self._named_log_p, t)) for t in part.likeliest]
                logprobs.text_offset += [self.offset] * len(tokens)
            self.offset = 0 if chunk.finish_reason else self.offset + len(part.text)
        return schemas.CompletionChoice(
            index=chunks[0].index,
            text="".join(chunk.part.text for chunk in chunks),
            logprobs=logprobs if self.has_logprobs else None,
            finish_reason=chunks[-1].finish_reason,
        )

    def _named_log_p(self, token: ScoredToken) -> tuple[str, float]:
        """Return a token as it is written, except for parts of characters, and its log p."""
        name = (token.id == EOS and self.line_end) or token.text.replace("▁", " ")
        return name, math.log(max(token.probability, SMALLEST))


async def complete(context: AppContext, request: Request) -> Response:
    """Continue one prompt or several."""
    body = await read_json(request, schemas.CompletionRequest)
    served = context.models.pick(body.model, TextGenerator)
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    count_characters(prompts)
    _check_supported(body, len(prompts))
    is_greedy = body.temperature is not None and body.temperature < GREEDY_BELOW
    changes = {
        "max_length": body.max_tokens or DEFAULT_TOKENS,
        "temperature": None if is_greedy else body.temperature,
        "top_p": body.top_p,
        "sample": not is_greedy,
        "n_best": 1,
    }
    options = served.model.defaults.with_options(changes)
    answer = Answer(served.name, served.model, body.logprobs is not None)
    start = partial(_generate, served.model, prompts, options, body)
    n_parallel = served.model.backend(options, forces=bool(body.logprobs)).n_parallel
    stream = context.scheduler.stream(start, is_parallel=n_parallel > 0)
    if body.stream:
        with_usage = bool((body.stream_options or {}).get("include_usage"))
        events = _events(stream, answer, with_usage)
        return StreamingResponse(events, media_type=EVENT_STREAM, headers=NOT_STORED)
    chunks: list[Chunk] = await all_parts(context, request, stream)
    by_index = groupby(chunks, key=lambda chunk: chunk.index)
    choices = [answer.choice(list(chunks)) for _, chunks in by_index]
    return json_response(answer.respond(choices, with_usage=True))


def _check_supported(body: schemas.CompletionRequest, n_prompts: int) -> None:
    """Raise HTTPError 422 for options of OpenAI that the server lacks."""
    for name, value in (body.model_extra or {}).items():
        if value not in schemas.IGNORED.get(name, ()):
            raise HTTPError(422, f"{name[:100]} is not supported; leave it out", field=name[:100])
    if body.echo and body.logprobs is not None:
        raise HTTPError(422, "logprobs of the prompt (echo) are not supported", field="echo")
    if n_prompts * (body.n or 1) > schemas.MAX_CHOICES:
        message = f"at most {schemas.MAX_CHOICES} completions; send fewer prompts or lower n"
        raise HTTPError(422, message, field="n")


def _generate(
    generator: TextGenerator,
    prompts: Sequence[str],
    options: DecodeConfig,
    body: schemas.CompletionRequest,
) -> Iterator[Chunk]:
    """Yield the completions of all prompts. Runs in the model thread."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    seed = secrets.randbelow(N_SEEDS) if body.seed is None else body.seed
    for index, (prompt, number) in enumerate(product(prompts, range(body.n or 1))):
        read, written = generator.encode(prompt), list[int]()
        echo = GeneratedText(prompt if body.echo else "", ())
        yield Chunk(index, echo, n_read=0 if number else len(read))
        for part in generator.stream_tokens(
            prompt, options=options, seed=(seed + number) % N_SEEDS, stop=stop,
            top=body.logprobs or 0,
        ):  # fmt: skip
            written += [token.id for token in part.tokens]
            yield Chunk(index, part)
        is_cut = len(written) == options.max_length
        if is_cut and (stop or generator.has_end):  # the last token may have ended it as well
            text = "".join(stream_text(generator.tokenizer, read, written))
            has_ended = generator.has_end and written[-1] == EOS
            is_cut = not (has_ended or any(each in text for each in stop))
        yield Chunk(index, GeneratedText("", ()), finish_reason="length" if is_cut else "stop")


async def _events(stream: Stream, answer: Answer, with_usage: bool) -> AsyncIterator[bytes]:
    """Yield the parts as events; the stream is cancelled when the client disconnects."""
    try:
        async for chunk in parts_of(stream):
            choice = answer.choice([chunk])
            if choice.text or choice.finish_reason:
                yield event(answer.respond([choice]).model_dump())
        if with_usage:
            yield event(answer.respond([], with_usage=True).model_dump())
        yield b"data: [DONE]\n\n"
    except (HTTPError, PolyheadError) as error:
        failed = error if isinstance(error, HTTPError) else invalid_input(error)
        yield event(failed.as_openai().content)
    finally:
        stream.is_cancelled = True


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/completions", "OpenAI: continue prompts, as server-sent events or at once",
        complete, body=schemas.CompletionRequest, response=schemas.CompletionResponse,
        media_types=(EVENT_STREAM,), statuses=(404, 429), is_openai=True,
    ),
)  # fmt: skip
