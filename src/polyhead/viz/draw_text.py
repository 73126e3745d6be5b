"""Pictures of attention for papers, slides and notebooks: SVG, and PNG made from the SVG.

    svg(view, kind="cross", layer=3)                        # a heat-map for each head of a layer
    svg(view, style="lines", layer=5, word="school")        # as in Figure 3 of the paper
    png(view)                                               # everything, as bytes

Heat-maps are coloured with viridis from 0 to 1, so two pictures can be compared. Lines have one
colour for each head and are as opaque as the weight is large, as in "Attention Is All You Need".
"""

import math
from collections.abc import Sequence

from polyhead.errors import ConfigError
from polyhead.render.svg import (
    FADED,
    INK,
    MASKED,
    PALETTE,
    SOFT,
    Length,
    cells,
    document,
    label,
    rasterize,
    text_width,
    truncate,
    viridis,
)
from polyhead.viz.select import Panel, Sheet, ViewOptions, sheets
from polyhead.viz.views import AttentionView, Token

NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
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
    return rasterize(svg(view, kind, layer, heads, word, style, merge), scale)


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
        parts.append(label(MARGIN, y + 12, _heading(sheet), size=13, bold=True))
        y += 26
        per_row = 4 if len(chosen) == 1 else len(sheet.panels)
        for start in range(0, len(sheet.panels), per_row):
            parts.append(_names_beside(rows, MARGIN + side, y + 18 + top))
            for place, panel in enumerate(sheet.panels[start : start + per_row]):
                x = MARGIN + side + place * (len(columns) * CELL + GAP)
                parts.append(label(x, y + 12, panel.name, colour=SOFT))
                parts.append(_names_above(columns, x, y + 18 + top))
                parts.append(_cells(panel, x, y + 18 + top, log))
                named = x + 11 * text_width(panel.name)
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


def scaled(weight: float) -> float:
    """Where a weight stands on the logarithmic scale, which begins at 10⁻⁴."""
    return 1 + math.log10(weight) / 4 if weight > 0 else 0.0


def _names_beside(tokens: Sequence[Token], x: Length, y: Length) -> str:
    middle = y + CELL / 2 + 4
    return "".join(
        label(x - 6, middle + row * CELL, _short(token), anchor="end")
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
    parts = [label(MARGIN, MARGIN + 12, _heading(sheet), size=13, bold=True)]
    for place, panel in enumerate(sheet.panels):
        x = MARGIN + 38 * place
        square = f'<rect x="{x}" y="{MARGIN + 26}" width="12" height="12" rx="2"'
        parts.append(f'{square} fill="{_colour(panel)}"/>')
        parts.append(label(x + 16, MARGIN + 36, str(panel.head), colour=SOFT))
    for tokens, lit, edge, anchor in (
        (sheet.rows, sheet.lit_rows, left - 8, "end"),
        (sheet.columns, sheet.lit_columns, right + 8, "start"),
    ):
        for number, token in enumerate(tokens):
            colour, y = INK if number in lit else FADED, _middle(top, number) + 5
            parts.append(label(edge, y, _short(token), size=14, anchor=anchor, colour=colour))
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
    return PALETTE[(panel.head - 1) % len(PALETTE)]


# Text


def _short(token: Token) -> str:
    return truncate(token.text if token.text.strip() else "␣", 9)


def _widest(tokens: Sequence[Token], size: int = 11) -> float:
    return max(size * text_width(_short(token)) for token in tokens)


def _slanted(tokens: Sequence[Token]) -> tuple[float, float]:
    """How high the tilted labels are, and how far the last may reach to the right."""
    angle = math.radians(TILT)
    return _widest(tokens) * math.sin(angle) + 14, _widest(tokens) * math.cos(angle)
