"""The table as one HTML file, without scripts or requests, for light and dark screens.

Names and text from files are escaped; the page's Content-Security-Policy allows its own
style, by its hash, and nothing else.
"""

import html
import math
import unicodedata
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from polyhead.compare.results import ComparisonTable
from polyhead.compare.table import (
    HEADLINE,
    best_row,
    cells,
    columns,
    heading,
    in_words,
    lead,
    notes,
    power_of_ten,
    score_in_words,
    title_of,
)
from polyhead.render.html import page
from polyhead.render.svg import Frame, Point, path, round_ticks, svg, text

WIDTH, HEIGHT = 720, 380
ROOM = 190  # on the right, for names
COLOURS, OTHER = 12, 12  # of systems, by their rows; and of what is in no row of ours
LINE = 15  # between two names
BETWEEN = ((1.0,), (1.0, 2.0, 5.0), range(1, 10), [half / 2 for half in range(2, 20)])  # two powers
LONGEST = 28  # letters that fit there; Korean ones are twice as wide


def render(table: ComparisonTable, language: str = "en") -> str:
    """Return the whole page in one language."""
    style = files("polyhead.compare").joinpath("table.css").read_text(encoding="utf-8")
    title = heading(table, language)
    listed = "".join(f"<li>{_code(note)}</li>" for note in notes(table, language))
    pictures = "".join(
        f"<figure><h2>{html.escape(name)}</h2>{drawn}</figure>"
        for name, drawn in charts(table, language)
        if drawn
    )
    body = (
        f"<main>\n<h1>{html.escape(title)}</h1>\n"
        f"<p class='lead'>{html.escape(lead(table, language))}</p>\n"
        f"<div class='wide'>{_table(table, language)}</div>\n"
        f"<div class='pictures'>{pictures}</div>\n<ul class='notes'>{listed}</ul>\n</main>"
    )
    return page(body, title=title, style=style, language=language)


