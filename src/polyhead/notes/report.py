"""The report as one HTML file: no script, no request, both languages, light and dark.

    write_page(rows, "report.html", "ko")

Whatever the checks found is text and is escaped; the page's Content-Security-Policy allows its own
style, by its hash, and nothing else. The choice of a language and of the rows to show is made by
hidden inputs and style rules, so that the page also works where scripts are not welcome.
"""

import html
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

import torch

from polyhead.i18n import Words
from polyhead.notes import figures as drawings
from polyhead.notes import figures_reformer as drawings_reformer
from polyhead.notes.figures import Picture
from polyhead.notes.runner import (
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

PICTURES: dict[str, tuple[Callable[[], Picture], ...]] = {  # chapter → what is drawn in it
    "attention": (drawings.softmax_without_scale,),
    "masks": (drawings.causal_matrix,),
    "positions": (drawings.position_code, drawings.position_products),
    "training": (drawings.warm_up,),
    "reformer": (drawings_reformer.bucket_sorting, drawings_reformer.memory_against_depth),
}
KINDS: dict[Verdict, str] = {
    "ok": "ok",
    "note wrong": "wrong",
    "note imprecise": "vague",
    "BROKEN": "broken",
}

HEADING = Words("What the notes say, computed", "노트의 주장을 계산으로 확인하기")
LEAD = Words(
    "Every formula, number and claim of the study notes, run by the code of polyhead. Where a "
    "note is wrong, its value stands beside the true one. Open a line for the reason and for code "
    "to run.",
    "스터디 노트의 모든 수식과 숫자와 주장을 polyhead의 코드로 계산했습니다. 노트가 틀린 곳에는 "
    "노트의 값과 옳은 값을 나란히 적었습니다. 줄을 누르면 이유와 실행할 수 있는 코드가 나옵니다.",
)
ONLY = Words("Only where a note is not right", "노트가 틀리거나 부정확한 곳만")
COUNTS: dict[Verdict, Words] = {
    "ok": Words("notes right", "맞음"),
    "note wrong": Words("notes wrong", "노트 오류"),
    "note imprecise": Words("notes imprecise", "노트 부정확"),
    "BROKEN": Words("BROKEN in our code", "코드 고장"),
}
NAMES = (Words("", ""), Words("Claim", "주장"), Words("Expected", "기댓값"),
         Words("Got", "계산값"), Words("Verdict", "판정"))  # fmt: skip
NOTE, TRUE = Words("the note gives", "노트의 값"), Words("true is", "옳은 값")
CODE, TRY = Words("The code", "코드"), Words("Try it", "직접 해 보기")


def write_page(rows: Sequence[ClaimRow], path: str | Path, language: str = "en") -> Path:
    """Write the report to a file."""
    return write(render(rows, language), path)


def render(rows: Sequence[ClaimRow], language: str = "en") -> str:
    """The whole page; `language` is the one it opens in."""
    grouped = groupby(rows, key=lambda row: row.claim.chapter)
    chapters = [(chapter, list(own)) for chapter, own in grouped]
    heading = f"<h1>{_both(HEADING)}</h1><p class='lead'>{_both(LEAD)}</p>"
    seconds = f"{sum(row.seconds for row in rows):.1f}"
    parts = {
        "en": "" if language == "ko" else " checked",
        "ko": " checked" if language == "ko" else "",
        "heading": heading,
        "counts": _counts(rows),
        "overview": "".join(_squares(chapter, own) for chapter, own in chapters),
        "only": _both(ONLY),
        "chapters": "".join(_chapter(chapter, own) for chapter, own in chapters),
        "footer": f"<p>polyhead verify · {len(rows)} · {seconds} s · torch {torch.__version__}</p>",
    }
    return page(
        fill(_read("page.html"), parts),
        title="polyhead verify",
        style=base_style() + _read("style.css"),
        language="ko" if language == "ko" else "en",
    )


# The top of the page


def _counts(rows: Sequence[ClaimRow]) -> str:
    items = []
    for verdict, words in COUNTS.items():
        n = sum(row.verdict == verdict for row in rows)
        if n:
            items.append(f'<li class="{KINDS[verdict]}"><b>{n}</b>{_both(words)}</li>')
    return "".join(items)


def _squares(chapter: str, rows: Sequence[ClaimRow]) -> str:
    """A chapter in the overview: its name, and a square for each of its claims."""
    squares = "".join(
        f'<li class="{KINDS[row.verdict]}"><a href="#{_id(row)}" title="{_hint(row)}">'
        f"{html.escape(row.claim.id)}</a></li>"
        for row in rows
    )
    link = f'<a href="#{chapter}">{_both(rows[0].claim.chapter_title)}</a>'
    return f'<div><p>{link}</p><ul class="squares">{squares}</ul></div>'


def _hint(row: ClaimRow) -> str:
    """What a square is, where a pointer rests on it; both languages, for want of a choice."""
    claim = row.claim.text
    return html.escape(f"{row.claim.id}: {claim.en}\n{claim.ko}")


# Chapters


def _chapter(chapter: str, rows: Sequence[ClaimRow]) -> str:
    fine = " fine" if all(row.verdict == "ok" for row in rows) else ""
    count = f"<small>{len(rows)}</small>"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        figures = "".join(_figure(draw()) for draw in PICTURES.get(chapter, ()))
    pictures = f'<div class="pictures">{figures}</div>' if figures else ""
    names = "".join(f"<span>{_both(words)}</span>" for words in NAMES)
    table = f'<div class="names" aria-hidden="true">{names}</div>{"".join(map(_row, rows))}'
    title = f"<h2>{_both(rows[0].claim.chapter_title)}{count}</h2>"
    return (
        f'<section id="{chapter}" class="chapter{fine}">{title}'
        f'{pictures}<div class="rows">{table}</div></section>\n'
    )


def _figure(picture: Picture) -> str:
    drawn = "".join(
        f'<span class="drawing {language}">{picture.drawn.in_language(language)}</span>'
        for language in Words._fields
    )
    words = f"<figcaption>{_both(picture.caption)}</figcaption>"
    return f'<figure id="{picture.name}"><h3>{_both(picture.title)}</h3>{drawn}{words}</figure>'


def _row(row: ClaimRow) -> str:
    """A claim: one line to see, the rest to open."""
    result = row.result
    cells = (
        f'<span class="id">{html.escape(row.claim.id)}</span>'
        f'<span class="claim">{_both(row.claim.text)}</span>'
        f'<span class="expected">{_name(NAMES[2])}{_value(shortened(result.expected))}</span>'
        f'<span class="got">{_name(NAMES[3])}{_value(shortened(got_of(result)))}</span>'
        f'<span class="verdict">{_both(VERDICTS[row.verdict])}</span>'
    )
    compared = _compare(row) if row.verdict in ("note wrong", "note imprecise") else ""
    return (
        f'<details class="claim-row {KINDS[row.verdict]}" id="{_id(row)}">'
        f"<summary>{cells}{compared}</summary>{_more(row, explained=bool(compared))}</details>\n"
    )


def _compare(row: ClaimRow) -> str:
    """Where the note is not right: its value, the true one, and the reason."""
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


def _more(row: ClaimRow, *, explained: bool) -> str:
    """Formula, explanation, where the code stands, and the check as a script."""
    reason = "" if explained else f"<p>{_both(row.claim.explanation)}</p>"
    found = "".join(
        f"<li><code>{html.escape(str(place))}</code> <code>{html.escape(place.name)}</code></li>"
        for place in map(location, row.claim.code)
    )
    code = html.escape(script(row.claim))
    if shortened(row.result.expected) != row.result.expected:
        whole = f"{_both(NAMES[2])}: <code>{html.escape(row.result.expected)}</code>"
        reason += f"<p>{whole}</p>"
    return (
        f'<div class="more"><p class="formula">{html.escape(row.claim.formula)}</p>{reason}'
        f"<h3>{_both(CODE)}</h3><ul>{found}</ul><h3>{_both(TRY)}</h3><pre>{code}</pre></div>"
    )


# Words


def _both(words: Words) -> str:
    """The same in both languages, of which the page shows one."""
    return "".join(
        f'<span class="{language}" lang="{language}">'
        f"{html.escape(words.in_language(language))}</span>"
        for language in Words._fields
    )


def _name(words: Words) -> str:
    return f'<span class="name">{_both(words)}</span>'


def _value(value: str) -> str:
    """What a check found; in both languages only if that makes a difference."""
    words = Words(value, value_in_language(value, "ko"))
    return html.escape(value) if words.en == words.ko else _both(words)


def _id(row: ClaimRow) -> str:
    return html.escape(f"claim-{row.claim.id}")


def _read(name: str) -> str:
    return files("polyhead.notes").joinpath("templates", name).read_text(encoding="utf-8")
