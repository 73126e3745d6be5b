"""/v1/models, the state of the server, and the files of its page."""

from starlette.requests import Request
from starlette.responses import Response

from polyhead import __version__
from polyhead.server import answer_schemas as answering
from polyhead.server import settings
from polyhead.server.context import AppContext, Endpoint, reply
from polyhead.server.errors import HTTPError
from polyhead.server.registry import ServedModel

LIMITS = {
    "max_characters": settings.MAX_CHARACTERS,
    "max_texts": settings.MAX_TEXTS,
    "max_n_best": settings.MAX_N_BEST,
    "max_beam": settings.MAX_BEAM,
    "max_tokens": settings.MAX_TOKENS,
    "max_blanks": settings.MAX_BLANKS,
    "max_body": settings.MAX_BODY,
    "max_image": settings.MAX_IMAGE,
}
PLAIN = "text/plain; version=0.0.4; charset=utf-8"


async def models(desk: AppContext, _request: Request) -> Response:
    """What is on the shelf."""
    entries = [_entry(book) for book in desk.shelf.books]
    return reply(answering.Models(version=__version__, limits=LIMITS, models=entries))


def _entry(book: ServedModel) -> answering.ModelEntry:
    about = book.about
    names = answering.Defaults.model_fields
    defaults = about.defaults and {name: vars(about.defaults)[name] for name in names}
    shape = about.image and dict(
        zip(("height", "width", "channels", "patch"), about.image, strict=True)
    )
    return answering.ModelEntry(
        name=book.name,
        family=about.family,
        use=about.use,
        source_language=about.source_language,
        target_language=about.target_language,
        parameters=about.parameters,
        max_length=about.max_length,
        attention=list(about.attention),
        defaults=answering.Defaults(**defaults) if defaults else None,
        classes=None if about.classes is None else list(about.classes),
        image=answering.ImageShape(**shape) if shape else None,
    )


async def live(_desk: AppContext, _request: Request) -> Response:
    """The process runs."""
    return reply(answering.Health(status="ok"))


async def ready(desk: AppContext, _request: Request) -> Response:
    """The models are loaded and requests are taken."""
    if desk.is_draining():
        raise HTTPError(503, "the server is stopping", retry_after=5)
    desk.scheduler.worker.check_alive()
    return reply(answering.Health(status="ok"))


async def metrics(desk: AppContext, _request: Request) -> Response:
    """Counters in Prometheus's text format."""
    desk.metrics.waiting.set(desk.scheduler.worker.depth)
    return Response(desk.metrics.text(), media_type=PLAIN)


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/models", "The models and the limits", models, gives=answering.Models
    ),
    Endpoint(
        "GET", "/health", "As /health/ready", ready, gives=answering.Health, public=True,
        refuses=(503,),
    ),
    Endpoint(
        "GET", "/health/live", "The process runs", live, gives=answering.Health, public=True
    ),
    Endpoint(
        "GET", "/health/ready", "Requests are taken", ready, gives=answering.Health, public=True,
        refuses=(503,),
    ),
    Endpoint("GET", "/metrics", "Counters for Prometheus", metrics, kinds=(PLAIN,)),
)  # fmt: skip
