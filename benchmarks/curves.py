"""Curves as a picture: one or more panels side by side, in SVG, written by hand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from polyhead.inspect.drawing import FONTS, HEADS, INK, SOFT

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 420, 300, 62, 34, 46, 18
LEGEND_LINE = 18
GRID = "#e4e4e8"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Some curves over one axis. `logarithmic` concerns y, whose values must then be positive."""

    title: str
    x: str
    curves: Mapping[str, Points]
    logarithmic: bool = False


def draw(panels: Sequence[Panel]) -> str:
    """All panels in a row, each with its own legend below it."""
    rows = max(len(panel.curves) for panel in panels)
    width, height = WIDTH * len(panels), HEIGHT + 10 + LEGEND_LINE * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="{FONTS}" font-size="12" role="img">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, panel in enumerate(panels):
        colours = {name: HEADS[i % len(HEADS)] for i, name in enumerate(panel.curves)}
        drawn = _panel(panel, colours) + _legend(colours)
        parts.append(f'<g transform="translate({number * WIDTH} 0)">{drawn}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _legend(colours: Mapping[str, str]) -> str:
    parts = []
    for row, (name, colour) in enumerate(colours.items()):
        y = HEIGHT + 10 + row * LEGEND_LINE
        parts.append(f'<path d="M{LEFT} {y}h22" stroke="{colour}" stroke-width="2.5"/>')
        parts.append(f'<text x="{LEFT + 28}" y="{y + 4}" fill="{INK}">{escape(name)}</text>')
    return "".join(parts)


def _panel(panel: Panel, colours: Mapping[str, str]) -> str:
    points = [point for curve in panel.curves.values() for point in curve]
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    ticks = _decades([y for _, y in points]) if panel.logarithmic else [0, 0.25, 0.5, 0.75, 1]

    def height_of(y: float) -> float:
        return math.log10(y) if panel.logarithmic else y

    low_y, high_y = height_of(ticks[0]), height_of(ticks[-1])

    def across(x: float) -> float:
        return LEFT + (x - low_x) / ((high_x - low_x) or 1) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        share = (height_of(y) - low_y) / (high_y - low_y)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="20" fill="{INK}" font-weight="600">{escape(panel.title)}</text>']
    for tick in ticks:
        y = down(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 6, y + 4, f"{tick:g}", "end"))
    for x in sorted({x for x, _ in points}):
        parts.append(_text(across(x), HEIGHT - BOTTOM + 16, f"{x:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, panel.x, "middle"))
    for name, curve in panel.curves.items():
        line = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in curve)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colours[name]}" stroke-width="2.5" '
            f'stroke-linejoin="round"><title>{escape(name)}</title></polyline>'
        )
    return "".join(parts)


def _decades(values: Sequence[float]) -> list[float]:
    """Powers of ten around all values, at most six or so of them."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    step = math.ceil((high - low) / 6)
    return [10.0**n for n in range(high, low - step, -step)][::-1]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{SOFT}">{escape(words)}</text>'
