"""Curves as a picture: one or more panels, in SVG, written by hand.

Either axis may be logarithmic. With both of them so, a power law is a line, and its exponent the
slope.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from polyhead.render.svg import FONTS, GRID, INK, PALETTE, SOFT

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 420, 300, 62, 34, 46, 18
TITLE, LEGEND_LINE = 30, 18

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Some curves over one axis; values on a logarithmic axis must be positive."""

    title: str
    x: str
    curves: Mapping[str, Points]
    logarithmic: bool = False  # the upright axis; else it goes from 0 to 1
    logarithmic_x: bool = False
    tick: Callable[[float], str] = "{:g}".format  # how a value on the upright axis is written


def draw(panels: Sequence[Panel], title: str = "", columns: int = 0) -> str:
    """All panels, each with its own legend below it, in rows of so many columns (0: one row)."""
    columns = columns or len(panels)
    lines = max(len(panel.curves) for panel in panels)
    above, high = TITLE if title else 0, HEIGHT + 10 + LEGEND_LINE * lines
    width, height = WIDTH * columns, above + high * math.ceil(len(panels) / columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="{FONTS}" font-size="12" role="img">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    if title:
        style = f'fill="{INK}" font-size="15" font-weight="600"'
        parts.append(f'<text x="{LEFT}" y="24" {style}>{escape(title)}</text>')
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    for number, panel in enumerate(panels):
        x, y = WIDTH * (number % columns), above + high * (number // columns)
        drawn = _panel(panel, colours) + _legend(panel, colours)
        parts.append(f'<g transform="translate({x} {y})">{drawn}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _legend(panel: Panel, colours: Mapping[str, str]) -> str:
    parts = []
    for row, name in enumerate(panel.curves):
        y = HEIGHT + 10 + row * LEGEND_LINE
        parts.append(f'<path d="M{LEFT} {y}h22" stroke="{colours[name]}" stroke-width="2.5"/>')
        parts.append(f'<text x="{LEFT + 28}" y="{y + 4}" fill="{INK}">{escape(name)}</text>')
    return "".join(parts)


def _panel(panel: Panel, colours: Mapping[str, str]) -> str:
    points = [point for curve in panel.curves.values() for point in curve]
    sizes = sorted({x for x, _ in points})
    ticks = _decades([y for _, y in points]) if panel.logarithmic else [0, 0.25, 0.5, 0.75, 1]
    along = _share(sizes[0], sizes[-1], logarithmic=panel.logarithmic_x)
    up = _share(ticks[0], ticks[-1], logarithmic=panel.logarithmic)

    def across(x: float) -> float:
        return LEFT + along(x) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - up(y) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text x="{LEFT}" y="20" fill="{INK}" font-weight="600">{escape(panel.title)}</text>']
    for tick in ticks:
        y = down(tick)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 6, y + 4, panel.tick(tick), "end"))
    for x in sizes:
        parts.append(_text(across(x), HEIGHT - BOTTOM + 16, f"{x:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, panel.x, "middle"))
    for name, curve in panel.curves.items():
        line = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in curve)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colours[name]}" stroke-width="2.5" '
            f'stroke-linejoin="round"><title>{escape(name)}</title></polyline>'
        )
    return "".join(parts)


def _share(low: float, high: float, *, logarithmic: bool) -> Callable[[float], float]:
    """Return a function from values to 0 … 1 between `low` and `high`."""
    if logarithmic:
        return lambda value: math.log(value / low) / (math.log(high / low) or 1)
    return lambda value: (value - low) / ((high - low) or 1)


def _decades(values: Sequence[float]) -> list[float]:
    """Powers of ten around all values, at most six or so of them."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    step = math.ceil((high - low) / 6)
    return [10.0**n for n in range(high, low - step, -step)][::-1]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{SOFT}">{escape(words)}</text>'
