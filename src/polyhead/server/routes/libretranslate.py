"""The routes of LibreTranslate, so that its clients work unchanged.

Only the names and shapes are theirs. Errors are {"error": …}; the key may stand in the body.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from polyhead.pipelines.describe import language_name
from polyhead.server import answer_schemas as answering
from polyhead.server import request_schemas as asking
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.errors import HTTPError, answer
from polyhead.server.html_segments import parts_of, put_together
from polyhead.server.language_detection import detect
from polyhead.server.registry import ServedModel
from polyhead.server.request_parsing import count_characters, read_either
from polyhead.server.routes.translate import translated
from polyhead.server.security import check_key, given_key
from polyhead.server.settings import MAX_CHARACTERS, MAX_N_BEST

SOURCE, TARGET = "source", "target"  # codes for languages that nobody named


async def translate(desk: AppContext, request: Request) -> Response:
    """Translate a text, or a list of them."""
    asked = await read_either(request, asking.LibreTranslate)
    _check(desk, request, asked.api_key)
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    documents = [parts_of(text, asked.format == "html") for text in texts]
    flat = [text for document in documents for text in document.texts]
    count_characters(flat)  # before they are looked at
    book, confidence = _choose(desk, asked.source, asked.target, flat)
    n_best = asked.alternatives + 1
    _, found = await translated(desk, request, book, flat, {"n_best": n_best})
    waiting = iter(found)
    whole: list[list[str]] = []
    for document in documents:
        best = [next(waiting) for _ in document.texts]
        count = min((len(one) for one in best), default=1)
        whole.append([put_together(document, [one[n].text for one in best]) for n in range(count)])
    content: dict[str, Any] = {"translatedText": [one[0] for one in whole]}
    if asked.alternatives:
        content["alternatives"] = [one[1:] for one in whole]
    if asked.source == "auto":
        seen = {"confidence": confidence, "language": _codes(book)[0]}
        content["detectedLanguage"] = [seen for _ in whole]
    if isinstance(asked.q, str):
        content = {name: values[0] for name, values in content.items()}
    return answer(content)


def _choose(
    desk: AppContext, source: str, target: str, texts: Sequence[str]
) -> tuple[ServedModel, float]:
    """The model, and how sure it is that the texts are in its language (in percent).

    "auto" takes, of the models for the target, the one whose language the texts seem to be in.
    """
    known = desk.shelf.translators
    if not known:
        raise HTTPError(400, "no model here translates")
    if source != "auto" and source not in {_codes(book)[0] for book in known}:
        raise HTTPError(400, "the source language is not supported; see /languages", field="source")
    fitting = {_codes(book)[0]: book for book in reversed(known) if _codes(book)[1] == target}
    if source != "auto" and source in fitting:
        return fitting[source], 100.0
    if source != "auto" or not fitting:
        raise HTTPError(400, "the target language is not supported; see /languages", field="target")
    likeliest = (one for one in detect(texts, _all_codes(desk)) if one[0] in fitting)
    code, confidence = next(likeliest)
    return fitting[code], confidence


async def detected(desk: AppContext, request: Request) -> Response:
    """The languages of our models that a text may be in, likeliest first."""
    asked = await read_either(request, asking.LibreDetect)
    _check(desk, request, asked.api_key)
    codes = _all_codes(desk)
    if not codes:
        raise HTTPError(400, "no model here translates")
    ranked = await desk.prepare(lambda: detect([asked.q], codes), len(asked.q))
    found = [one for one in ranked if one[1] > 0] or ranked[:1]
    return answer([{"confidence": share, "language": code} for code, share in found])


def _check(desk: AppContext, request: Request, given: str | None) -> None:
    """The key, which may stand in the body."""
    if desk.settings.api_key is not None:
        check_key(desk.settings.api_key, given_key(request.headers) or given)


def _all_codes(desk: AppContext) -> list[str]:
    """The languages that are read, then those that are written."""
    pairs = [_codes(book) for book in desk.shelf.translators]
    return list(dict.fromkeys([*(pair[0] for pair in pairs), *(pair[1] for pair in pairs)]))


def _codes(book: ServedModel) -> tuple[str, str]:
    return book.about.source_language or SOURCE, book.about.target_language or TARGET


async def languages(desk: AppContext, _request: Request) -> Response:
    """Every language with those that it is translated into."""
    targets: dict[str, list[str]] = {}
    for book in desk.shelf.translators:
        source, target = _codes(book)
        targets.setdefault(source, [])
        targets.setdefault(target, [])
        if target not in targets[source]:
            targets[source].append(target)
    return answer(
        [
            {"code": code, "name": language_name(code), "targets": reached}
            for code, reached in targets.items()
        ]
    )


async def frontend_settings(desk: AppContext, _request: Request) -> Response:
    """What LibreTranslate's own page asks for."""
    first = desk.shelf.translators[0] if desk.shelf.translators else None
    source, target = _codes(first) if first else (SOURCE, TARGET)
    return answer(
        {
            "apiKeys": desk.settings.api_key is not None,
            "charLimit": MAX_CHARACTERS,
            "filesTranslation": False,
            "frontendTimeout": 500,
            "keyRequired": desk.settings.api_key is not None,
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": [],
            "alternativesLimit": MAX_N_BEST - 1,
        }
    )


ENDPOINTS = (
    Endpoint(
        "POST", "/translate", "LibreTranslate: translate a text, or a list of them", translate,
        takes=asking.LibreTranslate, gives=answering.LibreTranslated, form=True,
        refuses=(429, 503),
    ),
    Endpoint(
        "POST", "/detect", "LibreTranslate: which language a text may be in, by its script",
        detected, takes=asking.LibreDetect, gives=answering.Detected, many=True, form=True,
    ),
    Endpoint(
        "GET", "/languages", "LibreTranslate: the languages", languages,
        gives=answering.Language, many=True, public=True,
    ),
    Endpoint(
        "GET", "/frontend/settings", "LibreTranslate: what its page asks for", frontend_settings,
        public=True,
    ),
)  # fmt: skip
