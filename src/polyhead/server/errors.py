"""HTTP errors: a status and {"error": message}, with `field` and `code` where they are known."""

from starlette.responses import Response

from polyhead.errors import PolyheadError
from polyhead.pipelines.step_through import InvalidInputError
from polyhead.server.responses import json_response
from polyhead.server.schemas import Code


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
        self.content = {name: value for name, value in values.items() if value is not None}

    def response(self) -> Response:
        """Return the JSON response."""
        return json_response(self.content, self.status, self.headers)


class ClientDisconnected(Exception):
    """The client has closed its connection."""


def invalid_input(
    error: PolyheadError, *, field: str | None = None, code: Code | None = None
) -> HTTPError:
    """Return the 422 for an input that a pipeline rejected."""
    if isinstance(error, InvalidInputError):
        code = error.code
    return HTTPError(422, " ".join(str(error).split())[:500], field=field, code=code)
