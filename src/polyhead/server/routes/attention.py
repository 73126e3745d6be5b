"""/v1/attention, /v1/steps and /v1/beam: looking into a model while it works."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from polyhead.errors import ConfigError
from polyhead.pipelines.segments import longest_output
from polyhead.pipelines.step_through import beam_tree, checked_source, steps
from polyhead.pipelines.translator import Translator, with_options
from polyhead.server import answer_schemas as answering
from polyhead.server import request_schemas as asking
from polyhead.server.context import AppContext, Endpoint, reply
from polyhead.server.errors import HTTPError, refused
from polyhead.server.registry import ServedModel
from polyhead.server.request_parsing import is_image, read_image, read_json
from polyhead.viz.binary import to_binary
from polyhead.viz.capture import attention_view
from polyhead.viz.draw_image import ImageViewOptions
from polyhead.viz.page import render
from polyhead.viz.select import ViewOptions, narrow
from polyhead.viz.tokens import read_tokens, written_tokens
from polyhead.viz.writer import draw

MAX_TOKENS = 1024  # of a text: all heads of all layers have its square as weights
MAX_WEIGHTS = 2**24  # in one page or JSON text: 64 MB of numbers, and several times that as text
READERS = ("translate", "generate", "fill", "classify")
TYPES = {
    "binary": "application/octet-stream",
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
}

NUMBERS, DRAWN = ("binary", "json"), ("svg",)
FORMS = {  # the forms that can follow an option; kind and layer are for all
    "maps": ("binary",), "precision": ("binary",), "size": ("binary",),
    "heads": (*NUMBERS, *DRAWN), "merge": (*NUMBERS, *DRAWN),
    "word": DRAWN, "column": DRAWN, "lines": DRAWN, "log": DRAWN, "special": DRAWN,
}  # fmt: skip


async def attention(desk: AppContext, request: Request) -> Response:
    """All heads for one text, in one of four forms; or for an image."""
    if is_image(request):
        return await _image_attention(desk, request)
    asked = await read_json(request, asking.Look)
    book = desk.shelf.pick(asked.model, READERS)
    if not book.about.attention:
        raise HTTPError(422, f"{book.name} has no attention to look at", field="model")
    choice = _choice(asked)
    content = await desk.compute(book, partial(_look, book, asked, choice), request)
    return _file(content, asked.format)


async def _image_attention(desk: AppContext, request: Request) -> Response:
    content, asked = await read_image(request, asking.LookAtImage)
    book = desk.shelf.pick(asked.model, ("classify-image",))
    for name in ("layer", "head", "alone"):
        if vars(asked)[name] and asked.format != "svg":
            raise HTTPError(422, f'{name}: only with "format": "svg"', field=name)
    pixels = await desk.unpack(book.model, content, request)

    def work() -> bytes:
        view = replace(attention_view(book.model, pixels), model=book.name)
        if asked.format == "svg":
            return _drawn(lambda: draw(view, _image_choice(asked)))
        return view.to_json().encode("utf-8", "replace") if asked.format == "json" else _page(view)

    return _file(await desk.compute(book, work, request), asked.format)


def _look(book: ServedModel, asked: asking.Look, choice: ViewOptions) -> bytes:
    """Look, and put it into the form that was asked for. Runs in the model's thread."""
    if asked.target is not None and book.about.use != "translate":
        raise HTTPError(422, "only a translator has a target", field="target")
    target_ids = asked.target_ids
    if target_ids is None and asked.target is None and isinstance(book.model, Translator):
        target_ids = _own(book.model, asked.text)
    view = attention_view(
        book.model, asked.text, target=asked.target, target_ids=target_ids, max_tokens=MAX_TOKENS
    )
    view = replace(view, model=book.name)  # not its path
    if asked.format == "svg":
        return _drawn(lambda: draw(view, choice))
    view = narrow(view, choice)
    if asked.format == "binary":
        for one in asked.maps or ():
            view.find(one.kind, one.layer)  # says which there are
        wanted = None if asked.maps is None else [(one.kind, one.layer) for one in asked.maps]
        return to_binary(view, precision=asked.precision, requested=wanted, size=asked.size)
    if sum(one.weights.size for one in view.maps) > MAX_WEIGHTS:
        raise HTTPError(
            422,
            f"more than {MAX_WEIGHTS:,} weights are too many for {asked.format}; "
            'give a shorter text, choose a kind and a layer, or ask for "format": "binary"',
            field="format",
            code="too_many_weights",
        )
    return view.to_json().encode() if asked.format == "json" else _page(view)


def _choice(asked: asking.Look) -> ViewOptions:
    """What is to be shown. An option that this form cannot follow is refused, not forgotten."""
    said = {name: vars(asked)[name] for name in FORMS}
    for name, value in said.items():
        if value != asking.Look.model_fields[name].default and asked.format not in FORMS[name]:
            forms = " or ".join(f'"{form}"' for form in FORMS[name])
            raise HTTPError(422, f'{name}: only with "format": {forms}', field=name)
    if asked.maps is not None and (asked.kind is not None or asked.layer is not None):
        raise HTTPError(422, "maps: give either maps, or kind and layer", field="maps")
    alone = asked.word is not None or asked.column is not None
    return ViewOptions(
        kind=asked.kind, layer=asked.layer, heads=asked.heads, word=asked.word,
        column=asked.column, style="lines" if asked.lines or alone else "heatmap",
        merge=asked.merge, log=asked.log, special=asked.special,
    )  # fmt: skip


