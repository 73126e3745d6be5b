"""Routes of LibreTranslate, with its names and shapes, so that its clients work unchanged.

In format "html", tags, comments, scripts and styles are kept unchanged; the texts between them are
translated. Languages are detected by script, and those of one script by py3langid.
"""

import asyncio
import html
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from babel.core import get_global
from py3langid.langid import MODEL_FILE, LanguageIdentifier
from starlette.requests import Request
from starlette.responses import Response

from polyhead.data.languages import language_name
from polyhead.pipelines.translator import Translator
from polyhead.server import libretranslate_schemas as schemas
from polyhead.server.context import AppContext, Endpoint
from polyhead.server.model_registry import ServedModel
from polyhead.server.request_parsing import count_characters, read_json_or_form
from polyhead.server.responses import HTTPError, json_response
from polyhead.server.routes.translation_routes import translate_texts
from polyhead.server.settings import MAX_CHARACTERS, MAX_N_BEST

UNNAMED = ("source", "target")  # codes of languages that the model does not name
# A tag ends at the first > outside a quoted value. Each branch is linear: possessive quantifiers
# (*+) do not backtrack, and a quote that is never closed is searched for once.
MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)"
    r"|<[a-z/!?](?:=\s*+(?:\"[^\"]*+\"|'[^']*+')|[^>])*+(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
LETTERS = {  # scripts (ISO 15924) by the first word of their letters' Unicode names
    "Arab": ("ARABIC",), "Cyrl": ("CYRILLIC",), "Deva": ("DEVANAGARI",), "Grek": ("GREEK",),
    "Hans": ("CJK",), "Hant": ("CJK",), "Hebr": ("HEBREW",),
    "Jpan": ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK"), "Kore": ("HANGUL", "CJK"),
    "Latn": ("LATIN",), "Thai": ("THAI",),
}  # fmt: skip


async def translate(context: AppContext, request: Request) -> Response:
    """Translate a text, or a list of texts."""
    body = await read_json_or_form(request, schemas.LibreTranslateRequest, context.settings.api_key)
    queries = [body.q] if isinstance(body.q, str) else body.q
    documents = [parse_document(text, is_html=body.format == "html") for text in queries]
    texts = [text for document in documents for text in document.texts]
    count_characters(texts)  # before language detection
    chosen = await asyncio.to_thread(_choose, context, body.source, body.target, documents)
    models = [c[0] for c, document in zip(chosen, documents, strict=True) for _ in document.texts]
    changes = {"n_best": body.alternatives + 1}
    _, translations = await translate_texts(context, request, models, texts, changes)
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
        content["detectedLanguage"] = [
            {"confidence": confidence, "language": language} for _, language, confidence in chosen
        ]
    if isinstance(body.q, str):
        content = {name: values[0] for name, values in content.items()}
    return json_response(content)


def _choose(
    context: AppContext, source: str, target: str, documents: Sequence["Document"]
) -> list[tuple[ServedModel[Any], str, float]]:
    """Return every document's model, source language and the confidence in it, in percent.

    For "auto", the model whose source language has the highest confidence.
    """
    translators = _translators(context)
    if source not in ("auto", *(language for language, _ in translators)):
        raise HTTPError(400, "unsupported source language; see /languages", field="source")
    by_source = {pair[0]: served for pair, served in translators.items() if pair[1] == target}
    if source not in by_source and not (source == "auto" and by_source):
        raise HTTPError(400, "unsupported target language; see /languages", field="target")
    if source != "auto":
        return [(by_source[source], source, 100.0)] * len(documents)
    codes = list(chain(*zip(*translators, strict=True)))  # sources, then targets
    ranks = [detect_language(" ".join(document.texts), codes) for document in documents]
    best = [next(pair for pair in ranked if pair[0] in by_source) for ranked in ranks]
    return [(by_source[language], language, confidence) for language, confidence in best]


async def detect(context: AppContext, request: Request) -> Response:
    """Return the models' languages that a text may be in, likeliest first."""
    body = await read_json_or_form(request, schemas.DetectRequest, context.settings.api_key)
    codes = list(chain(*zip(*_translators(context), strict=True)))  # sources, then targets
    ranked = await asyncio.to_thread(detect_language, body.q, codes)
    likely = [pair for pair in ranked if pair[1] > 0] or ranked[:1]
    return json_response([{"confidence": share, "language": code} for code, share in likely])


