"""/v1/translate: texts in, the best translations of each out, batched with those of others."""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from polyhead.pipelines import segments as portions
from polyhead.pipelines.segments import Segment
from polyhead.pipelines.translator import Translation, Translator, with_options
from polyhead.server import answer_schemas as answering
from polyhead.server import request_schemas as asking
from polyhead.server.cancellation import run_cancellable
from polyhead.server.context import AppContext, Endpoint, gone, reply
from polyhead.server.registry import ServedModel
from polyhead.server.request_parsing import count_characters, read_json
from polyhead.server.worker import BatchKey, IsCancelled, QueuedRequest
from polyhead.viz.capture import alignment
from polyhead.viz.tokens import written_tokens

MAX_TOKENS = 4096  # of a batch, padding included, at a beam of up to 4
MAX_FLOWING = 32  # sentences at once, likewise: more would be done sooner, each of them later
Cut = list[list[Segment]]  # a text: its lines, and their portions


async def translate(desk: AppContext, request: Request) -> Response:
    """Translate one text or several."""
    asked = await read_json(request, asking.Translate)
    texts = [asked.text] if isinstance(asked.text, str) else asked.text
    book = desk.shelf.pick(asked.model, ("translate",), asked.source, asked.target)
    changes = {
        "n_best": asked.n_best,
        "beam": None if asked.beam is None else max(asked.beam, asked.n_best),
        "length_penalty": asked.length_penalty,
        "max_length": asked.max_length,
    }
    cut, found = await translated(desk, request, book, texts, changes, asked.prefix)
    links: list[list[Any]] = [[None] * len(best) for best in found]
    if asked.alignment and "cross" in book.about.attention:
        links = await _linked(desk, request, book, texts, found)
    entries = [
        answering.Translated(
            text=text,
            pieces=sum(map(len, lines)),
            hypotheses=[
                _hypothesis(book.model, one, asked, link, [*chain(*lines)])
                for one, link in zip(best, linked, strict=True)
            ],
        )
        for text, lines, best, linked in zip(texts, cut, found, links, strict=True)
    ]
    return reply(answering.Translations(model=book.name, translations=entries))


async def translated(
    desk: AppContext,
    request: Request,
    book: ServedModel,
    texts: Sequence[str],
    changes: dict[str, Any],
    prefix: str = "",
) -> tuple[list[Cut], list[list[Translation]]]:
    """The portions of every text and its translations, best first."""
    size = count_characters(list(texts))
    translator: Translator = book.model
    options = with_options(translator.defaults, {**changes, "sample": False})

    def cut_all() -> list[Cut]:
        return [portions.cut(translator, text, options, prefix) for text in texts]

    cut = await desk.prepare(cut_all, size)
    requests = [
        QueuedRequest(_batch_key(book, portion), portion, len(portion.ids))
        for lines in cut
        for line in lines
        for portion in line
    ]
    outputs = await desk.scheduler.submit(requests, gone(request)) if requests else []
    desk.metrics.characters.inc(size)

    def join_all() -> list[list[Translation]]:
        waiting = iter(outputs)
        return [
            portions.join(translator, lines, [next(waiting) for line in lines for _ in line])
            for lines in cut
        ]

    return cut, await desk.prepare(join_all, size)


def _batch_key(book: ServedModel, portion: Segment) -> BatchKey:
    """Return the key of segments that may be decoded together; wide beams get fewer slots."""
    translator: Translator = book.model
    options = portion.options
    name = (book.name, "translate", options)

    def run(batch: list[Segment], is_cancelled: IsCancelled) -> list[Any]:
        return list(portions.decode(translator, batch, lambda: not is_cancelled()))

    most = 4 * MAX_TOKENS // max(4, options.beam)
    if not portions.can_flow(translator, options):
        return BatchKey(name, run, max_tokens=most)
    start = partial(portions.SegmentBatch, translator, options)
    slots = max(1, 4 * MAX_FLOWING // max(4, options.beam))
    return BatchKey(name, run, max_slots=slots, max_tokens=most, start=start)


async def _linked(
    desk: AppContext,
    request: Request,
    book: ServedModel,
    texts: Sequence[str],
    found: Sequence[Any],
) -> list[list[Any]]:
    """The links of every text's translations; others may go between two texts."""

    def run(pairs: list[Any], is_cancelled: IsCancelled) -> list[list[Any]]:
        (pair,) = pairs
        return [run_cancellable(book.model, partial(_links, book.model, *pair), is_cancelled)]

    key = BatchKey((book.name, "alignment"), run, max_slots=1)
    requests = [QueuedRequest(key, pair) for pair in zip(texts, found, strict=True)]
    return await desk.scheduler.submit(requests, gone(request))


def _links(translator: Translator, text: str, best: Sequence[Translation]) -> list[Any]:
    """The links of one text's translations."""
    return alignment(translator, [text] * len(best), [one.ids for one in best])


def _hypothesis(
    translator: Translator,
    one: Translation,
    asked: asking.Translate,
    links: Any,
    pieces: Sequence[Segment],
) -> answering.Hypothesis:
    whole = len(pieces) == 1  # else words cannot be numbered through
    wanted = whole and asked.tokens
    tokens = written_tokens(translator.tokenizers.target, one.ids) if wanted else []
    linked = [
        answering.Link(source=source, target=target, weight=weight)
        for source, target, weight in (links or [] if whole else [])
    ]
    return answering.Hypothesis(
        text=one.text,
        score=one.score,
        log_p=one.log_p,
        ids=list(one.ids),
        ended=len(one.ids) < pieces[0].options.max_length if whole else None,  # with its EOS
        tokens=[answering.Token(**vars(token)) for token in tokens] if asked.tokens else None,
        alignment=linked if asked.alignment else None,
    )


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/translate", "Translate texts, with n-best, scores and alignments", translate,
        takes=asking.Translate, gives=answering.Translations, refuses=(404, 429, 503),
    ),
)  # fmt: skip
