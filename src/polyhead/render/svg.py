"""Small charts as SVG: a frame with ticks, lines, bars and squares.

Colours and fonts come from the page's style by class names, so that one drawing serves light and
dark pages; only heat-maps bring their own colours. Lengths are in units of a picture that is
`WIDTH` wide, which a phone shows at about three quarters of its size.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from polyhead.viz.draw_text import viridis

Length = int | float  # in units of the picture, or of what is drawn

WIDTH = 440
LEVELS = 40  # of colour in a heat-map


class Point(NamedTuple):
    """A place in the data of a chart."""

    x: Length
    y: Length


class Frame(NamedTuple):
    """Where a chart stands in the picture, and which numbers its edges mean."""

    left: Length
    top: Length
    width: Length
    height: Length
    x: tuple[Length, Length]
    y: tuple[Length, Length]

    def at(self, point: Point) -> Point:
        """The place of these numbers in the picture."""
        across = (point.x - self.x[0]) / (self.x[1] - self.x[0])
        up = (point.y - self.y[0]) / (self.y[1] - self.y[0])
        return Point(self.left + across * self.width, self.top + (1 - up) * self.height)

    def axes(self, x: dict[Length, str], y: dict[Length, str]) -> str:
        """Ticks with their labels, and a faint line across for each tick of y."""
        parts = []
        for value, label in y.items():
            place = self.at(Point(self.x[0], value))
            end = self.left + self.width
            parts.append(f'<path class="grid" d="M{_n(place.x)} {_n(place.y)}H{_n(end)}"/>')
            parts.append(text(place.x - 7, place.y + 4, label, "tick end"))
        bottom = self.top + self.height
        for value, label in x.items():
            across = self.at(Point(value, self.y[0])).x
            parts.append(f'<path class="axis" d="M{_n(across)} {_n(bottom)}v4"/>')
            parts.append(text(across, bottom + 18, label, "tick middle"))
        line = f"M{_n(self.left)} {_n(bottom)}h{_n(self.width)}"
        return "".join(parts) + f'<path class="axis" d="{line}"/>'

    def line(self, points: Sequence[Point], kind: str) -> str:
        """A line through the points."""
        return path([self.at(point) for point in points], kind)

    def dot(self, point: Point, kind: str) -> str:
        """A dot at a point."""
        place = self.at(point)
        return f'<circle class="{kind}" cx="{_n(place.x)}" cy="{_n(place.y)}" r="4"/>'


def svg(height: Length, title: str, told: str, parts: Sequence[str]) -> str:
    """A whole picture; `told` is what it shows, for those who cannot see it."""
    words = f"<title>{escape(title)}</title><desc>{escape(told)}</desc>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_n(height)}" role="img"'
        f' aria-label="{escape(told, {chr(34): "&quot;"})}">{words}{"".join(parts)}</svg>'
    )


def text(x: Length, y: Length, content: str, kind: str = "") -> str:
    """Words at a place; `kind` says how they look and to which side they are aligned."""
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}">{escape(content)}</text>'


def path(places: Sequence[Point], kind: str) -> str:
    """A line through places of the picture."""
    corners = "L".join(f"{_n(place.x)} {_n(place.y)}" for place in places)
    return f'<path class="{kind}" d="M{corners}"/>'


def box(x: Length, y: Length, width: Length, height: Length, kind: str) -> str:
    """A rectangle."""
    size = f'width="{_n(width)}" height="{_n(height)}"'
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" {size}/>'


def heat(levels: Sequence[Sequence[Length | None]], place: Point, cell: Point) -> str:
    """A square for each level between 0 and 1; None stays empty. Equal colours share one path."""
    squares: dict[int, list[str]] = defaultdict(list)
    for row, line in enumerate(levels):
        for column, level in enumerate(line):
            if level is not None:
                squares[round(level * LEVELS)].append(f"M{column} {row}h1v1h-1z")
    paths = [
        f'<path fill="{viridis(level / LEVELS)}" d="{"".join(cells)}"/>'
        for level, cells in sorted(squares.items())
    ]
    move = f"translate({_n(place.x)} {_n(place.y)}) scale({_n(cell.x)} {_n(cell.y)})"
    return f'<g class="cells" transform="{move}">{"".join(paths)}</g>'


def _n(number: Length) -> str:
    """A number as short as a picture needs it."""
    return f"{number:.2f}".rstrip("0").rstrip(".")
