"""Answers that say no: one status, one line, always as {"error": …}.

For programs there may be `field`, which is to blame, and `code`, one of a few words that stay the
same whatever the line says; our own page says them in the reader's language.
"""

import json
from typing import Any

from starlette.responses import Response

from polyhead.errors import PolyheadError
from polyhead.pipelines.step_through import InvalidInputError
from polyhead.server.answer_schemas import Code


class HTTPError(Exception):
    """A request that is not answered, and why. `retry_after` is in seconds."""

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
        self.status, self.message, self.field, self.code = status, message, field, code
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    @property
    def content(self) -> dict[str, str]:
        """What is said, as an `Error`."""
        said = {"error": self.message, "field": self.field, "code": self.code}
        return {name: value for name, value in said.items() if value is not None}

    def response(self) -> Response:
        """The same as an answer."""
        return answer(self.content, self.status, self.headers)


def refused(
    error: PolyheadError, *, field: str | None = None, code: Code | None = None
) -> HTTPError:
    """What a model or its reader does not take. A text that is unfit says itself why."""
    if isinstance(error, InvalidInputError):
        code = error.code
    return HTTPError(422, " ".join(str(error).split())[:500], field=field, code=code)


class ClientDisconnected(Exception):
    """The client left; nobody waits for an answer."""


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON, with finite numbers and text that UTF-8 can hold."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    body = text.encode("utf-8", "replace")
    return Response(body, status, headers, media_type="application/json")
