"""/v1/translate: translations of texts, batched with those of other requests."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from polyhead.pipelines.segments import (
    Segment,
    SegmentBatch,
    can_join_running_batch,
    decode_segments,
    join_segments,
    split_text,
)
from polyhead.pipelines.translator import Translation, Translator
from polyhead.server import schemas
from polyhead.server.context import AppContext, Endpoint, disconnected, run_cancellable
from polyhead.server.model_registry import ServedModel
from polyhead.server.request_parsing import count_characters, read_json
from polyhead.server.responses import json_response
from polyhead.server.worker import BatchKey, IsCancelled, QueuedRequest
from polyhead.viz.capture import alignment
from polyhead.viz.tokens import written_tokens

MAX_BATCH_TOKENS = 4096  # with padding, at a beam of up to 4
MAX_RUNNING = 32  # segments of a running batch at a beam of up to 4; more would slow down each


async def translate(context: AppContext, request: Request) -> Response:
    """Translate one text or several."""
    body = await read_json(request, schemas.TranslateRequest)
    texts = [body.text] if isinstance(body.text, str) else body.text
    served = context.models.pick(body.model, Translator, source=body.source, target=body.target)
    changes = {
        "n_best": body.n_best,
        "beam": None if body.beam is None else max(body.beam, body.n_best),
        "length_penalty": body.length_penalty,
        "max_length": body.max_length,
        "split_sentences": body.split_sentences,
    }
    segments, translations = await translate_texts(
        context, request, served, texts, changes, body.prefix
    )
    links: list[list[Any]] = [[()] * len(best) for best in translations]
    if body.alignment and "cross" in served.about.attention:
        links = await _align(context, request, served, translations)
    entries = [
        schemas.TextTranslations(
            text=text,
            sentences=[segment.part.text for segment in parts],
            pieces=len(parts),
            hypotheses=[
                _hypothesis(served.model, translation, body, word_links, parts)
                for translation, word_links in zip(best, links_of_text, strict=True)
            ],
        )
        for text, parts, best, links_of_text in zip(
            texts, segments, translations, links, strict=True
        )
    ]
    return json_response(schemas.TranslateResponse(model=served.name, translations=entries))


async def translate_texts(
    context: AppContext,
    request: Request,
    served: ServedModel[Translator],
    texts: Sequence[str],
    changes: dict[str, Any],
    prefix: str = "",
) -> tuple[list[list[Segment]], list[list[Translation]]]:
    """Return the segments of every text and its translations, best first."""
    n_characters = count_characters(list(texts))
    translator = served.model
    options = translator.defaults.with_options({**changes, "sample": False})
    segments = await context.prepare(
        lambda: [split_text(translator, text, options, prefix) for text in texts], n_characters
    )
    requests = [
        QueuedRequest(_batch_key(served.name, translator, segment), segment, len(segment.part.ids))
        for text in segments
        for segment in text
    ]
    outputs = iter(await context.scheduler.submit(requests, disconnected(request)))
    context.metrics.characters.inc(n_characters)
    by_text = [[next(outputs) for _ in text] for text in segments]
    translations = await context.prepare(
        lambda: [
            join_segments(translator, *text) for text in zip(texts, segments, by_text, strict=True)
        ],
        n_characters,
    )
    return segments, translations


def _batch_key(name: str, translator: Translator, segment: Segment) -> BatchKey:
    """Return the key of segments that may be decoded together; wide beams get fewer slots."""
    options = segment.options
    max_tokens = 4 * MAX_BATCH_TOKENS // max(4, options.beam)

    def run(batch: list[Segment], is_cancelled: IsCancelled) -> list[Any]:
        return list(decode_segments(translator, batch, is_cancelled))

    key = BatchKey((name, "translate", options), run, max_tokens=max_tokens)
    if can_join_running_batch(translator, options):
        max_slots = max(1, 4 * MAX_RUNNING // max(4, options.beam))
        key = replace(key, max_slots=max_slots, start=partial(SegmentBatch, translator, options))
    return key


async def _align(
    context: AppContext,
    request: Request,
    served: ServedModel[Translator],
    translations: Sequence[Sequence[Translation]],
) -> list[list[Any]]:
    """Return the word links of every translation; one queued request per text."""
    translator = served.model

    def run(texts: list[Any], is_cancelled: IsCancelled) -> list[Any]:
        (best,) = texts
        return [run_cancellable(translator, partial(alignment, translator, best), is_cancelled)]

    key = BatchKey((served.name, "alignment"), run, max_slots=1)
    requests = [QueuedRequest(key, best) for best in translations]
    return await context.scheduler.submit(requests, disconnected(request))


def _hypothesis(
    translator: Any,
    translation: Translation,
    body: schemas.TranslateRequest,
    links: Sequence[Any],
    segments: Sequence[Segment],
) -> schemas.TranslationHypothesis:
    is_single = len(segments) == 1
    ids, limit = list(translation.ids), segments[0].options.max_length if is_single else 0
    tokens = written_tokens(translator.tokenizers.target, ids) if is_single and body.tokens else []
    word_links = [
        schemas.WordLink(source=source, target=target, weight=weight)
        for source, target, weight in links
    ]
    return schemas.TranslationHypothesis(
        text=translation.text,
        sentences=[sentence.text for sentence in translation.sentences],
        score=translation.score,
        log_p=translation.log_p,
        ids=ids,
        ended=len(ids) < limit if is_single else None,  # EOS fitted in too
        tokens=tokens if body.tokens else None,
        alignment=word_links if body.alignment else None,
    )


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/translate", "Translate texts, with n-best, scores and alignments", translate,
        body=schemas.TranslateRequest, response=schemas.TranslateResponse, statuses=(404, 429),
    ),
)  # fmt: skip
