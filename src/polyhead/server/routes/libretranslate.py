"""Routes of LibreTranslate, with its names and shapes, so that its clients work unchanged."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from polyhead.pipelines.describe import language_name
from polyhead.server import schemas
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.errors import HTTPError
from polyhead.server.html_segments import insert_texts, parse_document
from polyhead.server.language_detection import detect_language
from polyhead.server.model_registry import ServedModel
from polyhead.server.request_parsing import count_characters, read_json_or_form
from polyhead.server.responses import json_response
from polyhead.server.routes.translation_routes import translate_texts
from polyhead.server.security import check_key
from polyhead.server.settings import MAX_CHARACTERS, MAX_N_BEST

UNNAMED = ("source", "target")  # codes of languages that the model does not name


async def translate(context: AppContext, request: Request) -> Response:
    """Translate a text, or a list of texts."""
    body = await read_json_or_form(request, schemas.LibreTranslateRequest)
    check_key(context.settings.api_key, request.headers, body.api_key)
    queries = [body.q] if isinstance(body.q, str) else body.q
    documents = [parse_document(text, is_html=body.format == "html") for text in queries]
    texts = [text for document in documents for text in document.texts]
    count_characters(texts)  # before language detection
    served, confidence = _choose(context, body.source, body.target, texts)
    changes = {"n_best": body.alternatives + 1}
    _, translations = await translate_texts(context, request, served, texts, changes)
    remaining = iter(translations)
    results: list[list[str]] = []
    for document in documents:
        n_best_lists = [next(remaining) for _ in document.texts]
        n_results = min(map(len, n_best_lists), default=1)
        results.append([
            insert_texts(document, [n_best[n].text for n_best in n_best_lists])
            for n in range(n_results)
        ])  # fmt: skip
    content: dict[str, Any] = {"translatedText": [best for best, *_ in results]}
    if body.alternatives:
        content["alternatives"] = [others for _, *others in results]
    if body.source == "auto":
        language = {"confidence": confidence, "language": _languages(served)[0]}
        content["detectedLanguage"] = [language] * len(results)
    if isinstance(body.q, str):
        content = {name: values[0] for name, values in content.items()}
    return json_response(content)


def _choose(
    context: AppContext, source: str, target: str, texts: Sequence[str]
) -> tuple[ServedModel, float]:
    """Return the model, and the confidence in percent that the texts are in its language.

    For "auto", the model whose source language has the highest confidence.
    """
    translators = _translators(context)
    if source != "auto" and source not in {_languages(served)[0] for served in translators}:
        raise HTTPError(400, "unsupported source language; see /languages", field="source")
    by_source = {
        _languages(served)[0]: served
        for served in reversed(translators)
        if _languages(served)[1] == target
    }
    if source in by_source:
        return by_source[source], 100.0
    if source != "auto" or not by_source:
        raise HTTPError(400, "unsupported target language; see /languages", field="target")
    ranked = detect_language(texts, _all_languages(translators))
    code, confidence = next(pair for pair in ranked if pair[0] in by_source)
    return by_source[code], confidence


async def detect(context: AppContext, request: Request) -> Response:
    """Return the models' languages that a text may be in, likeliest first."""
    body = await read_json_or_form(request, schemas.DetectRequest)
    check_key(context.settings.api_key, request.headers, body.api_key)
    codes = _all_languages(_translators(context))
    ranked = await context.prepare(lambda: detect_language([body.q], codes), len(body.q))
    likely = [pair for pair in ranked if pair[1] > 0] or ranked[:1]
    return json_response([{"confidence": share, "language": code} for code, share in likely])


def _translators(context: AppContext) -> tuple[ServedModel, ...]:
    if not context.models.translators:
        raise HTTPError(400, "no translation model; see /v1/models")
    return context.models.translators


def _languages(served: ServedModel) -> tuple[str, str]:
    about = served.about
    return about.source_language or UNNAMED[0], about.target_language or UNNAMED[1]


def _all_languages(translators: Sequence[ServedModel]) -> list[str]:
    """Return all source languages, then all target languages."""
    sources, targets = zip(*map(_languages, translators), strict=True)
    return list(dict.fromkeys(sources + targets))


async def languages(context: AppContext, _request: Request) -> Response:
    """Return every language with its target languages."""
    targets: dict[str, list[str]] = {}
    for served in context.models.translators:
        source, target = _languages(served)
        targets.setdefault(source, [])
        targets.setdefault(target, [])
        if target not in targets[source]:
            targets[source].append(target)
    return json_response([
        {"code": code, "name": language_name(code), "targets": reached}
        for code, reached in targets.items()
    ])  # fmt: skip


async def frontend_settings(context: AppContext, _request: Request) -> Response:
    """Return the settings of LibreTranslate's web page."""
    translators = context.models.translators
    codes = _languages(translators[0]) if translators else UNNAMED
    source, target = ({"code": code, "name": language_name(code)} for code in codes)
    needs_key = context.settings.api_key is not None
    return json_response({
        "apiKeys": needs_key,
        "charLimit": MAX_CHARACTERS,
        "filesTranslation": False,
        "frontendTimeout": 500,
        "keyRequired": needs_key,
        "language": {"source": source, "target": target},
        "suggestions": False,
        "supportedFilesFormat": [],
        "alternativesLimit": MAX_N_BEST - 1,
    })  # fmt: skip


ENDPOINTS = (
    Endpoint(
        "POST", "/translate", "LibreTranslate: translate a text or a list of texts", translate,
        body=schemas.LibreTranslateRequest, response=schemas.LibreTranslateResponse, is_form=True,
        statuses=(429,),
    ),
    Endpoint(
        "POST", "/detect", "LibreTranslate: detect the language of a text by its script",
        detect, body=schemas.DetectRequest, response=schemas.DetectedLanguage, is_list=True,
        is_form=True,
    ),
    Endpoint(
        "GET", "/languages", "LibreTranslate: supported languages", languages,
        response=schemas.Language, is_list=True, is_public=True,
    ),
    Endpoint(
        "GET", "/frontend/settings", "LibreTranslate: settings of its web page",
        frontend_settings, is_public=True,
    ),
)  # fmt: skip
