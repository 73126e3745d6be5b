"""Request bodies: size limits, and validation whose errors never repeat the input."""

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from polyhead.server.libretranslate_schemas import KeyField
from polyhead.server.responses import HTTPError
from polyhead.server.schemas import ImageOptions
from polyhead.server.security import check_key
from polyhead.server.settings import MAX_BODY, MAX_CHARACTERS, MAX_IMAGE

BODY_SECONDS = 20.0  # for sending the announced body
MAX_MESSAGE = 300  # characters
UNION_MISMATCHES = ("string_type", "list_type", "int_type")  # errors of a union's other members
UNION_MEMBER = re.compile(r"\[|^constrained-")
NOT_JSON = "send JSON with Content-Type: application/json"
MAX_COLONS = 2 * MAX_CHARACTERS  # more than a valid request can have
TEXT_FIELDS = ("text", "prompt", "q")

M = TypeVar("M", bound=BaseModel)
Options = TypeVar("Options", bound=ImageOptions)
KeyCheck = Callable[[str | None], None] | None


def content_type(request: Request) -> str:
    """Return the media type without parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def is_image(request: Request) -> bool:
    """Return whether a request has an image."""
    kind = content_type(request)
    return kind.startswith("image/") or kind == "multipart/form-data"


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """Return the body, rejected as soon as it is known to be too large."""
    announced = request.headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdigit()):
        raise HTTPError(400, "Content-Length is not a number")
    too_large = HTTPError(413, f"request body too large; the limit is {limit:,} bytes")
    if len(announced) > 12 or int(announced) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise HTTPError(408, "the request body arrived too slowly") from None
    return bytes(body)


async def read_json(request: Request, model: type[M], check: KeyCheck = None) -> M:
    """Return a JSON body as a request."""
    kind = content_type(request)
    if kind != "application/json" and not kind.endswith("+json"):
        raise HTTPError(415, NOT_JSON)
    return validate(model, await read_body(request), check)


async def read_json_or_form(request: Request, model: type[M], key: str | None) -> M:
    """Return a body of JSON or a form as a request.

    A form's fields may be query parameters: some clients of LibreTranslate send no body.
    """
    check = partial(check_key, key, request.headers) if key else None
    kind, query = content_type(request), request.scope["query_string"]
    if kind == "application/x-www-form-urlencoded" or (not kind and query):
        body = await read_body(request)
        if body.lstrip().startswith(b"{"):  # curl -d sends JSON as a form
            raise HTTPError(415, NOT_JSON)
        pairs = _parse_form(body)
    elif kind == "multipart/form-data":
        form = await _read_multipart(request, MAX_BODY)
        pairs = [(key, value) for key, value in form.multi_items() if isinstance(value, str)]
    else:
        return await read_json(request, model, check)
    fields: dict[str, Any] = {}
    for source in (_parse_form(query), pairs):  # the body takes precedence
        for name in {name for name, _ in source}:
            values = [value for key, value in source if key == name]
            fields[name] = values if len(values) > 1 else values[0]
    return validate(model, fields, check)


async def read_image(request: Request, model: type[Options]) -> tuple[bytes, Options]:
    """Return an image, from the body or a part of a form, and the options beside it."""
    query: dict[str, Any] = dict(request.query_params)
    if content_type(request).startswith("image/"):
        return await read_body(request, MAX_IMAGE), validate(model, query)
    form = await _read_multipart(request, MAX_IMAGE)
    fields = {key: value for key, value in form.multi_items() if isinstance(value, str)}
    image = form.get("image")
    if not isinstance(image, UploadFile):
        raise HTTPError(422, "send the image as a file in the part `image`", field="image")
    return await image.read(), validate(model, query | fields)


def count_characters(texts: list[str]) -> int:
    """Return the number of characters of all texts; HTTPError 422 above the limit."""
    total = sum(map(len, texts))
    if total > MAX_CHARACTERS:
        message = f"the text has {total:,} characters; the limit is {MAX_CHARACTERS:,}"
        raise HTTPError(422, message, field="text", code="too_long")
    return total


def _parse_form(form: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(form.decode(), keep_blank_values=True, max_num_fields=100, errors="strict")
    except ValueError:
        raise HTTPError(400, "the form cannot be parsed") from None


async def _read_multipart(request: Request, limit: int) -> FormData:
    """Return a multipart form, held in memory."""
    if "charset" in request.headers.get("content-type", "").lower():
        raise HTTPError(415, "multipart forms are UTF-8; leave out the charset")
    body = await read_body(request, limit)

    async def stream() -> Any:
        yield body

    parser = MultiPartParser(
        request.headers, stream(), max_files=4, max_fields=100, max_part_size=MAX_BODY
    )
    parser.spool_max_size = MAX_IMAGE + 1
    try:
        return await parser.parse()
    except (MultiPartException, KeyError, ValueError, AssertionError):
        raise HTTPError(400, "the form cannot be parsed") from None


def validate(model: type[M], content: bytes | dict[str, Any], check: KeyCheck = None) -> M:
    """Return JSON, or the fields of a form, as a request, after a check of its API key."""
    if check is not None:
        check(validate(KeyField, content).api_key)
    try:
        if isinstance(content, dict):
            return model.model_validate(content)
        if content.count(b":") > MAX_COLONS:  # pydantic reports every unknown field
            raise HTTPError(422, "the request has too many fields")
        return model.model_validate_json(content)
    except ValidationError as error:
        raise _as_http_error(error) from None


def _as_http_error(error: ValidationError) -> HTTPError:
    """Return the first field's error, without its value."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    if errors[0]["type"] == "json_invalid":
        return HTTPError(400, _shorten(errors[0]["msg"]))

    def specificity(details: ErrorDetails) -> tuple[int, bool]:
        return len(_path(details)), details["type"] not in UNION_MISMATCHES

    # every member of a union reports an error; the one that came farthest is meant
    best = max((e for e in errors if e["loc"][:1] == errors[0]["loc"][:1]), key=specificity)
    field = _shorten(".".join(_path(best)))
    is_long = best["type"] == "string_too_long" and best["loc"][0] in TEXT_FIELDS
    message = _shorten(f"{field}: {best['msg']}")
    return HTTPError(422, message, field=field or None, code="too_long" if is_long else None)


def _path(details: ErrorDetails) -> list[str]:
    """Return the path of a field, without the names of a union's members."""
    field, *rest = details["loc"] or ("",)
    parts = [part for part in rest if isinstance(part, int) or not UNION_MEMBER.search(part)]
    return [str(part) for part in (field, *parts) if details["loc"]]


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE else line[:MAX_MESSAGE] + "…"
