"""Texts of an HTML document, for LibreTranslate's format "html".

Tags, comments, scripts and styles are kept unchanged; the texts between them are translated.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

# A tag ends at the first > outside a quoted value. Each branch is linear: possessive quantifiers
# (*+) do not backtrack, and a quote that is never closed is searched for once.
MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)"
    r"|<[a-z/!?](?:=\s*+(?:\"[^\"]*+\"|'[^']*+')|[^>])*+(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)


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
