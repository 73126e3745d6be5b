"""Line charts in one or more panels, as an SVG file.

Either axis may be logarithmic. With both of them so, a power law is a line, and its exponent the
slope.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from polyhead.render.svg import GRID, PALETTE, SOFT, Frame, Point, document, escape_xml, label

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 420, 300, 62, 34, 46, 18
TITLE, LEGEND_LINE = 30, 18

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Panel:
    """Curves over one axis; values on a logarithmic axis must be positive."""

    title: str
    x: str
    curves: Mapping[str, Points]
    logarithmic: bool = False  # the y axis; otherwise it goes from 0 to 1
    logarithmic_x: bool = False
    tick: Callable[[float], str] = "{:g}".format  # formats a value of the y axis


def draw(panels: Sequence[Panel], title: str = "", columns: int = 0) -> str:
    """Draw all panels, each with its own legend below it, in rows of `columns` (0: one row)."""
    columns = columns or len(panels)
    top = TITLE if title else 0
    panel_height = HEIGHT + 10 + LEGEND_LINE * max(len(panel.curves) for panel in panels)
    height = top + panel_height * math.ceil(len(panels) / columns)
    parts = [label(LEFT, 24, title, size=15, bold=True)] if title else []
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    colours = {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}
    for number, panel in enumerate(panels):
        x, y = WIDTH * (number % columns), top + panel_height * (number // columns)
        content = _panel(panel, colours) + _legend(panel, colours)
        parts.append(f'<g transform="translate({x} {y})">{content}</g>')
    return document(title, WIDTH * columns, height, parts)


def _legend(panel: Panel, colours: Mapping[str, str]) -> str:
    parts = []
    for row, name in enumerate(panel.curves):
        y = HEIGHT + 10 + row * LEGEND_LINE
        parts.append(f'<path d="M{LEFT} {y}h22" stroke="{colours[name]}" stroke-width="2.5"/>')
        parts.append(label(LEFT + 28, y + 4, name, size=12))
    return "".join(parts)


def _panel(panel: Panel, colours: Mapping[str, str]) -> str:
    points = [point for curve in panel.curves.values() for point in curve]
    sizes = sorted({x for x, _ in points})
    ticks = _decades([y for _, y in points]) if panel.logarithmic else [0, 0.25, 0.5, 0.75, 1]
    scale_x = math.log if panel.logarithmic_x else float
    scale_y = math.log if panel.logarithmic else float
    x_range, y_range = (
        (scale(values[0]), max(scale(values[-1]), scale(values[0]) + 1e-9))
        for scale, values in ((scale_x, sizes), (scale_y, ticks))
    )
    frame = Frame(LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM, x_range, y_range)

    def at(x: float, y: float) -> Point:
        return frame.at(Point(scale_x(x), scale_y(y)))

    parts = [label(LEFT, 20, panel.title, size=12, bold=True)]
    for tick in ticks:
        y = at(sizes[0], tick).y
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(_label(LEFT - 6, y + 4, panel.tick(tick), "end"))
    for x in sizes:
        parts.append(_label(at(x, ticks[0]).x, HEIGHT - BOTTOM + 16, f"{x:g}", "middle"))
    parts.append(_label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34, panel.x, "middle"))
    for name, curve in panel.curves.items():
        line = " ".join(f"{place.x:.1f},{place.y:.1f}" for place in (at(x, y) for x, y in curve))
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colours[name]}" stroke-width="2.5" '
            f'stroke-linejoin="round"><title>{escape_xml(name)}</title></polyline>'
        )
    return "".join(parts)


def _decades(values: Sequence[float]) -> list[float]:
    """Return at most seven powers of ten around all values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    step = math.ceil((high - low) / 6)
    return [10.0**n for n in range(high, low - step, -step)][::-1]


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return label(x, y, text, size=12, anchor=anchor, colour=SOFT)
