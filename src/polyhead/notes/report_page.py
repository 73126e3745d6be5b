"""The report as one HTML file in both languages, without scripts.

    write_page(rows, "report.html", "ko")

The language and the rows to show are chosen by hidden inputs and style rules.
"""

import html
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

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
from polyhead.render.html import base_style, fill, page, write

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
EXPECTED, GOT = Words("Expected", "기댓값"), Words("Got", "계산값")
COLUMNS = (Words("", ""), Words("Claim", "주장"), EXPECTED, GOT, Words("Verdict", "판정"))
NOTE, TRUE = Words("the note gives", "노트의 값"), Words("true is", "옳은 값")
CODE, TRY = Words("The code", "코드"), Words("Try it", "직접 해 보기")


def write_page(rows: Sequence[ClaimRow], path: str | Path, language: str = "en") -> Path:
    """Write the report to a file."""
    return write(render(rows, language), path)


def render(rows: Sequence[ClaimRow], language: str = "en") -> str:
    """Return the page, which opens in this language."""
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
        language="ko" if language == "ko" else "en",
    )


def _overview(rows: Sequence[ClaimRow]) -> str:
    """Return a chapter's title and a square with a tooltip for each of its claims."""
    squares = []
    for row in rows:
        text = row.claim.text
        tooltip = html.escape(f"{row.claim.id}: {text.en}\n{text.ko}")
        link = f'<a href="#{_id(row)}" title="{tooltip}">{html.escape(row.claim.id)}</a>'
        squares.append(f'<li class="{KINDS[row.verdict][0]}">{link}</li>')
    first = rows[0].claim
    title = f'<p><a href="#{first.chapter}">{_both(first.chapter_title)}</a></p>'
    return f'<div>{title}<ul class="squares">{"".join(squares)}</ul></div>'


def _chapter(rows: Sequence[ClaimRow]) -> str:
    first, fine = rows[0].claim, " fine" if all(row.verdict == "ok" for row in rows) else ""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        drawn = "".join(_figure(draw()) for draw in FIGURES.get(first.chapter, ()))
    pictures = f'<div class="pictures">{drawn}</div>' if drawn else ""
    names = "".join(f"<span>{_both(words)}</span>" for words in COLUMNS)
    return (
        f'<section id="{first.chapter}" class="chapter{fine}">'
        f"<h2>{_both(first.chapter_title)}<small>{len(rows)}</small></h2>{pictures}"
        f'<div class="rows"><div class="names" aria-hidden="true">{names}</div>'
        f"{''.join(map(_row, rows))}</div></section>\n"
    )


def _figure(figure: Figure) -> str:
    drawings = "".join(
        f'<span class="drawing {language}">{figure.drawing.in_language(language)}</span>'
        for language in Words._fields
    )
    caption = f"<figcaption>{_both(figure.caption)}</figcaption>"
    return f'<figure id="{figure.name}"><h3>{_both(figure.title)}</h3>{drawings}{caption}</figure>'


def _row(row: ClaimRow) -> str:
    """Return a claim as a line, with its details to open."""
    values = ("expected", EXPECTED, row.result.expected), ("got", GOT, got_of(row.result))
    cells = "".join(
        f'<span class="{kind}"><span class="name">{_both(name)}</span>'
        f"{_value(shortened(value))}</span>"
        for kind, name, value in values
    )
    compared = _comparison(row) if row.verdict in ("note wrong", "note imprecise") else ""
    return (
        f'<details class="claim-row {KINDS[row.verdict][0]}" id="{_id(row)}">'
        f'<summary><span class="id">{html.escape(row.claim.id)}</span>'
        f'<span class="claim">{_both(row.claim.text)}</span>{cells}'
        f'<span class="verdict">{_both(VERDICTS[row.verdict])}</span>{compared}</summary>'
        f"{_details(row, explained=bool(compared))}</details>\n"
    )


def _comparison(row: ClaimRow) -> str:
    """Return the note's value, the true one, and the reason."""
    values = ""
    if row.result.noted:
        values = (
            f'<span class="what">{_both(NOTE)}</span>'
            f"<span><s>{_value(row.result.noted)}</s></span>"
            f'<span class="what">{_both(TRUE)}</span>'
            f'<span class="true">{_value(row.result.expected)}</span>'
        )
    reason = f'<span class="why">{_both(row.claim.explanation)}</span>'
    return f'<span class="compare">{values}{reason}</span>'


def _details(row: ClaimRow, *, explained: bool) -> str:
    """Return formula, explanation, source locations and script."""
    reason = "" if explained else f"<p>{_both(row.claim.explanation)}</p>"
    if shortened(row.result.expected) != row.result.expected:
        reason += f"<p>{_both(EXPECTED)}: <code>{html.escape(row.result.expected)}</code></p>"
    locations = "".join(
        f"<li><code>{html.escape(str(place))}</code> <code>{html.escape(place.name)}</code></li>"
        for place in map(location, row.claim.code)
    )
    return (
        f'<div class="more"><p class="formula">{html.escape(row.claim.formula)}</p>{reason}'
        f"<h3>{_both(CODE)}</h3><ul>{locations}</ul>"
        f"<h3>{_both(TRY)}</h3><pre>{html.escape(script(row.claim))}</pre></div>"
    )


def _both(words: Words) -> str:
    """Return a text in both languages, of which the page shows one."""
    return "".join(
        f'<span class="{language}" lang="{language}">{html.escape(text)}</span>'
        for language, text in zip(Words._fields, words, strict=True)
    )


def _value(value: str) -> str:
    """Return a value of a result, in both languages if they differ."""
    words = Words(value, value_in_language(value, "ko"))
    return html.escape(value) if words.en == words.ko else _both(words)


def _id(row: ClaimRow) -> str:
    return html.escape(f"claim-{row.claim.id}")


def _read(name: str) -> str:
    return files("polyhead.notes").joinpath("templates", name).read_text(encoding="utf-8")
