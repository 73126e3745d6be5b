"""/v1/attention, /v1/steps and /v1/beam: attention, decoding steps and beam search trees."""

import math
from dataclasses import fields, replace
from functools import partial
from typing import get_args

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from polyhead.errors import ConfigError
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.pipelines.step_through import Step, beam_tree, checked_source, steps
from polyhead.pipelines.task_pipeline import QuestionAnswerer
from polyhead.pipelines.text_generator import TextGenerator
from polyhead.pipelines.translator import Translator
from polyhead.server import schemas
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.model_registry import ServedModel
from polyhead.server.request_parsing import is_image, read_image, read_json
from polyhead.server.responses import HTTPError, invalid_input, json_response
from polyhead.server.routes.classification_routes import read_pixels
from polyhead.special_tokens import EOS
from polyhead.viz.binary import to_binary
from polyhead.viz.capture import TextPipeline, attention_view
from polyhead.viz.draw_image import ImageViewOptions
from polyhead.viz.page import render
from polyhead.viz.select import ViewOptions, narrow
from polyhead.viz.tokens import read_tokens, written_tokens
from polyhead.viz.views import AttentionView, ImageView
from polyhead.viz.writer import draw

MAX_TOKENS = 1024  # the weights of every head are its square
MAX_WEIGHTS = 2**24  # of a page or JSON: 64 MB of numbers, and several times that as text
TYPES = {
    "binary": "application/octet-stream",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
}
BINARY, SVG, ALL_BUT_PAGE = ("binary",), ("svg",), ("binary", "json", "svg")
FORMATS = {  # formats that support an option; kind and layer are for all
    "maps": BINARY, "precision": BINARY, "size": BINARY,
    "heads": ALL_BUT_PAGE, "merge": ALL_BUT_PAGE,
    "word": SVG, "column": SVG, "lines": SVG, "log": SVG, "special": SVG,
}  # fmt: skip


class StepsResponse(BaseModel):
    """An output, token by token."""

    model: str
    source: schemas.TextTokens
    steps: list[Step]
    text: str
    tokens: list[schemas.KnownToken]
    ended: bool


async def attention(context: AppContext, request: Request) -> Response:
    """Return the attention weights of a text or an image in one of four formats."""
    if is_image(request):
        return await _image_attention(context, request)
    body = await read_json(request, schemas.AttentionRequest)
    served: ServedModel[TextPipeline] = context.models.pick(body.model, *get_args(TextPipeline))
    if not served.about.attention:
        raise HTTPError(422, f"{served.name} has no attention", field="model")
    options = _view_options(body)
    content = await context.run(served.model, partial(_text_view, served, body, options), request)
    return _file(content, body.format)


async def _image_attention(context: AppContext, request: Request) -> Response:
    content, options = await read_image(request, schemas.ImageAttentionOptions)
    served = context.models.pick(options.model, ImageClassifier)
    for name in ("layer", "head", "alone"):
        if vars(options)[name] and options.format != "svg":
            raise _unsupported(name, SVG)
    pixels = await read_pixels(context, served.model, content, request)

    def view() -> bytes:
        view = replace(attention_view(served.model, pixels), model=served.name)
        heads = [options.head] if isinstance(options.head, int) else options.head
        return _encoded(view, options.format, ImageViewOptions(options.layer, heads, options.alone))

    return _file(await context.run(served.model, view, request), options.format)


def _text_view(
    served: ServedModel[TextPipeline], body: schemas.AttentionRequest, options: ViewOptions
) -> bytes:
    """Capture the attention and return it in the requested format. Runs in the model thread."""
    model, text, target_ids, ended = served.model, body.text, body.target_ids, body.ended
    if body.target is not None and not isinstance(model, Translator | QuestionAnswerer):
        raise HTTPError(422, "only a translation model has a target", field="target")
    if target_ids is None and body.target is None and isinstance(model, Translator):
        text = model.sentence(text, body.sentence)
        target_ids, ended = _translate(model, text)
    view = attention_view(
        model, text, target=body.target, target_ids=target_ids, ended=ended, max_tokens=MAX_TOKENS
    )
    view = replace(view, model=served.name)  # not its path
    if body.format == "svg":
        return _encoded(view, "svg", options)
    view = narrow(view, options)
    if body.format == "binary":
        names = None if body.maps is None else [(name.kind, name.layer) for name in body.maps]
        for name in names or ():
            view.find(*name)  # ConfigError for an unknown one
        return to_binary(view, precision=body.precision, requested=names, size=body.size)
    if sum(layer.weights.size for layer in view.maps) > MAX_WEIGHTS:
        raise HTTPError(
            422,
            f"more than {MAX_WEIGHTS:,} weights, too many for {body.format}; "
            'shorten the text, select a kind and a layer, or use "format": "binary"',
            field="format",
            code="too_many_weights",
        )
    return _encoded(view, body.format, options)


def _view_options(body: schemas.AttentionRequest) -> ViewOptions:
    """Return the selected view; reject options that the format does not support."""
    for name, formats in FORMATS.items():
        default = schemas.AttentionRequest.model_fields[name].default
        if vars(body)[name] != default and body.format not in formats:
            raise _unsupported(name, formats)
    if body.maps is not None and (body.kind is not None or body.layer is not None):
        raise HTTPError(422, "maps: give either maps, or kind and layer", field="maps")
    has_lines = body.lines or body.word is not None or body.column is not None
    selected = body.model_dump(include={field.name for field in fields(ViewOptions)})
    return ViewOptions(**selected, style="lines" if has_lines else "heatmap")


