"""The report as one HTML file in both languages; hidden inputs and style rules select its rows."""

import html
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby

import torch

from polyhead.i18n import Words
from polyhead.notes import figures
from polyhead.notes.figures import Figure
from polyhead.notes.verification import (
    VERDICTS,
    ClaimRow,
    Verdict,
    got_of,
    location,
    script,
    shortened,
    value_in_language,
)
from polyhead.render.html import base_style, fill, page

FIGURES: dict[str, tuple[Callable[[], Figure], ...]] = {  # by chapter
    "attention": (figures.softmax_without_scale,),
    "masks": (figures.causal_matrix,),
    "positions": (figures.position_code, figures.position_products),
    "training": (figures.warm_up,),
    "reformer": (figures.bucket_sorting, figures.memory_against_depth),
}
KINDS: dict[Verdict, tuple[str, Words]] = {  # style class, and label of the number of rows
    "ok": ("ok", Words("notes right", "맞음")),
    "note wrong": ("wrong", Words("notes wrong", "노트 오류")),
    "note imprecise": ("vague", Words("notes imprecise", "노트 부정확")),
    "BROKEN": ("broken", Words("BROKEN in our code", "코드 고장")),
}
EXPECTED = Words("Expected", "기댓값")


def render(rows: Sequence[ClaimRow], language: str | None = "en") -> str:
    """Return the page, which opens in this language, or in the browser's if it is None."""
    chapters = [list(own) for _, own in groupby(rows, key=lambda row: row.claim.chapter)]
    seconds = f"{sum(row.seconds for row in rows):.1f}"
    counts = [(kind, sum(row.verdict == v for row in rows)) for v, kind in KINDS.items()]
    parts = {
        "en": "" if language == "ko" else " checked",
        "ko": " checked" if language == "ko" else "",
        "counts": "".join(
            f'<li class="{style}"><b>{n}</b>{_both(label)}</li>'
            for (style, label), n in counts
            if n
        ),
        "overview": "".join(map(_overview, chapters)),
        "chapters": "".join(map(_chapter, chapters)),
        "footer": f"<p>polyhead verify · {len(rows)} · {seconds} s · torch {torch.__version__}</p>",
    }
    return page(
        fill(_read("page.html"), parts),
        title="polyhead verify",
        style=base_style() + _read("style.css"),
        script="" if language else _read("language.js"),
        language="ko" if language == "ko" else "en",
    )


def _overview(rows: Sequence[ClaimRow]) -> str:
    """Return a chapter's title and a square with a tooltip for each of its claims."""
    squares = []
    for row in rows:
        tooltip = html.escape("{}: {}\n{}".format(row.claim.id, *row.claim.text))
        id = html.escape(row.claim.id)
        link = f'<a href="#claim-{id}" title="{tooltip}">{id}</a>'
        squares.append(f'<li class="{KINDS[row.verdict][0]}">{link}</li>')
    first = rows[0].claim
    title = f'<p><a href="#{first.chapter}">{_both(first.chapter_title)}</a></p>'
    return f'<div>{title}<ul class="squares">{"".join(squares)}</ul></div>'


def _chapter(rows: Sequence[ClaimRow]) -> str:
    first = rows[0].claim
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        figures = [draw() for draw in FIGURES.get(first.chapter, ())]
    drawn = ""
    for figure in figures:
        title, caption = _both(figure.title), _both(figure.caption)
        fields = {"name": figure.name, "title": title, "caption": caption}
        drawn += fill(_read("figure.html"), fields | figure.drawing._asdict())
    fields = {
        "chapter": first.chapter,
        "fine": " fine" if all(row.verdict == "ok" for row in rows) else "",
        "title": _both(first.chapter_title),
        "n": str(len(rows)),
        "pictures": f'<div class="pictures">{drawn}</div>' if drawn else "",
        "rows": "".join(map(_row, rows)),
    }
    return fill(_read("chapter.html"), fields)


def _row(row: ClaimRow) -> str:
    """Return a claim as a line, with its details to open, and a correction if the note is wrong."""
    claim, expected = row.claim, row.result.expected
    values = {"expected": _value(expected), "noted": _value(row.result.noted)}
    noted = fill(_read("noted.html"), values) if row.result.noted else ""
    corrected = row.verdict in ("note wrong", "note imprecise")
    reason = _both(claim.explanation)
    compared = f'<span class="compare">{noted}<span class="why">{reason}</span></span>'
    more = "" if corrected else f"<p>{reason}</p>"
    if shortened(expected) != expected:
        more += f"<p>{_both(EXPECTED)}: <code>{html.escape(expected)}</code></p>"
    fields = {
        "kind": KINDS[row.verdict][0],
        "id": html.escape(claim.id),
        "claim": _both(claim.text),
        "expected": _value(shortened(expected)),
        "got": _value(shortened(got_of(row.result))),
        "verdict": _both(VERDICTS[row.verdict]),
        "compared": compared if corrected else "",
        "formula": html.escape(claim.formula),
        "reason": more,
        "locations": "".join(
            f"<li><code>{html.escape(where)}</code> <code>{html.escape(name)}</code></li>"
            for name, where in ((place.name, str(place)) for place in map(location, claim.code))
        ),
        "script": html.escape(script(claim)),
    }
    return fill(_read("row.html"), fields)


def _both(words: Words) -> str:
    return "".join(
        f'<span class="{language}" lang="{language}">{html.escape(text)}</span>'
        for language, text in zip(Words._fields, words, strict=True)
    )


def _value(value: str) -> str:
    """Return a value of a result, in both languages if they differ."""
    words = Words(value, value_in_language(value, "ko"))
    return html.escape(value) if words.en == words.ko else _both(words)


@cache
def _read(name: str) -> str:
    return files("polyhead.notes").joinpath("templates", name).read_text(encoding="utf-8")