def _translators(
    context: AppContext, *, required: bool = True
) -> dict[tuple[str, str], ServedModel[Any]]:
    """Return the first translation model of each source and target language."""
    models: dict[tuple[str, str], ServedModel[Any]] = {}
    for served in context.models.models:
        if served.about.use == Translator.use:
            source, target = served.about.source_language, served.about.target_language
            models.setdefault((source or UNNAMED[0], target or UNNAMED[1]), served)
    if required and not models:
        raise HTTPError(400, "no translation model; see /v1/models")
    return models


@cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE)


def detect_language(text: str, codes: Sequence[str]) -> list[tuple[str, float]]:
    """Return all languages with their confidence in percent, highest first (stable).

    Every letter votes for the languages that are written in its script: 가 for Korean, 家 for
    Korean, Japanese and Chinese. Their shares are the likelihoods of the whole text by py3langid. A
    language of an unknown script has confidence 0.
    """
    plain = unicodedata.normalize("NFKC", text)  # half- and full-width letters
    counts = Counter(
        unicodedata.name(letter, "").partition(" ")[0] for letter in plain if letter.isalpha()
    )
    scores, temperature = dict(_identifier().rank(plain)), math.sqrt(len(plain) or 1)
    likely, letters, votes = get_global("likely_subtags"), {}, dict.fromkeys(codes, 0.0)
    for code in codes:
        parts = code.replace("-", "_").split("_")  # ko stands for ko-Kore-KR (CLDR)
        full = likely.get("_".join(parts)) or likely.get(parts[0]) or ""
        scripts = [part.title() for part in (*parts[1:], *full.split("_")) if len(part) == 4]
        letters[code] = LETTERS.get(scripts[0], ()) if scripts else ()
        scores.setdefault(code, scores.get(parts[0], min(scores.values())))
    for kind, count in counts.items():
        candidates = [code for code in votes if kind in letters[code]]
        highest = max((scores[code] for code in candidates), default=0.0)
        shares = [math.exp((scores[code] - highest) / temperature) for code in candidates]
        for code, share in zip(candidates, shares, strict=True):
            votes[code] += count * share / sum(shares)
    total = max(1, counts.total())
    confidences = [(code, round(100 * share / total, 1)) for code, share in votes.items()]
    return sorted(confidences, key=lambda pair: -pair[1])


@dataclass(frozen=True)
class Document:
    """Kept markup and the texts between: kept[0], texts[0], kept[1], …, kept[-1]."""

    kept: tuple[str, ...]
    texts: tuple[str, ...]
    is_html: bool


def parse_document(text: str, *, is_html: bool) -> Document:
    """Split HTML into markup and texts; plain text is a single text."""
    if not is_html:
        return Document(("", ""), (text,), False)
    kept, texts, position = [""], [], 0
    for start, end in [*(tag.span() for tag in MARKUP.finditer(text)), (len(text),) * 2]:
        between = text[position:start]
        stripped = between.strip()
        if stripped:
            head, tail = between.split(stripped, 1)
            kept[-1] += head
            texts.append(html.unescape(stripped))
            kept.append(tail)
        else:
            kept[-1] += between
        kept[-1] += text[start:end]
        position = end
    return Document(tuple(kept), tuple(texts), True)


def insert_texts(document: Document, texts: Sequence[str]) -> str:
    """Return the document with other texts."""
    if not document.is_html:
        return texts[0]
    parts = [document.kept[0]]
    for text, kept in zip(texts, document.kept[1:], strict=True):
        parts += [html.escape(text, quote=False), kept]
    return "".join(parts)


async def languages(context: AppContext, _request: Request) -> Response:
    """Return every language with its target languages."""
    targets: dict[str, list[str]] = {}
    for source, target in _translators(context, required=False):
        targets.setdefault(source, []).append(target)
        targets.setdefault(target, [])
    return json_response([
        {"code": code, "name": language_name(code), "targets": reached}
        for code, reached in targets.items()
    ])  # fmt: skip


async def frontend_settings(context: AppContext, _request: Request) -> Response:
    """Return the settings of LibreTranslate's web page."""
    codes = next(iter(_translators(context, required=False)), UNNAMED)
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
        "POST", "/detect", "LibreTranslate: detect the language of a text",
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
