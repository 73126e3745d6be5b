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

import numpy as np
from jaxtyping import Float32

from polyhead.errors import ConfigError, MissingError
from polyhead.inspect.maps import AttentionMap, AttentionView, Token

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
MASKED, INK, SOFT = "#ececef", "#1d2129", "#5d6673"

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
    heads: Sequence[int] | None = None,
    word: str | int | None = None,
    style: str = "heatmap",
    merge: bool = False,
) -> str:
    """Draw heat-maps (one for each head of all that is chosen) or the lines of one layer.

    Whatever is not chosen is drawn; but lines show one layer: the last, of the last kind there is.
    Layers and heads are counted from 1, and so is `word`, the row to draw alone, if it is a number.
    """
    shown = view.merged() if merge else view
    maps = _chosen(shown, kind, layer)
    for one in maps:
        _check_heads(one, heads)
    if style == "lines":
        rows = _rows_of_word(shown.rows(maps[-1]), word)
        return _lines(shown, maps[-1], heads or _all_heads(maps[-1]), rows)
    if style != "heatmap":
        raise ConfigError(f"style {style!r}: no such style; there are heatmap and lines")
    if word is not None:
        raise ConfigError(f"word {word!r}: only lines can be drawn for one word; use style lines")
    return _heatmaps(shown, maps, heads)


