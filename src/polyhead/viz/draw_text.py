"""Pictures of attention for papers, slides and notebooks: SVG, and PNG made from the SVG.

    svg(view, kind="cross", layer=3)                        # a heat-map for each head of a layer
    svg(view, style="lines", layer=5, word="school")        # as in Figure 3 of the paper
    png(view)                                               # everything, as bytes

Heat-maps are coloured with viridis from 0 to 1, so two pictures can be compared. Lines have one
colour for each head and are as opaque as the weight is large, as in "Attention Is All You Need".
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from polyhead.errors import ConfigError, MissingError
from polyhead.viz.select import Panel, Sheet, ViewOptions, sheets
from polyhead.viz.views import AttentionView, Token

Length = int | float  # in units of the picture

# Every fifth of the 256 colours of viridis (van der Walt and Smith, CC0), straight between two.
VIRIDIS = bytes.fromhex(
    "44015446085c471063481769481d6f482475472a7a46307e453781433d844142873f48893d4e8a"
    "3a538b38598c355e8d33638d31688e2e6d8e2c718e2a768e297b8e27808e25848e23898e218e8d"
    "20928c1f978b1e9c891fa18821a58524aa8328ae802eb37c35b7793dbc7446c06f50c46a5ac864"
    "65cb5e70cf577cd25089d54895d840a2da37b0dd2fbddf26cae11fd8e219e5e419f1e51dfde725"
)
# Eight colours that stay apart for every kind of colour vision; a ninth head begins anew.
HEADS = ("#0060c4", "#d25b27", "#05986b", "#c35d9d", "#e0a21b", "#61c1f5", "#601e7f", "#4a4f57")
NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
MASKED, INK, SOFT, FADED = "#ececef", "#1d2129", "#5d6673", "#b9bec6"

FONTS = (
    "system-ui, 'Apple SD Gothic Neo', 'Malgun Gothic', 'Noto Sans KR', 'Noto Sans CJK KR', "
    "NanumGothic, sans-serif"
)
SCRIPTS = {  # letters that a font may lack, two of them to try it with, and where to get a font
    "Hangul": (
        re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]"),
        ("가", "한"),
        "fonts-nanum",
    ),
    "Chinese or Japanese": (
        re.compile("[\u3040-\u30ff\u4e00-\u9fff]"),
        ("一", "水"),
        "fonts-noto-cjk",
    ),
    "Latin": (re.compile("[A-Za-z]"), ("a", "g"), "fonts-dejavu-core"),
}
RESVG_FONTS: dict[str, Any] = {}  # the system's own; a test takes them away

NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
TILT = 58  # degrees, of the labels above the columns
CELL, ROW, GAP, MARGIN = 16, 28, 18, 20
MAX_CELLS = 250_000  # beyond this the picture is too large for any program to open
FAINTEST = 0.01  # lines below this weight cannot be seen


def svg(
    view: AttentionView,
    kind: str | None = None,
    layer: int | None = None,
    heads: Sequence[int] | str | None = None,
    word: str | int | None = None,
    style: str = "heatmap",
    merge: bool = False,
) -> str:
    """Draw heat-maps (one for each head of all that is chosen) or the lines of one layer.

    See `ViewOptions`; `heads` may also be "mean" or "max".
    """
    choice = ViewOptions(kind, layer, heads, word, style=style, merge=merge)
    return drawn(view, choice)


def drawn(view: AttentionView, choice: ViewOptions) -> str:
    """The same for a choice that may say more, such as what a page shows."""
    chosen = sheets(view, choice)
    if choice.style == "lines":
        return _lines(view.title, chosen[0])
    return _heatmaps(view.title, chosen, choice.log)


def png(
    view: AttentionView,
    kind: str | None = None,
    layer: int | None = None,
    heads: Sequence[int] | str | None = None,
    word: str | int | None = None,
    style: str = "heatmap",
    merge: bool = False,
    scale: int | float = 2,
) -> bytes:
    """The same picture as `svg`, as a PNG file with `scale` pixels for each unit."""
    return rasterise(svg(view, kind, layer, heads, word, style, merge), scale)


def rasterise(picture: str, scale: int | float = 2) -> bytes:
    """Turn an SVG into a PNG, refusing to leave out letters that no font here can draw."""
    try:
        import resvg_py
    except ImportError:
        what = "PNG needs the package resvg-py"
        raise MissingError(f"{what}: pip install 'polyhead[png]', or write SVG") from None
    for script, (letters, (one, other), package) in SCRIPTS.items():
        if letters.search(picture) and _probe(resvg_py, one) == _probe(resvg_py, other):
            raise MissingError(f"no font here has {script} letters: apt install {package}")
    drawn = resvg_py.svg_to_bytes(svg_string=picture, zoom=scale, **RESVG_FONTS)
    return bytes(drawn)


def viridis(weight: int | float) -> str:
    """The colour of a weight between 0 and 1 as #rrggbb."""
    last = len(VIRIDIS) // 3 - 1
    place = min(max(weight, 0.0), 1.0) * last
    step = min(int(place), last - 1)
    low, high = VIRIDIS[3 * step : 3 * step + 3], VIRIDIS[3 * step + 3 : 3 * step + 6]
    mixed = (math.floor(a + (b - a) * (place - step) + 0.5) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


# Heat-maps


def _heatmaps(title: str, chosen: Sequence[Sheet], log: bool) -> str:
    """Small heat-maps in rows: one row for each layer, or four to a row if there is one layer."""
    n_cells = sum(len(sheet.panels) * sheet.panels[0].weights.size for sheet in chosen)
    check_cells(n_cells, "a kind, a layer or heads")
    parts: list[str] = []
    width, y = 0.0, float(MARGIN)
    for sheet in chosen:
        rows, columns = sheet.rows, sheet.columns
        side, (top, overhang) = _widest(rows) + 8, _slanted(columns)
        parts.append(label(MARGIN, y + 12, _heading(sheet), bold=True))
        y += 26
        per_row = 4 if len(chosen) == 1 else len(sheet.panels)
        for start in range(0, len(sheet.panels), per_row):
            parts.append(_names_beside(rows, MARGIN + side, y + 18 + top))
            for place, panel in enumerate(sheet.panels[start : start + per_row]):
                x = MARGIN + side + place * (len(columns) * CELL + GAP)
                parts.append(label(x, y + 12, panel.name, colour=SOFT))
                parts.append(_names_above(columns, x, y + 18 + top))
                parts.append(_cells(panel, x, y + 18 + top, log))
                named = x + 11 * ems(panel.name)
                width = max(width, x + len(columns) * CELL + overhang, named)
            y += 18 + top + len(rows) * CELL + GAP
        y += GAP / 2
    return document(title, width + MARGIN, y, parts)


def check_cells(n_cells: int, choices: str) -> None:
    """Refuse a picture that would have too many; `choices` would make them fewer."""
    if n_cells > MAX_CELLS:
        limit = f"{n_cells} cells are too many for one picture (at most {MAX_CELLS})"
        raise ConfigError(f"{limit}; choose {choices}")


def _heading(sheet: Sheet) -> str:
    return f"{NAMES[sheet.kind]}, layer {sheet.layer}"


def _cells(panel: Panel, x: Length, y: Length, log: bool) -> str:
    """One square for each weight. What could not be seen is grey."""
    unseen = panel.unseen.tolist()
    colours = [
        [
            MASKED if hidden else viridis(scaled(w) if log else w)
            for w, hidden in zip(line, unseen[row], strict=True)
        ]
        for row, line in enumerate(panel.weights.tolist())
    ]
    return cells(colours, f"translate({x:g} {y:g}) scale({CELL})")


def cells(colours: Sequence[Sequence[str]], place: str, opacity: Length = 1) -> str:
    """A field of squares, row by row, in units of a cell; `place` is a transformation."""
    squares = [
        f'<rect x="{column}" y="{row}" width="1" height="1" fill="{colour}"/>'
        for row, line in enumerate(colours)
        for column, colour in enumerate(line)
    ]
    seen_through = f' fill-opacity="{opacity:g}"' if opacity < 1 else ""
    group = f'<g class="cells" transform="{place}" shape-rendering="crispEdges"{seen_through}>'
    return f"{group}{''.join(squares)}</g>"


def scaled(weight: float) -> float:
    """Where a weight stands on the logarithmic scale, which begins at 10⁻⁴."""
    return 1 + math.log10(weight) / 4 if weight > 0 else 0.0


def _names_beside(tokens: Sequence[Token], x: Length, y: Length) -> str:
    middle = y + CELL / 2 + 4
    return "".join(
        label(x - 6, middle + row * CELL, _short(token), end=True)
        for row, token in enumerate(tokens)
    )


def _names_above(tokens: Sequence[Token], x: Length, y: Length) -> str:
    return "".join(
        f'<g transform="translate({x + (column + 0.6) * CELL:g} {y - 5:g}) rotate(-{TILT})">'
        f"{label(0, 0, _short(token))}</g>"
        for column, token in enumerate(tokens)
    )


# Lines


def _lines(title: str, sheet: Sheet) -> str:
    """Two columns of words; a curve from each lit row to each lit column for each head."""
    side, between, top = _widest(sheet.rows, 14) + 8, 300, MARGIN + 64
    left = MARGIN + side
    right = left + between
    parts = [label(MARGIN, MARGIN + 12, _heading(sheet), bold=True)]
    for place, panel in enumerate(sheet.panels):
        x = MARGIN + 38 * place
        square = f'<rect x="{x}" y="{MARGIN + 26}" width="12" height="12" rx="2"'
        parts.append(f'{square} fill="{_colour(panel)}"/>')
        parts.append(label(x + 16, MARGIN + 36, str(panel.head), colour=SOFT))
    for tokens, lit, edge, end in (
        (sheet.rows, sheet.lit_rows, left - 8, True),
        (sheet.columns, sheet.lit_columns, right + 8, False),
    ):
        for number, token in enumerate(tokens):
            colour, y = INK if number in lit else FADED, _middle(top, number) + 5
            parts.append(label(edge, y, _short(token), size=14, end=end, colour=colour))
    for place, panel in enumerate(sheet.panels):
        apart = _apart(place, len(sheet.panels))
        curves = [
            _curve((left, _middle(top, row)), (right, _middle(top, column) + apart), weight)
            for row in sorted(sheet.lit_rows)
            for column, weight in enumerate(panel.weights[row].tolist())
            if weight >= FAINTEST and column in sheet.lit_columns
        ]
        group = f'<g class="head" data-head="{panel.head}" fill="none" stroke-width="2"'
        parts.append(f'{group} stroke="{_colour(panel)}">{"".join(curves)}</g>')
    width = max(right + _widest(sheet.columns, 14) + 8, MARGIN + 38 * len(sheet.panels))
    height = top + max(len(sheet.rows), len(sheet.columns)) * ROW
    return document(title, width + MARGIN, height + MARGIN, parts)


def _middle(top: Length, place: int) -> float:
    return top + (place + 0.5) * ROW


def _apart(place: int, count: int) -> float:
    """Heads that look at the same word end side by side: on top of each other all are grey."""
    return (place - (count - 1) / 2) * min(2.5, 0.6 * ROW / count)


def _curve(start: tuple[Length, Length], end: tuple[Length, Length], weight: float) -> str:
    middle = (start[0] + end[0]) / 2
    bend = f"C{middle:g} {start[1]:g} {middle:g} {end[1]:g} {end[0]:g} {end[1]:g}"
    opacity = f"{min(weight, 1):.4g}"
    return f'<path d="M{start[0]:g} {start[1]:g}{bend}" stroke-opacity="{opacity}"/>'


def _colour(panel: Panel) -> str:
    assert isinstance(panel.head, int)
    return HEADS[(panel.head - 1) % len(HEADS)]


# Text


def label(
    x: Length,
    y: Length,
    content: str,
    *,
    size: int = 11,
    end: bool = False,
    bold: bool = False,
    colour: str = INK,
) -> str:
    """A text of one line."""
    anchor = ' text-anchor="end"' if end else ""
    weight = ' font-weight="bold"' if bold else ""
    style = f'font-size="{13 if bold else size}" fill="{colour}"{anchor}{weight}'
    return f'<text x="{x:g}" y="{y:g}" {style}>{_clean(content)}</text>'


def document(title: str, width: Length, height: Length, parts: Sequence[str]) -> str:
    """A whole picture."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONTS}" role="img">'
        f'<title>{_clean(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _clean(text: str) -> str:
    """Text for XML: markup is escaped, and what XML cannot hold at all becomes �."""
    return escape(NOT_XML.sub("\ufffd", text))


def _short(token: Token) -> str:
    return shortened(token.text if token.text.strip() else "␣", 9)


def shortened(text: str, most: Length) -> str:
    """A text as a label of at most so many ems."""
    letters = 4 * int(most)  # more are never looked at
    if len(text) < letters and ems(text) <= most:
        return text
    text = text[:letters]
    while ems(text) > most - 1:
        text = text[:-1]
    return text + "…"


def ems(text: str) -> float:
    """About how wide a text is: Hangul and Han are square, other letters narrower."""
    return sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.6 for letter in text)


def _widest(tokens: Sequence[Token], size: int = 11) -> float:
    return max(size * ems(_short(token)) for token in tokens)


def _slanted(tokens: Sequence[Token]) -> tuple[float, float]:
    """How high the tilted labels are, and how far the last may reach to the right."""
    angle = math.radians(TILT)
    return _widest(tokens) * math.sin(angle) + 14, _widest(tokens) * math.cos(angle)


def _probe(resvg: Any, letter: str) -> bytes:
    """A picture of one letter. Two letters that look alike are both missing from the fonts."""
    text = f'<text x="4" y="30" font-size="30">{letter}</text>'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" font-family="{FONTS}">'
    return bytes(resvg.svg_to_bytes(svg_string=f"{frame}{text}</svg>", **RESVG_FONTS))
