"""From bytes that a stranger sent to a request that is checked, or a refusal.

The size is known before anything is parsed; what is parsed is checked by pydantic, whose reader
knows no lone surrogates and no endless nesting; and what is wrong is described, never repeated.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from polyhead.serve.asking import Upload
from polyhead.serve.refusals import Gone, Refusal
from polyhead.serve.settings import MAX_BODY, MAX_CHARACTERS, MAX_IMAGE

BODY_SECONDS = 20.0  # that a client may take to send what it announced
SHOWN = 100  # characters of a field's name
MAX_COLONS = 2 * MAX_CHARACTERS  # more than all texts and names together can have

M = TypeVar("M", bound=BaseModel)


def content_type(request: Request) -> str:
    """The kind of the body, without parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


async def body_of(request: Request, limit: int = MAX_BODY) -> bytes:
    """The whole body, refused as soon as it is known to be too large."""
    announced = request.headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdigit()):
        raise Refusal(400, "Content-Length is not a number")
    if len(announced) > 12 or int(announced) > limit:
        raise Refusal(413, f"a request has at most {limit:,} bytes")
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise Refusal(413, f"a request has at most {limit:,} bytes")
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, "the request came too slowly") from None
    except ClientDisconnect:
        raise Gone from None
    return b"".join(parts)


async def read_json(request: Request, model: type[M]) -> M:
    """A JSON body as what it should be."""
    kind = content_type(request)
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refusal(415, "send JSON with Content-Type: application/json")
    return checked(model, await body_of(request))


async def read_either(request: Request, model: type[M]) -> M:
    """A body that may be JSON, a form, or a form in parts."""
    kind = content_type(request)
    if kind == "application/x-www-form-urlencoded":
        body = await body_of(request)
        try:
            pairs = parse_qsl(
                body.decode("utf-8"), keep_blank_values=True, max_num_fields=100, errors="strict"
            )
        except ValueError:
            raise Refusal(400, "the form cannot be read") from None
        return described(model, _gathered(pairs))
    if kind == "multipart/form-data":
        form = await read_parts(request, await body_of(request))
        pairs = [(key, value) for key, value in form.multi_items() if isinstance(value, str)]
        return described(model, _gathered(pairs))
    return await read_json(request, model)


async def read_image(request: Request) -> tuple[bytes, Upload]:
    """An image with what goes with it: the body itself, or a part of a form."""
    if content_type(request).startswith("image/"):
        return await body_of(request, MAX_IMAGE), described(Upload, dict(request.query_params))
    form = await read_parts(request, await body_of(request, MAX_IMAGE))
    said = {key: value for key, value in form.multi_items() if isinstance(value, str)}
    upload = form.get("image")
    if not isinstance(upload, UploadFile):
        raise Refusal(422, "send the image as a file in the part `image`", field="image")
    return await upload.read(), described(Upload, {**dict(request.query_params), **said})


def is_image(request: Request) -> bool:
    """Whether a request brings an image."""
    kind = content_type(request)
    return kind.startswith("image/") or kind == "multipart/form-data"


async def read_parts(request: Request, body: bytes) -> FormData:
    """A form in parts that has been read as a whole; nothing of it is written to disk."""
    if "charset" in request.headers.get("content-type", "").lower():
        raise Refusal(415, "a form in parts is UTF-8; leave the charset out")

    async def stream() -> Any:
        yield body

    parser = MultiPartParser(
        request.headers, stream(), max_files=4, max_fields=100, max_part_size=MAX_BODY
    )
    parser.spool_max_size = MAX_IMAGE + 1
    try:
        return await parser.parse()
    except (MultiPartException, KeyError, ValueError, AssertionError):
        raise Refusal(400, "the form cannot be read") from None


def checked(model: type[M], body: bytes) -> M:
    """JSON as a request."""
    if body.count(b":") > MAX_COLONS:  # each unknown name would be complained about by itself
        raise Refusal(422, "the request has too many fields")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None


def described(model: type[M], values: Mapping[str, Any]) -> M:
    """Words of a form or an address as a request."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise _refusal(error) from None


def count_characters(texts: list[str]) -> int:
    """How long texts are together; refused if that is too much."""
    total = sum(map(len, texts))
    if total > MAX_CHARACTERS:
        raise Refusal(
            422,
            f"the text has {total:,} characters; a request has at most {MAX_CHARACTERS:,}",
            field="text",
        )
    return total


def _gathered(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """A field that comes several times is a list."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key not in found:
            found[key] = value
        else:
            found[key] = [*(found[key] if isinstance(found[key], list) else [found[key]]), value]
    return found


def _refusal(error: ValidationError) -> Refusal:
    """The first thing that is wrong, without what was sent."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return Refusal(400, _short(first["msg"]))
    # in a union every member complains; its name is not a part of the request
    names = [str(part) for part in first["loc"] if not (isinstance(part, str) and "[" in part)]
    field = _short(".".join(names))
    return Refusal(422, _short(f"{field}: {first['msg']}"), field=field or None)


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 3 * SHOWN else one_line[: 3 * SHOWN] + "…"
