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

from polyhead.server.answer_schemas import Code
from polyhead.server.errors import ClientDisconnected, HTTPError
from polyhead.server.request_schemas import Upload
from polyhead.server.settings import MAX_BODY, MAX_CHARACTERS, MAX_IMAGE

BODY_SECONDS = 20.0  # that a client may take to send what it announced
SHOWN = 100  # characters of a field's name
OTHER_KINDS = (
    "string_type",
    "list_type",
    "int_type",
)  # what a member of a union says of the others' values
MAX_COLONS = 2 * MAX_CHARACTERS  # more than all texts and names together can have

TEXTS = ("text", "prompt", "q")  # what people write

M = TypeVar("M", bound=BaseModel)
U = TypeVar("U", bound=Upload)


def content_type(request: Request) -> str:
    """The kind of the body, without parameters."""
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


async def body_of(request: Request, limit: int = MAX_BODY) -> bytes:
    """The whole body, refused as soon as it is known to be too large."""
    announced = request.headers.get("content-length", "0")
    if not (announced.isascii() and announced.isdigit()):
        raise HTTPError(400, "Content-Length is not a number")
    if len(announced) > 12 or int(announced) > limit:
        raise HTTPError(413, f"a request has at most {limit:,} bytes")
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise HTTPError(413, f"a request has at most {limit:,} bytes")
                parts.append(part)
    except TimeoutError:
        raise HTTPError(408, "the request came too slowly") from None
    except ClientDisconnect:
        raise ClientDisconnected from None
    return b"".join(parts)


async def read_json(request: Request, model: type[M]) -> M:
    """A JSON body as what it should be."""
    kind = content_type(request)
    if kind != "application/json" and not kind.endswith("+json"):
        raise HTTPError(415, "send JSON with Content-Type: application/json")
    return checked(model, await body_of(request))


async def read_either(request: Request, model: type[M]) -> M:
    """A body that may be JSON, a form, or a form in parts; a form's fields may be in the address.

    Some clients of LibreTranslate send everything there, and no body.
    """
    kind, address = content_type(request), request.scope["query_string"]
    if kind == "application/x-www-form-urlencoded" or (not kind and address):
        pairs = _fields(await body_of(request))
    elif kind == "multipart/form-data":
        form = await read_parts(request, await body_of(request))
        pairs = [(key, value) for key, value in form.multi_items() if isinstance(value, str)]
    else:
        return await read_json(request, model)
    return described(model, {**_gathered(_fields(address)), **_gathered(pairs)})


def _fields(form: bytes) -> list[tuple[str, str]]:
    """The names and values of a form."""
    try:
        return parse_qsl(
            form.decode("utf-8"), keep_blank_values=True, max_num_fields=100, errors="strict"
        )
    except ValueError:
        raise HTTPError(400, "the form cannot be read") from None


async def read_image(request: Request, model: type[U]) -> tuple[bytes, U]:
    """An image with what goes with it: the body itself, or a part of a form."""
    if content_type(request).startswith("image/"):
        return await body_of(request, MAX_IMAGE), described(model, dict(request.query_params))
    form = await read_parts(request, await body_of(request, MAX_IMAGE))
    said = {key: value for key, value in form.multi_items() if isinstance(value, str)}
    upload = form.get("image")
    if not isinstance(upload, UploadFile):
        raise HTTPError(422, "send the image as a file in the part `image`", field="image")
    return await upload.read(), described(model, {**dict(request.query_params), **said})


def is_image(request: Request) -> bool:
    """Whether a request brings an image."""
    kind = content_type(request)
    return kind.startswith("image/") or kind == "multipart/form-data"


async def read_parts(request: Request, body: bytes) -> FormData:
    """A form in parts that has been read as a whole; nothing of it is written to disk."""
    if "charset" in request.headers.get("content-type", "").lower():
        raise HTTPError(415, "a form in parts is UTF-8; leave the charset out")

    async def stream() -> Any:
        yield body

    parser = MultiPartParser(
        request.headers, stream(), max_files=4, max_fields=100, max_part_size=MAX_BODY
    )
    parser.spool_max_size = MAX_IMAGE + 1
    try:
        return await parser.parse()
    except (MultiPartException, KeyError, ValueError, AssertionError):
        raise HTTPError(400, "the form cannot be read") from None


def checked(model: type[M], body: bytes) -> M:
    """JSON as a request."""
    if body.count(b":") > MAX_COLONS:  # each unknown name would be complained about by itself
        raise HTTPError(422, "the request has too many fields")
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
        raise HTTPError(
            422,
            f"the text has {total:,} characters; a request has at most {MAX_CHARACTERS:,}",
            field="text",
            code="too_long",
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


def _refusal(error: ValidationError) -> HTTPError:
    """What is wrong with the first field that is, without what was sent."""
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    if errors[0]["type"] == "json_invalid":
        return HTTPError(400, _short(errors[0]["msg"]))
    # in a union every member complains; the one that came farther knows what was meant
    same = [one for one in errors if one["loc"][:1] == errors[0]["loc"][:1]]
    best = max(same, key=lambda one: (len(_names(one["loc"])), one["type"] not in OTHER_KINDS))
    field = _short(".".join(_names(best["loc"])))
    code: Code | None = None
    if best["type"] == "string_too_long" and best["loc"][0] in TEXTS:
        code = "too_long"
    return HTTPError(422, _short(f"{field}: {best['msg']}"), field=field or None, code=code)


def _names(place: tuple[int | str, ...]) -> list[str]:
    """Where something stands in a request, without the names of a union's members."""
    return [
        str(part)
        for depth, part in enumerate(place)
        if not depth
        or isinstance(part, int)
        or not ("[" in part or part.startswith("constrained-"))
    ]


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 3 * SHOWN else one_line[: 3 * SHOWN] + "…"
