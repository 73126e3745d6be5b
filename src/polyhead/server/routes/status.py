"""/v1/models, health checks and /metrics."""

from prometheus_client import generate_latest
from starlette.requests import Request
from starlette.responses import Response

from polyhead import __version__
from polyhead.pipelines.base import Pipeline
from polyhead.server import schemas, settings
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.model_registry import ServedModel
from polyhead.server.responses import HTTPError, json_response

LIMITS = {
    f"max_{name}": vars(settings)[f"MAX_{name.upper()}"]
    for name in ["characters", "texts", "n_best", "beam", "tokens", "blanks", "body", "image"]
}
PLAIN_TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def models(context: AppContext, _request: Request) -> Response:
    """Return all models and the limits."""
    entries = [_entry(served) for served in context.models.models]
    data = [schemas.OpenAIModel(id=m.name, created=m.created) for m in context.models.models]
    return json_response(
        schemas.ModelsResponse(version=__version__, limits=LIMITS, models=entries, data=data)
    )


async def model(context: AppContext, request: Request) -> Response:
    """Return one model as OpenAI's clients read it."""
    served = context.models.pick(request.path_params["id"], Pipeline)
    return json_response(schemas.OpenAIModel(id=served.name, created=served.created))


def _entry(served: ServedModel[Pipeline]) -> schemas.ModelEntry:
    about = vars(served.about)
    image = about["image"] and dict(
        zip(schemas.ImageInput.model_fields, about["image"], strict=True)
    )
    defaults = about["defaults"] and schemas.DecodingDefaults.model_validate(about["defaults"])
    return schemas.ModelEntry(name=served.name, **{**about, "image": image, "defaults": defaults})


async def live(_context: AppContext, _request: Request) -> Response:
    """Return 200 while the process runs."""
    return json_response(schemas.Health(status="ok"))


async def ready(context: AppContext, _request: Request) -> Response:
    """Return 200 while requests are accepted, else 503."""
    if context.is_draining():
        raise HTTPError(503, "the server is stopping", retry_after=5)
    context.scheduler.worker.check_alive()
    return json_response(schemas.Health(status="ok"))


async def metrics(context: AppContext, _request: Request) -> Response:
    """Return the counters in Prometheus's text format."""
    context.metrics.waiting.set(len(context.scheduler.worker.queue))
    return Response(generate_latest(context.metrics.registry), media_type=PLAIN_TEXT)


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/models", "Models and limits", models, response=schemas.ModelsResponse,
        is_openai=True,
    ),
    Endpoint(
        "GET", "/v1/models/{id}", "OpenAI: one model", model, response=schemas.OpenAIModel,
        statuses=(404,), is_openai=True,
    ),
    *(
        Endpoint("GET", path, summary, handler, response=schemas.Health, is_public=True)
        for path, summary, handler in (
            ("/health", "Same as /health/ready", ready),
            ("/health/live", "The process runs", live),
            ("/health/ready", "Requests are accepted", ready),
        )
    ),
    Endpoint("GET", "/metrics", "Metrics for Prometheus", metrics, media_types=(PLAIN_TEXT,)),
)  # fmt: skip
