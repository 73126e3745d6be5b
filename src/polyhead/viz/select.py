"""Selection of what a drawing shows of a view: maps, heads, rows and columns.

    ViewOptions(kind="cross", layer=3, heads="mean")           # one matrix
    ViewOptions(style="lines", word="school", heads=[1, 4])    # the lines of one word in two heads

Layers, heads, words and columns are counted from 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32

from polyhead.errors import ConfigError
from polyhead.viz.tokens import Token
from polyhead.viz.views import AttentionMap, AttentionView

STYLES = ("heatmap", "lines")
REDUCTIONS = {"mean": "mean of {} heads", "max": "largest of {} heads"}

Heads = Sequence[int] | str | None  # numbers from 1, "mean" or "max" of all; None for all


@dataclass(frozen=True)
class ViewOptions:
    """Selection of a view: everything by default, but lines show only the last layer.

    word, column: draw only the lines of this row (by number or text), or of this column.
    style: "heatmap" or "lines".
    merge: merge subwords into words.
    log: use a logarithmic colour scale from 10⁻⁴.
    special: include <s>, </s> and the like.
    """

    kind: str | None = None
    layer: int | None = None
    heads: Heads = None
    word: str | int | None = None
    column: int | None = None
    style: str = "heatmap"
    merge: bool = False
    log: bool = False
    special: bool = True

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            expected = " or ".join(STYLES)
            raise ConfigError(f"style {self.style!r}: expected {expected}", "unknown_style")
        for name, value in (("word", self.word), ("column", self.column)):
            if value is not None and self.style != "lines":
                raise ConfigError(f"{name} {value!r}: requires style lines", "requires_lines")
        if isinstance(self.heads, str) and self.style == "lines":
            raise ConfigError(f"heads {self.heads!r}: lines need numbers of heads", "unknown_head")
        check_reduction(self.heads)


@dataclass(frozen=True)
class Panel:
    """One matrix: a head, or a reduction of all heads. `unseen` are masked positions."""

    head: int | str
    weights: Float32[np.ndarray, "row column"]
    unseen: Bool[np.ndarray, "row column"]

    @property
    def name(self) -> str:
        """The title of the matrix."""
        return self.head if isinstance(self.head, str) else f"head {self.head}"


@dataclass(frozen=True)
class SelectedMap:
    """One map as it is drawn; lines are drawn only for the highlighted rows and columns."""

    kind: str
    layer: int
    rows: tuple[Token, ...]
    columns: tuple[Token, ...]
    panels: tuple[Panel, ...]
    highlighted_rows: frozenset[int]
    highlighted_columns: frozenset[int]


def select_maps(view: AttentionView, options: ViewOptions) -> list[SelectedMap]:
    """Return the maps to draw, in order."""
    shown, maps = _find_maps(view, options)
    if options.style == "lines":
        maps = maps[-1:]
    return [_select(shown, attention, options) for attention in maps]


def narrow(view: AttentionView, options: ViewOptions) -> AttentionView:
    """Return the view with only the selected maps, and their heads in the given order."""
    shown, maps = _find_maps(view, options)
    return replace(shown, maps=tuple(_select_heads(attention, options.heads) for attention in maps))


def check_reduction(heads: Heads) -> None:
    """Raise `ConfigError` for an unknown reduction of heads."""
    if isinstance(heads, str) and heads not in REDUCTIONS:
        expected = ", ".join(REDUCTIONS)
        raise ConfigError(f"heads {heads!r}: expected {expected} or numbers", "unknown_head")


def check_heads(heads: Heads, n_heads: int, owner: str) -> None:
    """Raise `ConfigError` unless all numbers are between 1 and `n_heads`."""
    if heads is not None and not heads:
        raise ConfigError(f"heads: none selected; expected numbers from 1 to {n_heads}", "no_heads")
    for head in () if heads is None or isinstance(heads, str) else heads:
        if not 1 <= head <= n_heads:
            message = f"head {head}: no such head; {owner} has heads 1 to {n_heads}"
            raise ConfigError(message, "unknown_head")


def _find_maps(
    view: AttentionView, options: ViewOptions
) -> tuple[AttentionView, list[AttentionMap]]:
    """Return the view, merged if requested, and the maps of the kind and layer."""
    shown = view.merged() if options.merge else view
    kind, layer = options.kind, options.layer
    if kind is not None and (layer is not None or kind not in view.kinds):
        maps = [shown.find(kind, 1 if layer is None else layer)]
    else:
        maps = [
            attention
            for name in shown.kinds
            for attention in sorted(shown.maps, key=lambda attention: attention.layer)
            if attention.kind == name and kind in (None, name) and layer in (None, attention.layer)
        ]
    if not maps and layer is not None:
        layers = sorted({attention.layer for attention in view.maps})
        expected = ", ".join(map(str, layers)) or "none"
        raise ConfigError(f"layer {layer}: no such layer; there are {expected}", "unknown_layer")
    if not maps:
        raise ConfigError("the view has no attention maps", "no_attention")
    for attention in maps:
        owner = f"{attention.kind} layer {attention.layer}"
        check_heads(options.heads, len(attention.weights), owner)
    return shown, maps


def _select_heads(attention: AttentionMap, heads: Heads) -> AttentionMap:
    if heads is None:
        return attention
    if isinstance(heads, str):
        (panel,) = _panels(attention, heads)
        seen = None if attention.seen is None else ~panel.unseen[None]
        return replace(attention, weights=panel.weights[None], seen=seen, buckets=None)
    places = [head - 1 for head in heads]
    return replace(
        attention,
        weights=attention.weights[places],
        seen=None if attention.seen is None else attention.seen[places],
        buckets=None if attention.buckets is None else attention.buckets[:, places],
    )


def _select(view: AttentionView, attention: AttentionMap, options: ViewOptions) -> SelectedMap:
    rows, columns = view.rows(attention), view.columns(attention)
    visible_rows, visible_columns = (
        [place for place, token in enumerate(tokens) if options.special or not token.special]
        for tokens in (rows, columns)
    )
    if not visible_rows or not visible_columns:
        raise ConfigError("there are only special tokens, which are hidden", "nothing_to_draw")
    chosen_rows, column = _rows(rows, options.word), options.column
    if column is not None and not 1 <= column <= len(columns):
        raise ConfigError(f"column {column}: expected 1 to {len(columns)}", "unknown_column")
    field = np.ix_(visible_rows, visible_columns)
    return SelectedMap(
        attention.kind,
        attention.layer,
        tuple(rows[i] for i in visible_rows),
        tuple(columns[i] for i in visible_columns),
        tuple(
            Panel(panel.head, panel.weights[field], panel.unseen[field])
            for panel in _panels(attention, options.heads)
        ),
        frozenset(place for place, i in enumerate(visible_rows) if i in chosen_rows),
        frozenset(n for n, i in enumerate(visible_columns) if column in (None, i + 1)),
    )


def _panels(attention: AttentionMap, heads: Heads) -> list[Panel]:
    n_heads = len(attention.weights)
    if attention.seen is not None:
        unseen = ~attention.seen
    else:  # the later positions, which a decoder cannot see
        later = np.triu(np.ones(attention.weights.shape[1:], dtype=np.bool_), k=1)
        unseen = (attention.weights == 0) & later & (attention.kind == "decoder")
    if isinstance(heads, str):
        weights = (np.mean if heads == "mean" else np.max)(attention.weights, axis=0)
        return [Panel(REDUCTIONS[heads].format(n_heads), weights, np.logical_and.reduce(unseen))]
    return [
        Panel(head, attention.weights[head - 1], unseen[head - 1])
        for head in heads or range(1, n_heads + 1)
    ]


def _rows(tokens: Sequence[Token], word: str | int | None) -> list[int]:
    """Return the rows of a word, given by number or text; a text also finds its subwords."""
    if word is None:
        return list(range(len(tokens)))
    words: dict[int, str] = {}
    for token in tokens:
        words[token.word] = words.get(token.word, "") + token.text
    rows = [
        row
        for row, token in enumerate(tokens)
        if word in (row + 1, token.text, words[token.word].strip())
    ]
    if not rows:
        expected = ", ".join(f"{row + 1} ‘{token.text}’" for row, token in enumerate(tokens))
        raise ConfigError(f"word {word!r}: the rows are {expected}", "unknown_word")
    return rows