def _unsupported(option: str, formats: tuple[str, ...]) -> HTTPError:
    names = " or ".join(f'"{name}"' for name in formats)
    return HTTPError(422, f'{option}: only with "format": {names}', field=option)


def _encoded(
    view: AttentionView | ImageView, format: str, options: ViewOptions | ImageViewOptions
) -> bytes:
    """Return a view as JSON, as a page, or as the selected drawing."""
    try:
        text = draw(view, options) if format == "svg" else ""
    except ConfigError as error:
        raise invalid_input(error, code="cannot_draw") from None
    text = text or (view.to_json() if format == "json" else render(view))
    return text.encode("utf-8", "replace")


def _translate(translator: Translator, text: str) -> tuple[list[int], bool]:
    """Return the model's own translation, up to the length that can be shown, and if it ended."""
    checked_source(translator, text)
    options = translator.defaults
    limit = min(options.max_length, translator.max_output_length, MAX_TOKENS)
    ((best, *_),) = translator.n_best([text], options=replace(options, max_length=limit))
    return list(best.ids), best.sentences[-1].ended


def _file(content: bytes, format: str) -> Response:
    headers = {}
    if format in ("html", "svg"):
        headers["Content-Disposition"] = f'attachment; filename="attention.{format}"'
    return Response(content, media_type=TYPES[format], headers=headers)


async def trace_steps(context: AppContext, request: Request) -> Response:
    """Return an output token by token, with the alternatives of every step."""
    body = await read_json(request, schemas.StepsRequest)
    served: ServedModel[Translator | TextGenerator] = context.models.pick(
        body.model, Translator, TextGenerator
    )
    model, sampling = served.model, body.sampling or schemas.Sampling()
    changes = {
        "max_length": min(model.defaults.max_length, MAX_TOKENS),
        "n_best": 1,
        "sample": body.sampling is not None,
        **sampling.model_dump(exclude={"seed"}),
    }
    options = model.defaults.with_options(changes)
    work = partial(
        steps, model, body.text, forced=body.prefix, top=body.top, max_tokens=body.max_tokens,
        options=options, seed=sampling.seed,
    )  # fmt: skip
    trace = await context.run(served.model, work, request)
    tokenizer = model.tokenizers.target if isinstance(model, Translator) else model.tokenizer
    return json_response(
        StepsResponse(
            model=served.name,
            source=_source_tokens(model, body.text),
            steps=list(trace.steps),
            text=trace.text,
            tokens=written_tokens(tokenizer, trace.ids),
            ended=trace.ended,
        )
    )


async def trace_beam(context: AppContext, request: Request) -> Response:
    """Return a beam search as a tree."""
    body = await read_json(request, schemas.BeamRequest)
    served = context.models.pick(body.model, Translator)
    translator = served.model
    changes = {
        "beam": body.beam,
        "length_penalty": body.length_penalty,
        "max_length": body.max_length,
        "n_best": 1,
        "sample": False,
    }
    options = translator.defaults.with_options(changes)
    work = partial(beam_tree, translator, body.text, options, body.prefix)
    tree = await context.run(served.model, work, request)
    target = translator.tokenizers.target

    def probability(log_p: float, parent: int | None) -> float:
        above = 0.0 if parent is None else tree.nodes[parent].log_p
        return math.exp(min(0.0, log_p - above))

    nodes = [
        schemas.BeamTreeNode(
            node=number,
            **vars(node),
            text=target.symbol(node.id),
            probability=probability(node.log_p, node.parent),
            ended=node.id == EOS,
        )
        for number, node in enumerate(tree.nodes)
    ]
    outputs = [
        schemas.BeamOutput(**vars(leaf), text=target.decode(leaf.ids)) for leaf in tree.leaves
    ]
    return json_response(
        schemas.BeamResponse(
            model=served.name,
            source=_source_tokens(translator, body.text),
            beam=options.beam,
            length_penalty=options.length_penalty,
            nodes=nodes,
            hypotheses=outputs,
        )
    )


def _source_tokens(model: Translator | TextGenerator, text: str) -> schemas.TextTokens:
    if isinstance(model, Translator):
        tokens = read_tokens(model.tokenizer, text)
    else:
        tokens = written_tokens(model.tokenizer, model.encode(text))
    return schemas.TextTokens(text=model.tokenizer.normalise(text), tokens=tokens)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/attention", "Attention weights of all heads", attention,
        body=schemas.AttentionRequest, media_types=tuple(TYPES.values()),
        image_options=schemas.ImageAttentionOptions, statuses=(404, 429),
    ),
    Endpoint(
        "POST", "/v1/steps", "Decode step by step, with alternatives and forced tokens",
        trace_steps, body=schemas.StepsRequest, response=StepsResponse,
        statuses=(404, 429),
    ),
    Endpoint(
        "POST", "/v1/beam", "Beam search as a tree", trace_beam,
        body=schemas.BeamRequest, response=schemas.BeamResponse, statuses=(404, 429),
    ),
)  # fmt: skip
