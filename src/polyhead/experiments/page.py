"""The table as one HTML file in both languages, without requests, for light and dark screens.

Names and text from files are escaped; the page's Content-Security-Policy allows its own
style, by its hash, and nothing else.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import NamedTuple

from rich.cells import cell_len

from polyhead.experiments.results import ComparisonTable
from polyhead.experiments.table import (
    best_row,
    cells,
    first_score,
    heading,
    headline,
    in_words,
    lead,
    notes,
    power_of_ten,
    score_in_words,
    title_of,
)
from polyhead.render.html import page
from polyhead.render.svg import Frame, Length, Point, path, round_ticks, svg, text

LANGUAGES = {"en": "English", "ko": "한국어"}
WIDTH, HEIGHT = 720, 380
ROOM = 190  # on the right, for names
COLOURS, OTHER = 12, 12  # of systems, by their rows; and of what is in no row of ours
LINE = 15  # between two names
BETWEEN = ((1.0,), (1.0, 2.0, 5.0), range(1, 10), [half / 2 for half in range(2, 20)])  # two powers
LONGEST = 28  # letters that fit there; Korean ones are twice as wide


def render(table: ComparisonTable, language: str = "en") -> str:
    """Return the page, which opens in this language; hidden inputs and style rules switch it."""
    style = files(__package__).joinpath("table.css").read_text(encoding="utf-8")
    inputs = "".join(
        f"<input class='away' type='radio' name='language' id='in-{name}'"
        f"{' checked' if name == language else ''}>"
        for name in LANGUAGES
    )
    body = inputs + "".join(_content(table, name) for name in LANGUAGES)
    return page(body, title=heading(table, language), style=style, language=language)


def _content(table: ComparisonTable, language: str) -> str:
    pictures = "".join(
        f"<figure><h2>{html.escape(name)}</h2>{drawn}</figure>"
        for name, drawn in charts(table, language).items()
        if drawn
    )
    listed = ""
    for note in notes(table, language):
        pieces = html.escape(note).split("`")  # every second one is code
        marked = (f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
        listed += f"<li>{''.join(marked)}</li>"
    top, heads, lines = best_row(table), "", []
    for number, row in enumerate(table.rows):
        named = cells(table, row, language)
        heads = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in named)
        first, *rest = named.values()
        mark = f"<i class='mark c{number % COLOURS}'></i>"
        kind = " class='best'" if row is top else ""
        name = _two_lines(*first.rpartition(" (")[::2]) if row.paper else html.escape(first)
        body = "".join(f"<td>{_two_lines(*cell.partition(' (')[::2])}</td>" for cell in rest)
        lines.append(f"<tr{kind}><th scope='row'>{mark}<span>{name}</span></th>{body}</tr>")
    labels = "".join(f"<label for='in-{k}' lang='{k}'>{v}</label>" for k, v in LANGUAGES.items())
    return (
        f"<main class='{language}' lang='{language}'>\n<p class='switch'>{labels}</p>\n"
        f"<h1>{html.escape(heading(table, language))}</h1>\n"
        f"<p class='lead'>{html.escape(lead(table, language))}</p>\n"
        f"<div class='wide'><table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>\n"
        f"<div class='pictures'>{pictures}</div>\n<ul class='notes'>{listed}</ul>\n</main>"
    )


def _two_lines(above: str, below: str) -> str:
    """Put the second text below the first, in small letters."""
    small = f"<small>{html.escape(below.removesuffix(')'))}</small>" if below else ""
    return html.escape(above) + small


# Charts


class Series(NamedTuple):
    """A named dot, or a line through several points."""

    name: str
    points: list[Point]
    colour: int


def charts(table: ComparisonTable, language: str) -> dict[str, str]:
    """Return charts by title: quality against cost, learning curves, and the paper's own."""
    metric = headline(table)
    flops, score = in_words("training FLOPs", language), score_in_words(metric, language)
    share, loss = in_words("share", language), in_words("validation loss", language)
    every = [at for row in table.rows for curve in row.curves[:1] for at in curve]
    if is_reported := bool(every) and all(metric in at.metrics for at in every):
        loss = f"{score}, {in_words('validation', language)}"
    ours, lines, colours = [], [], {}
    for number, row in enumerate(table.rows):
        name = title_of(row if row.members else replace(row, sizes=None), language)
        colour = number % COLOURS
        colours[row.published] = colour
        quality = first_score(table, row)
        ours.append(Series(name, [Point(row.training.flops_measured, quality)], colour))
        curve = row.curves[0] if row.curves else []
        heights = [at.metrics[metric] if is_reported else at.loss for at in curve]
        points = [Point(at.share, y) for at, y in zip(curve, heights, strict=True) if y is not None]
        lines.append(Series(name, points, colour))
    drawn = {
        in_words("quality against cost", language): scatter(ours, flops, score),
        in_words("learning curves", language): chart(
            lines, share, loss, {place: f"{place:.0%}" for place in (0.0, 0.25, 0.5, 0.75, 1.0)}
        ),
    }
    for pair, values in {
        "EN-DE": [(key, row.name, row.cost_en_de, row.en_de) for key, row in table.paper.items()],
        "EN-FR": [(key, row.name, row.cost_en_fr, row.en_fr) for key, row in table.paper.items()],
    }.items():
        paper = [
            Series(name, [Point(cost, bleu)], colours.get(key, OTHER))
            for key, name, cost, bleu in values
            if cost and bleu
        ]
        title = in_words("paper chart", language).format(pair=pair)
        drawn[title] = scatter(paper, flops, "BLEU")
    return drawn


