"""/v1/embed and OpenAI's /v1/embeddings: vectors of texts."""

import base64

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from polyhead.pipelines.task_pipeline import SentenceEmbedder
from polyhead.server import openai_schemas, schemas
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.request_parsing import read_json
from polyhead.server.responses import json_response
from polyhead.server.routes.task_routes import submit
from polyhead.tasks.verbs import NoOptions


async def embed(context: AppContext, request: Request) -> Response:
    """Return a vector for each text."""
    body = await read_json(request, schemas.EmbedRequest)
    name, vectors, lengths, limit = await _embedded(context, request, body.model, body.text)
    rows = [vector.tolist() for vector in vectors]
    cut = [length > limit for length in lengths]
    return json_response(schemas.EmbedResponse(model=name, embeddings=rows, cut=cut))


async def embeddings(context: AppContext, request: Request) -> Response:
    """Return a vector for each text, as OpenAI's clients read them."""
    body = await read_json(request, openai_schemas.EmbeddingsRequest)
    name, vectors, lengths, limit = await _embedded(context, request, body.model, body.input)
    data = []
    for index, vector in enumerate(vectors):
        content: list[float] | str = vector.tolist()
        if body.encoding_format == "base64":
            content = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        data.append(openai_schemas.Embedding(index=index, embedding=content))
    n_read = sum(min(length, limit) for length in lengths)
    usage: dict[openai_schemas.Usage, int] = {"prompt_tokens": n_read, "total_tokens": n_read}
    return json_response(openai_schemas.EmbeddingsResponse(data=data, model=name, usage=usage))


async def _embedded(
    context: AppContext, request: Request, model: str | None, text: str | list[str]
) -> tuple[str, list[np.ndarray], list[int], int]:
    """Return the model's name, the vectors, and the lengths of the texts with their limit."""
    served = context.models.pick(model, SentenceEmbedder)
    rows = [(line,) for line in ([text] if isinstance(text, str) else text)]
    inputs, results = await submit(context, request, served, rows, NoOptions())
    vectors = [np.array(result.embedding, np.float32) for result in results]
    lengths = [given.parts[0].length for given in inputs]
    return served.name, vectors, lengths, served.model.max_length


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/embed", "Vectors of texts", embed, body=schemas.EmbedRequest,
        response=schemas.EmbedResponse, statuses=(404, 429),
    ),
    Endpoint(
        "POST", "/v1/embeddings", "OpenAI: vectors of texts", embeddings,
        body=openai_schemas.EmbeddingsRequest, response=openai_schemas.EmbeddingsResponse,
        statuses=(404, 429), is_openai=True,
    ),
)  # fmt: skip
