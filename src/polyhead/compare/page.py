"""The table as one HTML file: no script, no request, light and dark.

Whatever comes from names and files is escaped; the page's Content-Security-Policy allows its own
style, by its hash, and nothing else.
"""

import html
import math
import unicodedata
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from polyhead.compare.table import (
    HEADLINE,
    best,
    cells,
    columns,
    heading,
    lead,
    notes,
    power_of_ten,
    score_in_words,
    title_of,
)
from polyhead.compare.words import in_words
from polyhead.render.html import page
from polyhead.render.svg import Frame, Point, path, round_ticks, svg, text

WIDTH, HEIGHT = 720, 380
ROOM = 190  # on the right, for names
COLOURS, OTHER = 12, 12  # of systems, by their rows; and of what is in no row of ours
LINE = 15  # between two names
BETWEEN = ((1.0,), (1.0, 2.0, 5.0), range(1, 10), [half / 2 for half in range(2, 20)])  # two powers
LONGEST = 28  # letters that fit there; Korean ones are twice as wide


def render(table: dict[str, Any], language: str = "en") -> str:
    """The whole page in one language."""
    style = files("polyhead.compare").joinpath("table.css").read_text(encoding="utf-8")
    title = heading(table, language)
    told = "".join(f"<li>{_code(note)}</li>" for note in notes(table, language))
    pictures = "".join(
        f"<figure><h2>{html.escape(name)}</h2>{drawn}</figure>"
        for name, drawn in charts(table, language)
        if drawn
    )
    body = (
        f"<main>\n<h1>{html.escape(title)}</h1>\n"
        f"<p class='lead'>{html.escape(lead(table, language))}</p>\n"
        f"<div class='wide'>{_table(table, language)}</div>\n"
        f"<div class='pictures'>{pictures}</div>\n<ul class='notes'>{told}</ul>\n</main>"
    )
    return page(body, title=title, style=style, language=language)


def _table(table: dict[str, Any], language: str) -> str:
    heads = "".join(f"<th scope='col'>{html.escape(one)}</th>" for one in columns(table, language))
    top, rows = best(table), []
    for number, one in enumerate(table["rows"]):
        first, *rest = cells(table, one, language)
        mark = f"<i class='mark c{number % COLOURS}'></i>"
        kind = " class='best'" if one is top else ""
        name = _two_lines(*first.rpartition(" (")[::2]) if one["paper"] else html.escape(first)
        body = "".join(f"<td>{_two_lines(*cell.partition(' (')[::2])}</td>" for cell in rest)
        rows.append(f"<tr{kind}><th scope='row'>{mark}<span>{name}</span></th>{body}</tr>")
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _two_lines(above: str, below: str) -> str:
    """What stands in brackets goes below, and is smaller."""
    small = f"<small>{html.escape(below.removesuffix(')'))}</small>" if below else ""
    return html.escape(above) + small


# Charts


def charts(table: dict[str, Any], language: str) -> list[tuple[str, str]]:
    """Quality against cost, learning curves, and the former in the paper, for both languages."""
    name = HEADLINE[table["metric"]]
    ours = [
        (
            title_of(one, language),
            one["training"]["flops_measured"],
            one["scores"]["greedy"][name]["mean"],
            i % COLOURS,
        )
        for i, one in enumerate(table["rows"])
    ]
    places = {
        one["published"]: i % COLOURS for i, one in enumerate(table["rows"]) if one["published"]
    }
    said, scored = in_words("training FLOPs", language), score_in_words(name, language)
    found = [(in_words("quality against cost", language), scatter(ours, said, scored))]
    found.append((in_words("learning curves", language), curves(table, language)))
    for pair in ("en_de", "en_fr"):
        paper = [
            (row["name"], row[f"cost_{pair}"], row[pair], places.get(key, OTHER))
            for key, row in table["paper"].items()
            if row[f"cost_{pair}"] and row[pair]
        ]
        told = in_words("paper chart", language).format(pair=pair.upper().replace("_", "-"))
        found.append((told, scatter(paper, said, "BLEU")))
    return found


