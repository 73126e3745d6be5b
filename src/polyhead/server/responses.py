"""JSON responses that are valid whatever a model computes, and HTTP errors.

An error is a status and {"error": message}, with `field` and `code` where they are known.
"""

import json
import math
from functools import partial
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from polyhead.errors import InvalidInputError, PolyheadError
from polyhead.server.schemas import Code

OPENAI_CODES = {  # by status
    401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded",
}  # fmt: skip


def json_response(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return JSON without NaN, infinities and lone surrogates."""
    if isinstance(content, BaseModel):
        content = content.model_dump()
    dumps = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text = dumps(content)
    except ValueError:
        text = dumps(finite(content))
    body = text.encode("utf-8", "replace")
    return Response(body, status, headers, media_type="application/json")


def finite(content: Any) -> Any:
    """Replace NaN by 0 and infinities by ±1e300, which JSON can represent."""
    if isinstance(content, float) and not math.isfinite(content):
        return 0.0 if math.isnan(content) else math.copysign(1e300, content)
    if isinstance(content, dict):
        return {name: finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value) for value in content]
    return content


class HTTPError(Exception):
    """Error response; `retry_after` is in seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        code: Code | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)
        values = {"error": message, "field": field, "code": code}
        self.content: dict[str, Any] = {k: v for k, v in values.items() if v is not None}

    def as_openai(self) -> "HTTPError":
        """Return the error with OpenAI's shape and status."""
        kind = "rate_limit_error" if self.status == 429 else "invalid_request_error"
        kind = "server_error" if self.status >= 500 else kind
        code = self.content.get("code", OPENAI_CODES.get(self.status))
        message, field = self.content["error"], self.content.get("field")
        error = HTTPError(400 if self.status == 422 else self.status, "", headers=self.headers)
        error.content = {"error": {"message": message, "type": kind, "param": field, "code": code}}
        return error


def invalid_input(
    error: PolyheadError, *, field: str | None = None, code: Code | None = None
) -> HTTPError:
    """Return the 422 for an input that a pipeline rejected."""
    if isinstance(error, InvalidInputError):
        code = error.code
    return HTTPError(422, " ".join(str(error).split())[:500], field=field, code=code)
