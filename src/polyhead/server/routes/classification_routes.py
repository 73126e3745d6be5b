"""/v1/classify: classes of texts or images."""

import asyncio
from functools import partial

import torch
from jaxtyping import UInt8
from starlette.requests import Request
from starlette.responses import Response
from torch import Tensor

from polyhead.data.images.files import Unreadable, decode
from polyhead.errors import DataError, PolyheadError
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.task_pipeline import TextClassifier
from polyhead.server import schemas
from polyhead.server.context import AppContext, Endpoint, disconnected
from polyhead.server.request_parsing import is_image, read_image, read_json
from polyhead.server.responses import invalid_input, json_response
from polyhead.server.routes.task_routes import submit
from polyhead.server.settings import MAX_PIXELS
from polyhead.tasks.image_classification import PictureInput, shape_of
from polyhead.tasks.text_classification import (
    Classification,
    LabelSet,
    PredictedNumber,
    with_pairs,
)
from polyhead.tasks.verbs import ClassifyOptions

Pixels = UInt8[Tensor, "channel height width"]


async def classify(context: AppContext, request: Request) -> Response:
    """Classify texts, or an image."""
    if is_image(request):
        return await _classify_image(context, request)
    body = await read_json(request, schemas.ClassifyRequest)
    texts = [body.text] if isinstance(body.text, str) else body.text
    pairs = [body.text_pair] if isinstance(body.text_pair, str) else body.text_pair
    served = context.models.pick(body.model, TextClassifier)
    try:
        rows = with_pairs(texts, pairs)
    except PolyheadError as error:
        raise invalid_input(error, field="text_pair") from None
    inputs, labels = await submit(
        context, request, served, rows, ClassifyOptions(), field="text_pair"
    )
    results = [
        _text_classification(
            label, body.top, is_cut=given.parts[0].length > served.model.max_length
        )
        for given, label in zip(inputs, labels, strict=True)
    ]
    return json_response(schemas.ClassifyResponse(model=served.name, results=results))


async def _classify_image(context: AppContext, request: Request) -> Response:
    content, options = await read_image(request, schemas.ImageOptions)
    served = context.models.pick(options.model, ImageClassifier)
    classifier = served.model
    pixels = await read_pixels(context, classifier, content, request)
    top, given = len(classifier.classes), [PictureInput("", pixels)]
    (label,) = await context.run(classifier, partial(classifier.results, given, top), request)
    results = [_classification(label.probabilities, options.top, is_cut=False)]
    return json_response(schemas.ClassifyResponse(model=served.name, results=results))


async def read_pixels(
    context: AppContext, classifier: ImageClassifier, content: bytes, request: Request
) -> Pixels:
    """Decode an uploaded image to the model's size in one of few threads."""

    async def decoded() -> Pixels:
        loop = asyncio.get_running_loop()
        try:
            shape = shape_of(classifier.saved.config)
            pixels = await loop.run_in_executor(
                context.image_threads, decode, content, shape, MAX_PIXELS
            )
            return torch.from_numpy(pixels)
        except Unreadable as error:
            problem = DataError(f"the image: {error}", "unreadable_image")
            raise invalid_input(problem, field="image", code="bad_image") from None

    pixels: Pixels = await context.scheduler.wait(decoded(), disconnected(request))
    return pixels


def _text_classification(
    label: Classification, top: int | None, *, is_cut: bool
) -> schemas.ClassificationResponse:
    if isinstance(label, PredictedNumber):
        return schemas.ClassificationResponse(
            label=label.label, probability=None, cut=is_cut, classes=[], number=label.number
        )
    response = _classification(label.probabilities, top, is_cut=is_cut)
    if isinstance(label, LabelSet):
        response.labels = list(label.labels)
    return response


def _classification(
    probabilities: dict[str, float], top: int | None, *, is_cut: bool
) -> schemas.ClassificationResponse:
    ranked = sorted(probabilities.items(), key=lambda pair: -pair[1])[:top]
    classes = [schemas.ClassProbability(label=label, probability=p) for label, p in ranked]
    return schemas.ClassificationResponse(**vars(classes[0]), cut=is_cut, classes=classes)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/classify", "Classify texts, or an image", classify,
        body=schemas.ClassifyRequest, response=schemas.ClassifyResponse,
        image_options=schemas.ImageOptions, statuses=(404, 429),
    ),
)  # fmt: skip