def _table(table: ComparisonTable, language: str) -> str:
    heads = "".join(
        f"<th scope='col'>{html.escape(name)}</th>" for name in columns(table, language)
    )
    top, lines = best_row(table), []
    for number, row in enumerate(table.rows):
        first, *rest = cells(table, row, language)
        mark = f"<i class='mark c{number % COLOURS}'></i>"
        kind = " class='best'" if row is top else ""
        name = _two_lines(*first.rpartition(" (")[::2]) if row.paper else html.escape(first)
        body = "".join(f"<td>{_two_lines(*cell.partition(' (')[::2])}</td>" for cell in rest)
        lines.append(f"<tr{kind}><th scope='row'>{mark}<span>{name}</span></th>{body}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _two_lines(above: str, below: str) -> str:
    """Put the second text below the first, in small letters."""
    small = f"<small>{html.escape(below.removesuffix(')'))}</small>" if below else ""
    return html.escape(above) + small


# Charts


def charts(table: ComparisonTable, language: str) -> list[tuple[str, str]]:
    """Return titled charts: quality against cost, learning curves, and the paper's own."""
    name = HEADLINE[table.metric]
    ours = [
        (
            title_of(row, language),
            row.training.flops_measured,
            row.scores["greedy"][name].mean,
            i % COLOURS,
        )
        for i, row in enumerate(table.rows)
    ]
    colours = {row.published: i % COLOURS for i, row in enumerate(table.rows) if row.published}
    x_name, y_name = in_words("training FLOPs", language), score_in_words(name, language)
    drawn = [(in_words("quality against cost", language), scatter(ours, x_name, y_name))]
    drawn.append((in_words("learning curves", language), curves(table, language)))
    for pair in ("en_de", "en_fr"):
        paper = [
            (name, cost, bleu, colours.get(key, OTHER))
            for key, (name, cost, bleu) in _of_pair(table, pair).items()
            if cost and bleu
        ]
        title = in_words("paper chart", language).format(pair=pair.upper().replace("_", "-"))
        drawn.append((title, scatter(paper, x_name, "BLEU")))
    return drawn


def _of_pair(
    table: ComparisonTable, pair: str
) -> dict[str, tuple[str, float | None, float | None]]:
    """Return name, cost and BLEU of the paper's systems for one pair of languages."""
    if pair == "en_de":
        return {key: (row.name, row.cost_en_de, row.en_de) for key, row in table.paper.items()}
    return {key: (row.name, row.cost_en_fr, row.en_fr) for key, row in table.paper.items()}


Dot = tuple[str, float, float, int]  # name, x, y, colour


def scatter(dots: Sequence[Dot], x_name: str, y_name: str) -> str:
    """Draw named dots over a logarithmic axis."""
    usable = [dot for dot in dots if dot[1] > 0]
    if not usable:
        return ""
    logs = [math.log10(dot[1]) for dot in usable]
    low, high = min(logs) - 0.15, max(logs) + 0.15
    frame = _frame((low, high), _padded([dot[2] for dot in usable]))
    parts = [frame.axes(powers(low, high), round_ticks(*frame.y)), *_names_of_axes(x_name, y_name)]
    ends = []
    for name, x, y, colour in usable:
        point = Point(math.log10(x), y)
        parts.append(frame.dot(point, f"dot c{colour}", radius=5))
        ends.append((name, frame.at(point), colour))
    return _picture(f"{y_name} / {x_name}", [*parts, *_labels(ends)])


def curves(table: ComparisonTable, language: str) -> str:
    """Draw the validation loss of every system's first seed over the share of the budget."""
    lines = [
        (
            title_of(row, language),
            [(point.share, point.loss) for point in row.curves[0] if point.loss],
            number % COLOURS,
        )
        for number, row in enumerate(table.rows)
        if row.curves and row.curves[0]
    ]
    values = [y for _, points, _ in lines for _, y in points]
    if not values:
        return ""
    frame = _frame((0.0, 1.0), _padded(values))
    shares = {share: f"{share:.0%}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}
    names = in_words("share", language), in_words("validation loss", language)
    parts, ends = [frame.axes(shares, round_ticks(*frame.y)), *_names_of_axes(*names)], []
    for name, points, colour in lines:
        parts.append(frame.line([Point(x, y) for x, y in points], f"line c{colour}"))
        ends.append((name, frame.at(Point(*points[-1])), colour))
    return _picture(f"{names[1]} / {names[0]}", [*parts, *_labels(ends)])


def _frame(x: tuple[float, float], y: tuple[float, float]) -> Frame:
    return Frame(52, 30, WIDTH - 52 - ROOM, HEIGHT - 84, x, y)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """Return a non-empty range with a margin around the values."""
    low, high = min(values), max(values)
    room = max(0.08 * (high - low), 0.02 * abs(high), 1e-3)
    return low - room, high + room


def powers(low: float, high: float) -> dict[Any, str]:
    """Return ticks at powers of ten; where there are few, with numbers between them."""
    ticks: dict[Any, str] = {}
    for factors in BETWEEN:
        numbers = [
            factor * 10.0**power
            for power in range(math.floor(low), math.ceil(high) + 1)
            for factor in factors
        ]
        inside = [number for number in numbers if low <= math.log10(number) <= high]
        ticks = {math.log10(number): _power(number) for number in inside}
        if len(ticks) >= 3:
            break
    return ticks


def _power(number: float) -> str:
    """Write a number like 1e11 or 1.5e11."""
    return power_of_ten(number, 1).replace(".0e", "e")


def _names_of_axes(x: str, y: str) -> list[str]:
    return [text(8, 16, y, "label"), text((WIDTH - ROOM) / 2, HEIGHT - 14, x, "label middle")]


def _labels(ends: Sequence[tuple[str, Point, int]]) -> list[str]:
    """Draw names in a column on the right, ordered by height, with lines to their points."""
    placed, y, parts = sorted(ends, key=lambda end: end[1].y), 0.0, []
    lowest = HEIGHT - 40 - LINE * len(placed)
    for number, (name, at, colour) in enumerate(placed):
        y = max(y + LINE, min(at.y, lowest + LINE * number))
        x = WIDTH - ROOM + 14
        parts.append(path([Point(at.x + 6, at.y), Point(x - 4, y)], f"leader c{colour}"))
        parts.append(text(x, y + 4, shortened(name), "name"))
    return parts


def shortened(name: str) -> str:
    """Shorten a name to fit beside a chart, keeping the text after the last comma."""
    if width(name) <= LONGEST:
        return name
    before, comma, behind = name.rpartition(", ")
    room = max(4, LONGEST - width(comma + behind))
    while width(before) > room:
        before = before[:-1]
    return f"{before.rstrip(' (+')}…{comma}{behind}"


def width(name: str) -> int:
    """Return the width in narrow letters."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)


def _picture(title: str, parts: Sequence[str]) -> str:
    return svg(HEIGHT, title, "", parts, width=WIDTH)


def _code(note: str) -> str:
    """Return a note as HTML, with its `code` marked."""
    pieces = html.escape(note).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
