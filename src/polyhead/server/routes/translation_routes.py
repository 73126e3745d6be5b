"""/v1/translate: translations of texts, batched with those of other requests."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from polyhead.decoding.options import Scores
from polyhead.pipelines.translator import Translation, Translator, word_probabilities
from polyhead.server import translation_schemas as schemas
from polyhead.server.context import AppContext, Endpoint, disconnected
from polyhead.server.model_registry import ServedModel
from polyhead.server.queued_work import BatchKey, QueuedRequest
from polyhead.server.request_parsing import count_characters, read_json
from polyhead.server.responses import HTTPError, json_response
from polyhead.server.segments import (
    Segment,
    SegmentBatch,
    decode_segments,
    join_segments,
    split_text,
)
from polyhead.viz.tokens import written_tokens

MAX_BATCH_TOKENS = 4096  # with padding, at a beam of up to 4
MAX_RUNNING = 32  # segments of a running batch at a beam of up to 4; more would slow down each


async def translate(context: AppContext, request: Request) -> Response:
    """Translate one text or several."""
    body = await read_json(request, schemas.TranslateRequest)
    texts = [body.text] if isinstance(body.text, str) else body.text
    served = context.models.pick(body.model, Translator, source=body.source, target=body.target)
    if body.alignment and not context.models.use_torch:
        raise HTTPError(501, "alignments need torch; start the server with --engine torch or auto")
    changes = {
        "n_best": body.n_best,
        "beam": None if body.beam is None else max(body.beam, body.n_best),
        "length_penalty": body.length_penalty,
        "max_length": body.max_length,
        "split_sentences": body.split_sentences,
    }
    segments, translations = await translate_texts(
        context, request, [served] * len(texts), texts, changes, body.prefix,
        token_scores=body.tokens,
    )  # fmt: skip
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
    models: Sequence[ServedModel[Translator]],
    texts: Sequence[str],
    changes: dict[str, Any],
    prefix: str = "",
    *,
    token_scores: bool = False,
) -> tuple[list[list[Segment]], list[list[Translation]]]:
    """Return the segments of every text and its translations by its model, best first."""
    n_characters, changes = count_characters(list(texts)), {**changes, "sample": False}

    def split(translator: Translator, text: str) -> list[Segment]:
        return split_text(translator, text, translator.defaults.with_options(changes), prefix)

    segments = await context.prepare(
        lambda: [split(m.model, text) for m, text in zip(models, texts, strict=True)], n_characters
    )
    threads = context.settings.threads
    requests = [
        QueuedRequest(
            _batch_key(served.name, served.model, segment, threads, token_scores),
            segment,
            len(segment.part.ids),
        )
        for served, text in zip(models, segments, strict=True)
        for segment in text
    ]
    outputs = iter(await context.scheduler.submit(requests, disconnected(request)))
    context.metrics.characters.inc(n_characters)
    by_text = [[next(outputs) for _ in text] for text in segments]
    translations = await context.prepare(
        lambda: [
            join_segments(served.model, text, parts, results)
            for served, text, parts, results in zip(models, texts, segments, by_text, strict=True)
        ],
        n_characters,
    )
    return segments, translations


def _batch_key(
    name: str, translator: Translator, segment: Segment, threads: int, token_scores: bool
) -> BatchKey:
    """Return the key of segments that may be decoded together; wide beams get fewer slots.

    threads: those of the engine; 0 for all of its own.
    """
    options = segment.options
    backend = translator.backend(options)
    if options.max_length > backend.n_positions:
        backend = translator.torch
    scores: Scores = "tokens" if token_scores else "outputs"
    start = backend.running_search(options)
    max_slots = max(1, 4 * MAX_RUNNING // max(4, options.beam))
    if start is None and not backend.n_parallel:
        max_slots = BatchKey.max_slots
    return BatchKey(
        (name, backend.name, options, token_scores and backend.n_parallel > 0),
        partial(decode_segments, translator, backend=backend, scores=scores),
        max_slots,
        max_tokens=4 * MAX_BATCH_TOKENS // max(4, options.beam),
        start=None if start is None else partial(SegmentBatch, start),
        n_parallel=min(threads or backend.n_parallel, backend.n_parallel),
    )


async def _align(
    context: AppContext,
    request: Request,
    served: ServedModel[Translator],
    translations: Sequence[Sequence[Translation]],
) -> list[list[Any]]:
    """Return the word links of every translation, one text after the other."""
    from polyhead.viz.word_alignment import alignment

    work = [partial(alignment, served.model, best) for best in translations]
    return [await context.run(served.model, each, request) for each in work]


def _hypothesis(
    translator: Translator,
    translation: Translation,
    body: schemas.TranslateRequest,
    links: Sequence[Any],
    segments: Sequence[Segment],
) -> schemas.TranslationHypothesis:
    target, ids, is_single = translator.tokenizers.target, list(translation.ids), len(segments) == 1
    tokens = written_tokens(target, ids) if is_single and body.tokens else []
    word_links = [
        schemas.WordLink(source=source, target=target, weight=weight)
        for source, target, weight in links
    ]
    return schemas.TranslationHypothesis(
        text=translation.text,
        sentences=[
            schemas.SentenceTranslation(
                **sentence._asdict(),
                confidence=sentence.confidence,
                words=[
                    schemas.WordProbabilities(text=text, probabilities=each)
                    for text, each in word_probabilities(target, sentence)
                ]
                if body.tokens
                else None,
            )
            for sentence in translation.sentences
        ],
        score=translation.score,
        log_p=translation.log_p,
        confidence=translation.confidence,
        ids=ids,
        ended=translation.sentences[0].ended if is_single else None,
        tokens=tokens if body.tokens else None,
        alignment=word_links if body.alignment else None,
    )


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/translate", "Translate texts, with n-best, scores and alignments", translate,
        body=schemas.TranslateRequest, response=schemas.TranslateResponse, statuses=(404, 429),
    ),
)  # fmt: skip
