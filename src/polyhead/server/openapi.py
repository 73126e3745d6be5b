"""/openapi.json: what the routes say about themselves, in the form that other programs read."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from polyhead import __version__
from polyhead.server.answer_schemas import Error
from polyhead.server.context import Endpoint

REF = "#/components/schemas/{model}"
JSON = "application/json"
REASONS = {
    400: "Not what was expected",
    401: "The API key is missing",
    403: "Not allowed",
    404: "No such model",
    408: "Too slow",
    413: "Too large",
    415: "Another content type is expected",
    422: "Over a limit, or not what a field takes",
    429: "Too many requests; see Retry-After",
    503: "Stopping, or no answer in time; see Retry-After",
}
WITH_BODY = (400, 408, 413, 415, 422)
ALWAYS = (400, 401, 403)


def describe(endpoints: list[Endpoint]) -> dict[str, Any]:
    """The whole description (OpenAPI 3.1)."""
    schemas = _schemas(endpoints)
    paths: dict[str, Any] = {}
    for one in endpoints:
        operation: dict[str, Any] = {
            "summary": one.summary,
            "operationId": f"{one.method.lower()}{one.path.replace('/', '_')}",
            "responses": _responses(one),
        }
        if one.takes is not None:
            operation["requestBody"] = {"required": True, "content": _bodies(one)}
        if one.image:
            operation["parameters"] = _parameters(one.image)
        if not one.public:
            operation["security"] = [{}, {"key": []}]
        paths.setdefault(one.path, {})[one.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Polyhead",
            "version": __version__,
            "description": "Your own Transformer models, for other programs.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schemas(endpoints: list[Endpoint]) -> dict[str, Any]:
    models: dict[type[BaseModel], str] = {Error: "serialization"}
    for one in endpoints:
        if one.takes is not None:
            models[one.takes] = "validation"
        if one.gives is not None:
            models[one.gives] = "serialization"
    _, top = models_json_schema(list(models.items()), ref_template=REF)  # type: ignore[arg-type]
    return dict(top["$defs"])


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF.format(model=model.__name__)}


def _bodies(one: Endpoint) -> dict[str, Any]:
    assert one.takes is not None
    content: dict[str, Any] = {JSON: {"schema": _ref(one.takes)}}
    if one.form:
        content["application/x-www-form-urlencoded"] = {"schema": _ref(one.takes)}
    if one.image:
        file = {"type": "string", "format": "binary"}
        content["image/png"] = {"schema": file}
        content["image/jpeg"] = {"schema": file}
        content["multipart/form-data"] = {
            "schema": {
                "type": "object",
                "properties": {"image": file, **one.image.model_json_schema()["properties"]},
                "required": ["image"],
            }
        }
    return content


def _parameters(upload: type[BaseModel]) -> list[dict[str, Any]]:
    """What may stand in the address beside an image."""
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in upload.model_json_schema()["properties"].items()
    ]


def _responses(one: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {kind.split(";")[0]: {} for kind in one.kinds}
    if one.gives is not None:
        schema: dict[str, Any] = _ref(one.gives)
        content[JSON] = {"schema": {"type": "array", "items": schema} if one.many else schema}
    if not content:
        content = {JSON: {}}
    found: dict[str, Any] = {"200": {"description": "The answer", "content": content}}
    statuses = {*ALWAYS, *one.refuses, *(WITH_BODY if one.takes else ()), 503}
    for status in sorted(statuses):
        found[str(status)] = {
            "description": REASONS[status],
            "content": {JSON: {"schema": _ref(Error)}},
        }
    return found
