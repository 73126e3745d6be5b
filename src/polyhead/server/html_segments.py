"""HTML with its text taken out and put back: what LibreTranslate calls format "html".

Tags, comments, scripts and styles stay letter by letter as they are; only the text between them is
translated, piece by piece. What comes back goes to a program as JSON; nothing is shown by us.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

# A tag ends at the first > outside a quoted value. Each branch is linear: what a quantifier inside
# another has taken it keeps (*+), and a quote that is never closed is searched for once.
MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)"
    r"|<[a-z/!?](?:=\s*+(?:\"[^\"]*+\"|'[^']*+')|[^>])*+(?:>|\Z)",
    re.DOTALL | re.IGNORECASE,
)


@dataclass(frozen=True)
class Document:
    """What stays as it is, and the texts to translate between: kept, text, kept, text, …, kept."""

    kept: tuple[str, ...]
    texts: tuple[str, ...]
    is_html: bool


def parts_of(text: str, is_html: bool) -> Document:
    """A text without markup is one text."""
    if not is_html:
        return Document(("", ""), (text,), False)
    kept, texts, at = [""], [], 0
    for start, end in [*(found.span() for found in MARKUP.finditer(text)), (len(text),) * 2]:
        between = text[at:start]
        stripped = between.strip()
        if stripped:
            head = between[: len(between) - len(between.lstrip())]
            tail = between[len(between.rstrip()) :]
            kept[-1] += head
            texts.append(html.unescape(stripped))
            kept.append(tail)
        else:
            kept[-1] += between
        kept[-1] += text[start:end]
        at = end
    return Document(tuple(kept), tuple(texts), True)


def put_together(document: Document, texts: Sequence[str]) -> str:
    """The same document with other texts."""
    if not document.is_html:
        return texts[0]
    parts = [document.kept[0]]
    for text, kept in zip(texts, document.kept[1:], strict=True):
        parts += [html.escape(text, quote=False), kept]
    return "".join(parts)
