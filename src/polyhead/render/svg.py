"""SVG drawings: axes, lines, heat-maps and text, colours, and PNG files made with resvg.

There are two kinds of drawings. Those inside a page (`svg`, `text`, `box`, `path`, `Frame`) take
colours and fonts from the page's style by class names, so that they follow its light or dark
theme. Those in a file of their own (`document`, `label`, `cells`) state them as attributes.
"""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from polyhead.errors import MissingError, install_command

Length = int | float  # in units of the drawing, or of the data

WIDTH = 440  # of a drawing inside a page
HEAT_LEVELS = 40  # colours of a heat-map inside a page

# Every fifth of the 256 colours of viridis (van der Walt and Smith, CC0); linear in between.
VIRIDIS = bytes.fromhex(
    "44015446085c471063481769481d6f482475472a7a46307e453781433d844142873f48893d4e8a"
    "3a538b38598c355e8d33638d31688e2e6d8e2c718e2a768e297b8e27808e25848e23898e218e8d"
    "20928c1f978b1e9c891fa18821a58524aa8328ae802eb37c35b7793dbc7446c06f50c46a5ac864"
    "65cb5e70cf577cd25089d54895d840a2da37b0dd2fbddf26cae11fd8e219e5e419f1e51dfde725"
)
# Eight colours that are distinguishable with every kind of colour vision.
PALETTE = ("#0060c4", "#d25b27", "#05986b", "#c35d9d", "#e0a21b", "#61c1f5", "#601e7f", "#4a4f57")
MASKED, INK, SOFT, FADED, GRID = "#ececef", "#1d2129", "#5d6673", "#b9bec6", "#e4e4e8"

FONTS = (
    "system-ui, 'Apple SD Gothic Neo', 'Malgun Gothic', 'Noto Sans KR', 'Noto Sans CJK KR', "
    "NanumGothic, sans-serif"
)
HANGUL, HAN = "[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]", "[\u3040-\u30ff\u4e00-\u9fff]"
SCRIPTS = {  # the script's letters, two of them to test the fonts with, and a package with a font
    "Hangul": (HANGUL, ("가", "한"), "fonts-nanum"),
    "Chinese or Japanese": (HAN, ("一", "水"), "fonts-noto-cjk"),
    "Latin": ("[A-Za-z]", ("a", "g"), "fonts-dejavu-core"),
}
RESVG_FONTS: dict[str, Any] = {}  # font options of resvg; tests replace them
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Point(NamedTuple):
    """A point, in units of the data or of the drawing."""

    x: Length
    y: Length


class Frame(NamedTuple):
    """The plotting area of a chart, and the range of the data that it covers."""

    left: Length
    top: Length
    width: Length
    height: Length
    x: tuple[Length, Length]
    y: tuple[Length, Length]

    def at(self, point: Point) -> Point:
        """Return the place in the drawing of a point of the data."""
        across = (point.x - self.x[0]) / (self.x[1] - self.x[0])
        up = (point.y - self.y[0]) / (self.y[1] - self.y[0])
        return Point(self.left + across * self.width, self.top + (1 - up) * self.height)

    def axes(self, x: dict[Length, str], y: dict[Length, str]) -> str:
        """Draw ticks with their labels, and a grid line for each tick of y."""
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
        """Draw a line through points of the data."""
        return path([self.at(point) for point in points], kind)

    def dot(self, point: Point, kind: str, radius: Length = 4) -> str:
        """Draw a dot at a point of the data."""
        place = self.at(point)
        return f'<circle class="{kind}" cx="{_n(place.x)}" cy="{_n(place.y)}" r="{_n(radius)}"/>'


# Drawings inside a page


def svg(
    height: Length, title: str, description: str, parts: Sequence[str], width: Length = WIDTH
) -> str:
    """Return a drawing for a page; screen readers read the description, or else the title."""
    words = f"<title>{escape(title)}</title>"
    words += f"<desc>{escape(description)}</desc>" if description else ""
    label = escape(description or title, {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" role="img"'
        f' aria-label="{label}">{words}{"".join(parts)}</svg>'
    )


def text(x: Length, y: Length, content: str, kind: str = "") -> str:
    """Draw a line of text; the class names in `kind` set its look and its alignment."""
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}">{escape(content)}</text>'


def path(points: Sequence[Point], kind: str) -> str:
    """Draw a line through points of the drawing."""
    corners = "L".join(f"{_n(point.x)} {_n(point.y)}" for point in points)
    return f'<path class="{kind}" d="M{corners}"/>'


def box(x: Length, y: Length, width: Length, height: Length, kind: str) -> str:
    """Draw a rectangle."""
    size = f'width="{_n(width)}" height="{_n(height)}"'
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" {size}/>'


