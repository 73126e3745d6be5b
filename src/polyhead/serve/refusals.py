"""Answers that say no: one status, one line, always as {"error": …}."""

import json
from typing import Any

from starlette.responses import Response


class Refusal(Exception):
    """A request that is not answered, and why. `retry_after` is in seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        field: str | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field = status, message, field
        self.headers = dict(headers or {})
        if retry_after is not None:
            self.headers["Retry-After"] = str(retry_after)

    def response(self) -> Response:
        """The same as an answer."""
        content: dict[str, Any] = {"error": self.message}
        if self.field is not None:
            content["field"] = self.field
        return answer(content, self.status, self.headers)


class Gone(Exception):
    """The client left; nobody waits for an answer."""


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON, with finite numbers and text that UTF-8 can hold."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    body = text.encode("utf-8", "replace")
    return Response(body, status, headers, media_type="application/json")