def scatter(dots: Sequence[Series], x_name: str, y_name: str) -> str:
    """Draw named dots over a logarithmic axis."""
    logs = [
        dot._replace(points=[Point(math.log10(x), y)])
        for dot in dots
        for x, y in dot.points
        if x > 0
    ]
    places = [dot.points[0].x for dot in logs] or [0.0]
    ends = min(places) - 0.15, max(places) + 0.15
    return chart(logs, x_name, y_name, powers(*ends), ends)


def powers(low: Length, high: Length) -> dict[Length, str]:
    """Return ticks at powers of ten; where there are few, with numbers between them."""
    ticks: dict[Length, str] = {}
    for factors in BETWEEN:
        ticks = {
            math.log10(number): power_of_ten(number, 1).replace(".0e", "e")
            for power in range(math.floor(low), math.ceil(high) + 1)
            for factor in factors
            if low <= math.log10(number := factor * 10.0**power) <= high
        }
        if len(ticks) >= 3:
            break
    return ticks


def chart(
    series: Sequence[Series],
    x_name: str,
    y_name: str,
    ticks: dict[Length, str],
    x: tuple[Length, Length] = (0.0, 1.0),
) -> str:
    """Draw dots and lines; their names stand in a column on the right, ordered by height."""
    series = [line for line in series if line.points]
    values = [point.y for line in series for point in line.points]
    if not values:
        return ""
    low, high = min(values), max(values)
    margin = max(0.08 * (high - low), 0.02 * abs(high), 1e-3)
    y = low - margin, high + margin
    frame = Frame(52, 30, WIDTH - 52 - ROOM, HEIGHT - 84, x, y)
    parts = [frame.axes(ticks, round_ticks(*y)), text(8, 16, y_name, "label")]
    parts.append(text((WIDTH - ROOM) / 2, HEIGHT - 14, x_name, "label middle"))
    for _, points, colour in series:
        if len(points) > 1:
            parts.append(frame.line(points, f"line c{colour}"))
        else:
            parts.append(frame.dot(points[0], f"dot c{colour}", radius=5))
    ends = [(frame.at(points[-1]), name, colour) for name, points, colour in series]
    height, lowest, left = 0.0, HEIGHT - 40 - LINE * len(ends), WIDTH - ROOM + 14
    for number, (end, name, colour) in enumerate(sorted(ends, key=lambda end: end[0].y)):
        height = max(height + LINE, min(end.y, lowest + LINE * number))
        leader = [Point(end.x + 6, end.y), Point(left - 4, height)]
        parts.append(path(leader, f"leader c{colour}"))
        parts.append(text(left, height + 4, shortened(name), "name"))
    return svg(HEIGHT, f"{y_name} / {x_name}", "", parts, width=WIDTH)


def shortened(name: str) -> str:
    """Shorten a name to fit beside a chart, keeping the text after the last comma."""
    if cell_len(name) <= LONGEST:
        return name
    before, comma, behind = name.rpartition(", ")
    room = max(4, LONGEST - cell_len(comma + behind))
    while cell_len(before) > room:
        before = before[:-1]
    return f"{before.rstrip(' (+')}…{comma}{behind}"
