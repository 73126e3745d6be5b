"""Drawings of attention over text for papers and slides, as SVG.

    draw_text(view, ViewOptions(kind="cross", layer=3))      # a heat-map for each head of a layer
    draw_text(view, ViewOptions(style="lines", word="school"))    # as in Figure 3 of the paper

Heat-maps are coloured with viridis from 0 to 1, so two drawings can be compared. Lines have one
colour for each head and are as opaque as the weight is large, as in "Attention Is All You Need".
"""

import math
from collections.abc import Sequence

from polyhead.errors import ConfigError
from polyhead.render import svg
from polyhead.render.svg import Length
from polyhead.viz.select import Panel, SelectedMap, ViewOptions, select_maps
from polyhead.viz.tokens import Token
from polyhead.viz.views import AttentionView

NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
TILT = 58  # degrees, of the labels above the columns
CELL, ROW, GAP, MARGIN = 16, 28, 18, 20
MAX_CELLS = 250_000  # larger drawings cannot be opened by common programs
MIN_WEIGHT = 0.01  # smaller weights have no line


def draw_text(view: AttentionView, options: ViewOptions) -> str:
    """Draw heat-maps, one for each head of all selected maps, or the lines of one layer."""
    maps = select_maps(view, options)
    if options.style == "lines":
        return _lines(view.title, maps[0])
    return _heatmaps(view.title, maps, options.log)


# Heat-maps


def _heatmaps(title: str, maps: Sequence[SelectedMap], log: bool) -> str:
    """Draw small heat-maps: a row for each layer, or four to a row if there is one layer."""
    n_cells = sum(len(selected.panels) * selected.panels[0].weights.size for selected in maps)
    check_cells(n_cells, "a kind, a layer or heads")
    parts: list[str] = []
    width, y = 0.0, float(MARGIN)
    for selected in maps:
        rows, columns = selected.rows, selected.columns
        side, (top, overhang) = _widest(rows) + 8, _tilted_size(columns)
        parts.append(svg.label(MARGIN, y + 12, _heading(selected), size=13, bold=True))
        y += 26
        per_row = 4 if len(maps) == 1 else len(selected.panels)
        for start in range(0, len(selected.panels), per_row):
            x, middle = MARGIN + side - 6, y + 18 + top + CELL / 2 + 4
            parts += [
                svg.label(x, middle + row * CELL, _label(token), anchor="end")
                for row, token in enumerate(rows)
            ]
            for place, panel in enumerate(selected.panels[start : start + per_row]):
                x = MARGIN + side + place * (len(columns) * CELL + GAP)
                parts.append(svg.label(x, y + 12, panel.name, colour=svg.SOFT))
                parts.append(_column_names(columns, x, y + 18 + top))
                parts.append(_cells(panel, x, y + 18 + top, log))
                named = x + 11 * svg.text_width(panel.name)
                width = max(width, x + len(columns) * CELL + overhang, named)
            y += 18 + top + len(rows) * CELL + GAP
        y += GAP / 2
    return svg.document(title, width + MARGIN, y, parts)


def check_cells(n_cells: int, options: str) -> None:
    """Raise `ConfigError` if a drawing has too many cells; `options` would reduce their number."""
    if n_cells > MAX_CELLS:
        message = f"{n_cells} cells: expected at most {MAX_CELLS}; select {options}"
        raise ConfigError(message, "too_many_cells")


def _heading(selected: SelectedMap) -> str:
    return f"{NAMES[selected.kind]}, layer {selected.layer}"


def _cells(panel: Panel, x: Length, y: Length, log: bool) -> str:
    """Draw a square for each weight; masked positions are grey."""
    colours = [
        [
            svg.MASKED if hidden else svg.viridis(log_scale(w) if log else w)
            for w, hidden in zip(line, unseen, strict=True)
        ]
        for line, unseen in zip(panel.weights.tolist(), panel.unseen.tolist(), strict=True)
    ]
    return svg.cells(colours, f"translate({x:g} {y:g}) scale({CELL})")


