"""/v1/tag and /v1/answer: tags of words, and answers to questions about a text."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from polyhead.pipelines.question_answerer import QuestionAnswerer
from polyhead.pipelines.tagger import Tagger
from polyhead.server import schemas, token_schemas
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.request_parsing import read_json
from polyhead.server.responses import json_response
from polyhead.server.routes.classification_routes import submit_texts


async def tag(context: AppContext, request: Request) -> Response:
    """Tag the words of texts; those of several requests share batches."""
    body = await read_json(request, schemas.TagRequest)
    texts = [body.text] if isinstance(body.text, str) else body.text
    served = context.models.pick(body.model, Tagger)
    results, _ = await submit_texts(context, request, served, texts, served.model.tag)
    return json_response(token_schemas.TagResponse(model=served.name, results=results))


async def answer(context: AppContext, request: Request) -> Response:
    """Find the answer to a question in a context."""
    body = await read_json(request, schemas.AnswerRequest)
    served = context.models.pick(body.model, QuestionAnswerer)
    find = partial(
        served.model.answer, body.question, body.context, top=body.top, threshold=body.threshold
    )
    field = "context" if body.question.strip() else "question"  # of an empty text
    result = await context.run(served.model, find, request, field)
    context.metrics.characters.inc(len(body.question) + len(body.context))
    return json_response(token_schemas.AnswerResponse(model=served.name, result=result))


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/tag", "Tag the words of texts", tag,
        body=schemas.TagRequest, response=token_schemas.TagResponse, statuses=(404, 429),
    ),
    Endpoint(
        "POST", "/v1/answer", "Find the answer to a question in a text", answer,
        body=schemas.AnswerRequest, response=token_schemas.AnswerResponse, statuses=(404, 429),
    ),
)  # fmt: skip