Dot = tuple[str, float, float, int]  # name, x, y, colour


def scatter(dots: Sequence[Dot], x_name: str, y_name: str) -> str:
    """Dots with names over a logarithmic axis."""
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


def curves(table: dict[str, Any], language: str) -> str:
    """The validation loss of every system's first seed over the share of the budget."""
    lines = [
        (
            title_of(one, language),
            [(p["share"], p["loss"]) for p in one["curves"][0] if p["loss"]],
            number % COLOURS,
        )
        for number, one in enumerate(table["rows"])
        if one["curves"] and one["curves"][0]
    ]
    values = [y for _, points, _ in lines for _, y in points]
    if not values:
        return ""
    frame = _frame((0.0, 1.0), _padded(values))
    shares = {share: f"{share:.0%}" for share in (0.0, 0.25, 0.5, 0.75, 1.0)}
    said = in_words("share", language), in_words("validation loss", language)
    parts, ends = [frame.axes(shares, round_ticks(*frame.y)), *_names_of_axes(*said)], []
    for name, points, colour in lines:
        parts.append(frame.line([Point(x, y) for x, y in points], f"line c{colour}"))
        ends.append((name, frame.at(Point(*points[-1])), colour))
    return _picture(f"{said[1]} / {said[0]}", [*parts, *_labels(ends)])


def _frame(x: tuple[float, float], y: tuple[float, float]) -> Frame:
    return Frame(52, 30, WIDTH - 52 - ROOM, HEIGHT - 84, x, y)


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """A range with some room, never empty."""
    low, high = min(values), max(values)
    room = max(0.08 * (high - low), 0.02 * abs(high), 1e-3)
    return low - room, high + room


def powers(low: float, high: float) -> dict[Any, str]:
    """Powers of ten; where there are few, with more and more numbers between them."""
    found: dict[Any, str] = {}
    for factors in BETWEEN:
        numbers = [
            factor * 10.0**power
            for power in range(math.floor(low), math.ceil(high) + 1)
            for factor in factors
        ]
        inside = [number for number in numbers if low <= math.log10(number) <= high]
        found = {math.log10(number): _power(number) for number in inside}
        if len(found) >= 3:
            break
    return found


def _power(number: float) -> str:
    """1e11, 1.5e11."""
    return power_of_ten(number, 1).replace(".0e", "e")


def _names_of_axes(x: str, y: str) -> list[str]:
    return [text(8, 16, y, "label"), text((WIDTH - ROOM) / 2, HEIGHT - 14, x, "label middle")]


def _labels(ends: Sequence[tuple[str, Point, int]]) -> list[str]:
    """Names in a column on the right, in the order of their heights, with lines that lead there."""
    placed, y, parts = sorted(ends, key=lambda end: end[1].y), 0.0, []
    lowest = HEIGHT - 40 - LINE * len(placed)
    for number, (name, at, colour) in enumerate(placed):
        y = max(y + LINE, min(at.y, lowest + LINE * number))
        x = WIDTH - ROOM + 14
        parts.append(path([Point(at.x + 6, at.y), Point(x - 4, y)], f"leader c{colour}"))
        parts.append(text(x, y + 4, shortened(name), "name"))
    return parts


def shortened(name: str) -> str:
    """A name that fits beside a chart: what stands behind the comma (an ensemble of 3) remains."""
    if width(name) <= LONGEST:
        return name
    before, comma, behind = name.rpartition(", ")
    room = max(4, LONGEST - width(comma + behind))
    while width(before) > room:
        before = before[:-1]
    return f"{before.rstrip(' (+')}…{comma}{behind}"


def width(name: str) -> int:
    """In narrow letters."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)


def _picture(title: str, parts: Sequence[str]) -> str:
    return svg(HEIGHT, title, "", parts, width=WIDTH)


def _code(note: str) -> str:
    """A note whose `code` is marked as such."""
    pieces = html.escape(note).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
