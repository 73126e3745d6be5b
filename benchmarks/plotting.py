"""Curves on two logarithmic axes, as SVG: a power law is a line, and its exponent the slope."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from polyhead.inspect.drawing import FONTS, HEADS, INK, SOFT

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 300, 200, 62, 44, 34, 26  # of one panel
GRID = "#e3e5e9"
Points = Sequence[tuple[int | float, int | float]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a curve for each name, all sizes and values positive."""

    title: str
    across: str
    curves: Mapping[str, Points]
    tick: Callable[[float], str]  # how a value on the upright axis is written


def picture(title: str, panels: Sequence[Panel], columns: int = 2) -> str:
    """All panels in rows, with one legend below; a name has the same colour everywhere."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colours = {name: HEADS[place % len(HEADS)] for place, name in enumerate(names)}
    parts = [_text(LEFT, 24, title, size=15, bold=True)]
    high, wide = TOP + HEIGHT + BOTTOM, LEFT + WIDTH + GAP
    for place, panel in enumerate(panels):
        x, y = wide * (place % columns), 30 + high * (place // columns)
        parts.append(f'<g transform="translate({x} {y})">{_panel(panel, colours)}</g>')
    below = 30 + high * math.ceil(len(panels) / columns) + 18
    for place, name in enumerate(names):
        x, y = LEFT + 210 * (place % 3), below + 20 * (place // 3)
        parts.append(f'<rect x="{x}" y="{y - 9}" width="12" height="10" fill="{colours[name]}"/>')
        parts.append(_text(x + 18, y, name))
    width, height = wide * columns, below + 20 * math.ceil(len(names) / 3)
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONTS}" role="img">'
        f'<title>{escape(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _panel(panel: Panel, colours: Mapping[str, str]) -> str:
    """Axes, a line for each power of ten, and the curves."""
    points = [point for curve in panel.curves.values() for point in curve]
    across = sorted({size for size, _ in points})
    values = [value for _, value in points]
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))

    def place(size: float, value: float) -> tuple[float, float]:
        along = math.log(size / across[0]) / math.log(across[-1] / across[0])
        up = (math.log10(value) - low) / (high - low)
        return LEFT + WIDTH * along, TOP + HEIGHT * (1 - up)

    parts = [_text(LEFT, TOP - 12, panel.title, bold=True)]
    for power in range(low, high + 1):
        _, y = place(across[0], 10.0**power)
        line = f'x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}"'
        parts.append(f'<line {line} stroke="{GRID}"/>')
        parts.append(_text(LEFT - 6, y + 4, panel.tick(10.0**power), anchor="end", colour=SOFT))
    for size in across:
        x, _ = place(size, 10.0**low)
        parts.append(_text(x, TOP + HEIGHT + 16, f"{size:g}", anchor="middle", colour=SOFT))
    middle = LEFT + WIDTH / 2
    parts.append(_text(middle, TOP + HEIGHT + 30, panel.across, anchor="middle", colour=SOFT))
    for name, curve in panel.curves.items():
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in curve))
        line = f'fill="none" stroke="{colours[name]}" stroke-width="2"'
        parts.append(f'<polyline data-name="{escape(name)}" points="{path}" {line}/>')
    return "".join(parts)


def _text(
    x: float,
    y: float,
    content: str,
    *,
    size: int = 11,
    bold: bool = False,
    anchor: str = "start",
    colour: str = INK,
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    style = f'font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(content)}</text>'