def png(
    view: AttentionView,
    kind: str | None = None,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
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


# What to draw


def _chosen(view: AttentionView, kind: str | None, layer: int | None) -> list[AttentionMap]:
    if kind is not None and layer is not None:
        return [view.find(kind, layer)]
    if kind is not None and kind not in view.kinds:
        view.find(kind, 1)  # says which kinds there are
    kinds = [one for one in view.kinds if kind in (None, one)]
    maps = [
        one
        for name in kinds
        for one in sorted(view.maps, key=lambda one: one.layer)
        if one.kind == name and layer in (None, one.layer)
    ]
    if not maps and layer is not None:
        exist = ", ".join(str(number) for number in sorted({one.layer for one in view.maps}))
        raise ConfigError(f"layer {layer}: no such layer; there are {exist or 'none'}")
    if not maps:
        raise ConfigError("this view holds no attention maps, so there is nothing to draw")
    return maps


def _all_heads(one: AttentionMap) -> list[int]:
    return list(range(1, one.weights.shape[0] + 1))


def _check_heads(one: AttentionMap, heads: Sequence[int] | None) -> None:
    count = one.weights.shape[0]
    if heads is not None and not heads:
        raise ConfigError(f"heads: none chosen; choose from 1 to {count}, or leave it out for all")
    for head in heads or ():
        if not 1 <= head <= count:
            which = f"{one.kind} layer {one.layer}"
            raise ConfigError(f"head {head}: no such head; {which} has heads 1 to {count}")


def _rows_of_word(tokens: Sequence[Token], word: str | int | None) -> list[int]:
    """The rows to draw lines for. A word's text also finds the subwords that it is made of."""
    if word is None:
        return list(range(len(tokens)))
    whole: dict[int, str] = {}
    for token in tokens:
        whole[token.word] = whole.get(token.word, "") + token.text
    rows = [
        row
        for row, token in enumerate(tokens)
        if word in (row + 1, token.text, whole[token.word].strip())
    ]
    if not rows:
        exist = ", ".join(f"{row + 1} ‘{token.text}’" for row, token in enumerate(tokens))
        raise ConfigError(f"word {word!r}: no such row; there are {exist}")
    return rows


# Heat-maps


def _heatmaps(
    view: AttentionView, maps: Sequence[AttentionMap], heads: Sequence[int] | None
) -> str:
    """Small heat-maps in rows: one row for each layer, or four to a row if there is one layer."""
    cells = sum(len(heads or _all_heads(one)) * one.weights[0].size for one in maps)
    if cells > MAX_CELLS:
        limit = f"{cells} cells are too many for one picture (at most {MAX_CELLS})"
        raise ConfigError(f"{limit}; choose a kind, a layer or heads")
    parts: list[str] = []
    width, y = 0.0, float(MARGIN)
    for one in maps:
        chosen = list(heads or _all_heads(one))
        rows, columns = view.rows(one), view.columns(one)
        side, (top, overhang) = _widest(rows) + 8, _slanted(columns)
        parts.append(_text(MARGIN, y + 12, _heading(one), bold=True))
        y += 26
        per_row = 4 if len(maps) == 1 else len(chosen)
        for start in range(0, len(chosen), per_row):
            parts.append(_names_beside(rows, MARGIN + side, y + 18 + top))
            for place, head in enumerate(chosen[start : start + per_row]):
                x = MARGIN + side + place * (len(columns) * CELL + GAP)
                parts.append(_text(x, y + 12, f"head {head}", colour=SOFT))
                parts.append(_names_above(columns, x, y + 18 + top))
                parts.append(_cells(one, one.weights[head - 1], x, y + 18 + top))
                width = max(width, x + len(columns) * CELL + overhang)
            y += 18 + top + len(rows) * CELL + GAP
        y += GAP / 2
    return _document(view.title, width + MARGIN, y, parts)


def _heading(one: AttentionMap) -> str:
    return f"{NAMES[one.kind]}, layer {one.layer}"


def _cells(
    one: AttentionMap, weights: Float32[np.ndarray, "query key"], x: Length, y: Length
) -> str:
    """One square for each weight, in units of a cell. What a decoder may not see is grey."""
    squares = [
        f'<rect x="{column}" y="{row}" width="1" height="1" fill="{_fill(one, row, column, w)}"/>'
        for row, line in enumerate(weights.tolist())
        for column, w in enumerate(line)
    ]
    place = f"translate({x:g} {y:g}) scale({CELL})"
    return (
        f'<g class="cells" transform="{place}" shape-rendering="crispEdges">{"".join(squares)}</g>'
    )


def _fill(one: AttentionMap, row: int, column: int, weight: float) -> str:
    masked = one.kind == "decoder" and column > row and weight == 0
    return MASKED if masked else viridis(weight)


def _names_beside(tokens: Sequence[Token], x: Length, y: Length) -> str:
    middle = y + CELL / 2 + 4
    return "".join(
        _text(x - 6, middle + row * CELL, _short(token), end=True)
        for row, token in enumerate(tokens)
    )


def _names_above(tokens: Sequence[Token], x: Length, y: Length) -> str:
    return "".join(
        f'<g transform="translate({x + (column + 0.6) * CELL:g} {y - 5:g}) rotate(-{TILT})">'
        f"{_text(0, 0, _short(token))}</g>"
        for column, token in enumerate(tokens)
    )


# Lines


def _lines(
    view: AttentionView, one: AttentionMap, heads: Sequence[int], chosen: Sequence[int]
) -> str:
    """Two columns of words; a curve from each chosen row to each column for each head."""
    rows, columns = view.rows(one), view.columns(one)
    side, between, top = _widest(rows, 14) + 8, 300, MARGIN + 64
    left = MARGIN + side
    right = left + between
    parts = [_text(MARGIN, MARGIN + 12, _heading(one), bold=True)]
    for place, head in enumerate(heads):
        x = MARGIN + 38 * place
        square = f'<rect x="{x}" y="{MARGIN + 26}" width="12" height="12" rx="2"'
        parts.append(f'{square} fill="{_colour(head)}"/>')
        parts.append(_text(x + 16, MARGIN + 36, str(head), colour=SOFT))
    for row, token in enumerate(rows):
        colour = INK if row in chosen else "#b9bec6"
        y = _middle(top, row) + 5
        parts.append(_text(left - 8, y, _short(token), size=14, end=True, colour=colour))
    for column, token in enumerate(columns):
        parts.append(_text(right + 8, _middle(top, column) + 5, _short(token), size=14))
    for place, head in enumerate(heads):
        apart = _apart(place, len(heads))
        curves = [
            _curve((left, _middle(top, row)), (right, _middle(top, column) + apart), weight)
            for row in chosen
            for column, weight in enumerate(one.weights[head - 1, row].tolist())
            if weight >= FAINTEST
        ]
        group = f'<g class="head" data-head="{head}" fill="none" stroke-width="2"'
        parts.append(f'{group} stroke="{_colour(head)}">{"".join(curves)}</g>')
    width = max(right + _widest(columns, 14) + 8, MARGIN + 38 * len(heads))
    height = top + max(len(rows), len(columns)) * ROW
    return _document(view.title, width + MARGIN, height + MARGIN, parts)


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


def _colour(head: int) -> str:
    return HEADS[(head - 1) % len(HEADS)]


# Text


def _text(
    x: Length,
    y: Length,
    content: str,
    *,
    size: int = 11,
    end: bool = False,
    bold: bool = False,
    colour: str = INK,
) -> str:
    anchor = ' text-anchor="end"' if end else ""
    weight = ' font-weight="bold"' if bold else ""
    style = f'font-size="{13 if bold else size}" fill="{colour}"{anchor}{weight}'
    return f'<text x="{x:g}" y="{y:g}" {style}>{_clean(content)}</text>'


def _document(title: str, width: Length, height: Length, parts: Sequence[str]) -> str:
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{FONTS}" role="img">'
        f'<title>{_clean(title)}</title><rect width="100%" height="100%" fill="#ffffff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _clean(text: str) -> str:
    """Text for XML: markup is escaped, and what XML cannot hold at all becomes �."""
    return escape(NOT_XML.sub("\ufffd", text))


def _short(token: Token, most: Length = 9) -> str:
    """The token as a label of at most so many ems."""
    text = token.text if token.text.strip() else "␣"
    if len(text) < 30 and _ems(text) <= most:
        return text
    text = text[:30]
    while _ems(text) > most - 1:
        text = text[:-1]
    return text + "…"


def _ems(text: str) -> float:
    """About how wide a text is: Hangul and Han are square, other letters narrower."""
    return sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.6 for letter in text)


def _widest(tokens: Sequence[Token], size: int = 11) -> float:
    return max(size * _ems(_short(token)) for token in tokens)


def _slanted(tokens: Sequence[Token]) -> tuple[float, float]:
    """How high the tilted labels are, and how far the last may reach to the right."""
    angle = math.radians(TILT)
    return _widest(tokens) * math.sin(angle) + 14, _widest(tokens) * math.cos(angle)


def _probe(resvg: Any, letter: str) -> bytes:
    """A picture of one letter. Two letters that look alike are both missing from the fonts."""
    text = f'<text x="4" y="30" font-size="30">{letter}</text>'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40" font-family="{FONTS}">'
    return bytes(resvg.svg_to_bytes(svg_string=f"{frame}{text}</svg>", **RESVG_FONTS))
