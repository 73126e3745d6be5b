"""Pictures and line charts as SVG, which show themselves in notebooks."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyhead.atomic_file import write_bytes
from polyhead.errors import ConfigError
from polyhead.render import svg
from polyhead.render.svg import FONTS, GRID, INK, PALETTE, SOFT, Frame, Length, Point, text

WIDTH, HEIGHT = 440, 240  # of one chart
STYLE = (
    f"<style>text{{font:11px {FONTS};fill:{SOFT}}}.title{{fill:{INK};font-weight:bold}}"
    f".end{{text-anchor:end}}.middle{{text-anchor:middle}}.grid{{stroke:{GRID}}}"
    f".axis{{stroke:{SOFT}}}.line{{fill:none;stroke-width:1.6}}"
    + "".join(
        f".c{n}{{stroke:{colour}}}circle.c{n},text.c{n}{{fill:{colour};stroke:none}}"
        for n, colour in enumerate(PALETTE)
    )
    + "</style>"
)

Lines = Mapping[str, Sequence[Point]]  # by name


@dataclass(frozen=True)
class Picture:
    """An SVG picture; the value of a notebook's cell shows it."""

    svg: str

    def save(self, path: str | Path) -> None:
        """Write an .svg, .html or .png file, by the suffix of its name; PNG needs resvg-py."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".svg", ".html", ".png"):
            raise ConfigError(f"{path}: the suffix must be .svg, .html or .png", "unknown_format")
        page = f'<!doctype html><meta charset="utf-8"><title>chart</title>{self._repr_html_()}'
        content = page.encode() if suffix == ".html" else self.svg.encode()
        write_bytes(Path(path), svg.rasterize(self.svg) if suffix == ".png" else content)

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        """Return an image, so that the style of the drawing stays inside it."""
        content = base64.b64encode(self.svg.encode()).decode()
        return f'<img alt="chart" src="data:image/svg+xml;base64,{content}">'


def line_charts(title: str, charts: Mapping[str, Lines], x_name: str) -> Picture:
    """Draw charts side by side; the names of the lines are written above each."""
    shown = {name: lines for name, lines in charts.items() if any(lines.values())}
    parts = [STYLE]
    for number, (name, lines) in enumerate(shown.items()):
        parts += [f'<g transform="translate({number * WIDTH} 0)">', _chart(name, lines), "</g>"]
    parts.append(text(WIDTH / 2, HEIGHT - 6, x_name, "middle") if shown else "")
    return Picture(svg.document(title, WIDTH * max(1, len(shown)), HEIGHT, parts))


def _chart(name: str, lines: Lines) -> str:
    points = [point for line in lines.values() for point in line]
    x = _range([point.x for point in points])
    y = _range([point.y for point in points], margin=0.05)
    frame = Frame(52, 34, WIDTH - 70, HEIGHT - 80, x, y)
    parts = [frame.axes(svg.round_ticks(*x), svg.round_ticks(*y)), text(52, 16, name, "title")]
    for number, (label, line) in enumerate(lines.items()):
        if len(line) > 1:
            parts.append(frame.line(line, f"line c{number}"))
        if len(line) <= 40:
            parts += [frame.dot(point, f"c{number}", 2) for point in line]
        parts.append(text(WIDTH - 18 - 90 * number, 16, label, f"end c{number}"))
    return "".join(parts)


def _range(values: Sequence[Length], margin: float = 0.0) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = margin * (high - low) if high > low else 0.5
    return low - room, high + room