def heat(levels: Sequence[Sequence[Length | None]], place: Point, cell: Point) -> str:
    """Draw a heat-map of levels between 0 and 1, one path per colour; None stays empty."""
    squares: dict[int, list[str]] = defaultdict(list)
    for row, line in enumerate(levels):
        for column, level in enumerate(line):
            if level is not None:
                squares[round(level * HEAT_LEVELS)].append(f"M{column} {row}h1v1h-1z")
    paths = [
        f'<path fill="{viridis(level / HEAT_LEVELS)}" d="{"".join(cells)}"/>'
        for level, cells in sorted(squares.items())
    ]
    move = f"translate({_n(place.x)} {_n(place.y)}) scale({_n(cell.x)} {_n(cell.y)})"
    return f'<g class="cells" transform="{move}">{"".join(paths)}</g>'


def round_ticks(low: Length, high: Length) -> dict[Length, str]:
    """Return at most seven round numbers between two others, with their labels."""
    step = 10.0 ** math.floor(math.log10((high - low) / 4))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first, last = math.ceil(low / step), math.floor(high / step)
    return {n * step: f"{n * step:g}" for n in range(first, last + 1)}


def _n(number: Length) -> str:
    """Write a number with at most two decimals."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


# Drawings in a file


def document(title: str, width: Length, height: Length, parts: Sequence[str]) -> str:
    """Return an SVG file with a white background."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONTS}" role="img">'
        f'<title>{escape_xml(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def label(
    x: Length,
    y: Length,
    content: str,
    *,
    size: int = 11,
    anchor: str = "start",
    bold: bool = False,
    colour: str = INK,
) -> str:
    """Draw a line of text; `anchor` is start, middle or end."""
    aligned = f' text-anchor="{anchor}"' if anchor != "start" else ""
    weight = ' font-weight="bold"' if bold else ""
    style = f'font-size="{size}" fill="{colour}"{aligned}{weight}'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape_xml(content)}</text>'


def cells(colours: Sequence[Sequence[str]], transform: str, opacity: Length = 1) -> str:
    """Draw a matrix of squares of side 1, row by row, with this transformation."""
    squares = [
        f'<rect x="{column}" y="{row}" width="1" height="1" fill="{colour}"/>'
        for row, line in enumerate(colours)
        for column, colour in enumerate(line)
    ]
    transparent = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    group = f'<g class="cells" transform="{transform}" shape-rendering="crispEdges"{transparent}>'
    return f"{group}{''.join(squares)}</g>"


def escape_xml(content: str) -> str:
    """Escape markup, and replace characters that XML does not allow with U+FFFD."""
    return escape(NOT_XML.sub("\ufffd", content))


def viridis(weight: Length) -> str:
    """Return the colour of a weight between 0 and 1 as #rrggbb."""
    last = len(VIRIDIS) // 3 - 1
    place = min(max(weight, 0.0), 1.0) * last
    step = min(int(place), last - 1)
    low, high = VIRIDIS[3 * step : 3 * step + 3], VIRIDIS[3 * step + 3 : 3 * step + 6]
    mixed = (math.floor(a + (b - a) * (place - step) + 0.5) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def truncate(content: str, max_width: Length) -> str:
    """Shorten a text to at most `max_width` ems, ending with an ellipsis."""
    max_letters = 4 * int(max_width)  # do not measure more of a very long text
    if len(content) < max_letters and text_width(content) <= max_width:
        return content
    content = content[:max_letters]
    while text_width(content) > max_width - 1:
        content = content[:-1]
    return content + "…"


def text_width(content: str) -> float:
    """Estimate the width of a text in ems: 1 for Hangul and Han, 0.6 for other letters."""
    return sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.6 for letter in content)


def rasterize(drawing: str, scale: Length = 2) -> bytes:
    """Convert SVG to PNG with `scale` pixels per unit; raise if no font has a script's letters."""
    try:
        import resvg_py
    except ImportError:
        raise MissingError(
            f"PNG needs the package resvg-py: {install_command('png')}, or write SVG",
            "missing_package",
        ) from None
    for script, (letters, (first, second), package) in SCRIPTS.items():
        # Two letters drawn alike are both drawn as a missing glyph.
        if re.search(letters, drawing) and _draw_letter(first) == _draw_letter(second):
            raise MissingError(
                f"no installed font has {script} letters: apt install {package}", "missing_font"
            )
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, zoom=scale, **RESVG_FONTS))


def _draw_letter(letter: str) -> bytes:
    import resvg_py

    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" font-family="{FONTS}">'
    drawing = f'{frame}<text x="4" y="30" font-size="30">{letter}</text></svg>'
    return bytes(resvg_py.svg_to_bytes(svg_string=drawing, **RESVG_FONTS))