def _image_choice(asked: asking.LookAtImage) -> ImageViewOptions:
    heads = [asked.head] if isinstance(asked.head, int) else asked.head
    return ImageViewOptions(asked.layer, heads, asked.alone)


def _drawn(draw: Callable[[], str]) -> bytes:
    """A picture, or why there is none."""
    try:
        return draw().encode("utf-8", "replace")
    except ConfigError as error:
        raise refused(error, code="cannot_draw") from None


def _own(translator: Translator, text: str) -> list[int]:
    """The model's own translation, as far as it can be looked at."""
    checked_source(translator, text)
    options = translator.defaults
    longest = min(options.max_length, longest_output(translator) - 1, MAX_TOKENS - 1)
    found = translator.n_best([text], options=with_options(options, {"max_length": longest}))
    return list(found[0][0].ids)


def _page(view: Any) -> bytes:
    return render(view).encode("utf-8", "replace")


def _file(content: bytes, form: str) -> Response:
    headers = {}
    if form in ("html", "svg"):
        headers["Content-Disposition"] = f'attachment; filename="attention.{form}"'
    return Response(content, media_type=TYPES[form], headers=headers)


async def walk(desk: AppContext, request: Request) -> Response:
    """An output token by token, with what else could have stood there."""
    asked = await read_json(request, asking.Steps)
    book = desk.shelf.pick(asked.model, ("translate", "generate"))
    found = await desk.compute(
        book,
        lambda: steps(
            book.model, asked.text, forced=asked.prefix, top=asked.top, max_tokens=asked.max_tokens
        ),
        request,
    )
    tokens = written_tokens(_output_tokenizer(book), found.ids)
    return reply(
        answering.Walk(
            model=book.name,
            source=_source(book, asked.text),
            steps=[
                answering.Step(
                    id=one.id,
                    text=one.text,
                    probability=one.probability,
                    forced=one.forced,
                    alternatives=[answering.Choice(**vars(other)) for other in one.alternatives],
                )
                for one in found.steps
            ],
            text=found.text,
            tokens=[answering.Token(**vars(token)) for token in tokens],
            ended=found.ended,
        )
    )


async def beam(desk: AppContext, request: Request) -> Response:
    """A beam search as a tree."""
    asked = await read_json(request, asking.Beams)
    book = desk.shelf.pick(asked.model, ("translate",))
    translator: Translator = book.model
    changes = {
        "beam": asked.beam,
        "length_penalty": asked.length_penalty,
        "max_length": asked.max_length,
        "n_best": 1,
        "sample": False,
    }
    options = with_options(translator.defaults, changes)
    tree = await desk.compute(
        book, lambda: beam_tree(translator, asked.text, options, asked.prefix), request
    )
    target = translator.tokenizers.target
    nodes = [
        answering.TreeNode(
            node=place,
            parent=node.parent,
            step=node.step,
            id=node.id,
            text=target.symbol(node.id),
            log_p=node.log_p,
            probability=1.0 if node.parent is None else _share(node, tree.nodes[node.parent]),
            ended=node.id == 2,
        )
        for place, node in enumerate(tree.nodes)
    ]
    leaves = [
        answering.TreeLeaf(
            node=leaf.node, text=target.decode(leaf.ids), score=leaf.score, log_p=leaf.log_p
        )
        for leaf in tree.leaves
    ]
    return reply(
        answering.Tree(
            model=book.name,
            source=_source(book, asked.text),
            beam=options.beam,
            length_penalty=options.length_penalty,
            nodes=nodes,
            hypotheses=leaves,
        )
    )


def _share(node: Any, above: Any) -> float:
    return min(1.0, math.exp(min(0.0, node.log_p - above.log_p)))


def _output_tokenizer(book: ServedModel) -> Any:
    model = book.model
    return model.tokenizers.target if isinstance(model, Translator) else model.tokenizer


def _source(book: ServedModel, text: str) -> answering.ReadText:
    """A text as the model read it."""
    model = book.model
    is_translator = isinstance(model, Translator)
    tokenizer = model.tokenizers.source if is_translator else model.tokenizer
    tokens = read_tokens(tokenizer, text, closed=is_translator)
    return answering.ReadText(
        text=tokenizer.normalise(text),
        tokens=[answering.Token(**vars(token)) for token in tokens],
    )


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/attention", "What every head of every layer looks at", attention,
        takes=asking.Look, kinds=tuple(TYPES.values()), image=asking.LookAtImage,
        refuses=(404, 429, 503),
    ),
    Endpoint(
        "POST", "/v1/steps", "Write token by token, with alternatives and forced tokens", walk,
        takes=asking.Steps, gives=answering.Walk, refuses=(404, 429, 503),
    ),
    Endpoint(
        "POST", "/v1/beam", "A beam search as a tree", beam,
        takes=asking.Beams, gives=answering.Tree, refuses=(404, 429, 503),
    ),
)  # fmt: skip
