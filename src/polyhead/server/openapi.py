"""/openapi.json, generated from the endpoints (OpenAPI 3.1)."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from polyhead import __version__
from polyhead.server.context import Endpoint
from polyhead.server.openai_schemas import OpenAIErrorResponse
from polyhead.server.schemas import ErrorResponse

REF = "#/components/schemas/{model}"
JSON = "application/json"
NAMES = str.maketrans("/", "_", "{}")
REASONS = {
    400: "Malformed request",
    401: "Missing API key",
    403: "Wrong API key or origin",
    404: "Unknown model",
    408: "Request body arrived too slowly",
    413: "Request body too large",
    415: "Unsupported content type",
    422: "Invalid field, or over a limit",
    429: "Queue full; see Retry-After",
    503: "Stopping, or no result in time; see Retry-After",
}
WITH_BODY = (400, 408, 413, 415, 422)
ALWAYS = (400, 401, 403, 503)


def describe_api(endpoints: list[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    models: dict[type[BaseModel], JsonSchemaMode] = {
        ErrorResponse: "serialization",
        OpenAIErrorResponse: "serialization",
    }
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        operation: dict[str, Any] = {
            "summary": endpoint.summary,
            "operationId": endpoint.method.lower() + endpoint.path.translate(NAMES),
            "responses": _responses(endpoint),
        }
        if endpoint.body is not None:
            models[endpoint.body] = "validation"
            content = _request_content(endpoint, endpoint.body)
            operation["requestBody"] = {"required": True, "content": content}
        if endpoint.response is not None:
            models[endpoint.response] = "serialization"
        if endpoint.image_options is not None:
            operation["parameters"] = [
                {"name": name, "in": "query", "required": False, "schema": schema}
                for name, schema in _properties(endpoint.image_options).items()
            ]
        if endpoint.path.endswith("{id}"):
            id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [id]
        if not endpoint.is_public:
            operation["security"] = [{}, {"key": []}]
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    _, schemas = models_json_schema(list(models.items()), ref_template=REF)
    description = "HTTP API of trained Transformer models."
    security = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Polyhead", "version": __version__, "description": description},
        "paths": paths,
        "components": {"schemas": schemas["$defs"], "securitySchemes": security},
    }


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": REF.format(model=model.__name__)}


def _properties(model: type[BaseModel]) -> dict[str, Any]:
    return dict(model.model_json_schema()["properties"])


def _request_content(endpoint: Endpoint, body: type[BaseModel]) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": _reference(body)}}
    if endpoint.is_form:
        content["application/x-www-form-urlencoded"] = {"schema": _reference(body)}
    if endpoint.image_options is not None:
        file = {"type": "string", "format": "binary"}
        properties = {"image": file, **_properties(endpoint.image_options)}
        form = {"type": "object", "properties": properties, "required": ["image"]}
        content["image/png"] = content["image/jpeg"] = {"schema": file}
        content["multipart/form-data"] = {"schema": form}
    return content


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {name.split(";")[0]: {} for name in endpoint.media_types}
    if endpoint.response is not None:
        schema = _reference(endpoint.response)
        content[JSON] = {
            "schema": {"type": "array", "items": schema} if endpoint.is_list else schema
        }
    success = {"description": "Success", "content": content or {JSON: {}}}
    shape = OpenAIErrorResponse if endpoint.is_openai else ErrorResponse
    error = {JSON: {"schema": _reference(shape)}}
    statuses = {*ALWAYS, *endpoint.statuses, *(WITH_BODY if endpoint.body else ())}
    statuses -= {422} if endpoint.is_openai else set()  # theirs is 400
    return {"200": success} | {
        str(status): {"description": REASONS[status], "content": error}
        for status in sorted(statuses)
    }
