"""JSON responses that are valid whatever a model computes."""

import json
import math
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response


def json_response(
    content: Any, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return JSON without NaN, infinities and lone surrogates."""
    if isinstance(content, BaseModel):
        content = finite(content.model_dump())
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
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