def log_scale(weight: float) -> float:
    """Map a weight from 10⁻⁴ to 1 onto 0 to 1, logarithmically."""
    return 1 + math.log10(weight) / 4 if weight > 0 else 0.0


def _column_names(tokens: Sequence[Token], x: Length, y: Length) -> str:
    return "".join(
        f'<g transform="translate({x + (column + 0.6) * CELL:g} {y - 5:g}) rotate(-{TILT})">'
        f"{svg.label(0, 0, _label(token))}</g>"
        for column, token in enumerate(tokens)
    )


# Lines


def _lines(title: str, selected: SelectedMap) -> str:
    """Draw two columns of words, with a curve for each head between highlighted words."""
    side, between, top = _widest(selected.rows, 14) + 8, 300, MARGIN + 64
    left, right = MARGIN + side, MARGIN + side + between
    n_lines = max(len(selected.rows), len(selected.columns))
    middles = [top + (line + 0.5) * ROW for line in range(n_lines)]
    parts = [svg.label(MARGIN, MARGIN + 12, _heading(selected), size=13, bold=True)]
    for tokens, highlighted, edge, anchor in (
        (selected.rows, selected.highlighted_rows, left - 8, "end"),
        (selected.columns, selected.highlighted_columns, right + 8, "start"),
    ):
        for number, token in enumerate(tokens):
            colour, y = svg.INK if number in highlighted else svg.FADED, middles[number] + 5
            parts.append(svg.label(edge, y, _label(token), size=14, anchor=anchor, colour=colour))
    n_heads = len(selected.panels)
    for place, panel in enumerate(selected.panels):
        assert isinstance(panel.head, int)
        x, colour = MARGIN + 38 * place, svg.PALETTE[(panel.head - 1) % len(svg.PALETTE)]
        square = f'<rect x="{x}" y="{MARGIN + 26}" width="12" height="12" rx="2"'
        parts.append(f'{square} fill="{colour}"/>')
        parts.append(svg.label(x + 16, MARGIN + 36, str(panel.head), colour=svg.SOFT))
        offset = (place - (n_heads - 1) / 2) * min(2.5, 0.6 * ROW / n_heads)  # all stay visible
        curves = [
            _curve((left, middles[row]), (right, middles[column] + offset), weight)
            for row in sorted(selected.highlighted_rows)
            for column, weight in enumerate(panel.weights[row].tolist())
            if weight >= MIN_WEIGHT and column in selected.highlighted_columns
        ]
        group = f'<g class="head" data-head="{panel.head}" fill="none" stroke-width="2"'
        parts.append(f'{group} stroke="{colour}">{"".join(curves)}</g>')
    width = max(right + _widest(selected.columns, 14) + 8, MARGIN + 38 * n_heads)
    return svg.document(title, width + MARGIN, top + n_lines * ROW + MARGIN, parts)


def _curve(start: tuple[Length, Length], end: tuple[Length, Length], weight: float) -> str:
    middle = (start[0] + end[0]) / 2
    bend = f"C{middle:g} {start[1]:g} {middle:g} {end[1]:g} {end[0]:g} {end[1]:g}"
    return f'<path d="M{start[0]:g} {start[1]:g}{bend}" stroke-opacity="{min(weight, 1):.4g}"/>'


# Text


def _label(token: Token) -> str:
    return svg.truncate(token.text if token.text.strip() else "␣", 9)


def _widest(tokens: Sequence[Token], size: int = 11) -> float:
    return max(size * svg.text_width(_label(token)) for token in tokens)


def _tilted_size(tokens: Sequence[Token]) -> tuple[float, float]:
    """Return the height of tilted labels, and how far they extend to the right."""
    angle = math.radians(TILT)
    return _widest(tokens) * math.sin(angle) + 14, _widest(tokens) * math.cos(angle)
