"""What a picture shows of a view: which maps, heads, rows and columns, and in what colours.

    Choice(kind="cross", layer=3, heads="mean")           # one matrix
    Choice(style="lines", word="school", heads=[1, 4])    # the lines of one word in two heads

A `Sheet` is one map as it will be drawn: what is hidden is gone, and heads that are put together
are one matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32

from polyhead.errors import ConfigError
from polyhead.viz.views import AttentionMap, AttentionView, Token

STYLES = ("heatmap", "lines")
WAYS = {"mean": "mean of {} heads", "max": "largest of {} heads"}


@dataclass(frozen=True)
class ViewOptions:
    """Whatever is not chosen is drawn; but lines show one layer: the last of the last kind.

    Layers, heads, words and columns are counted from 1. `word` is a row (or its text), `column` a
    column, whose lines are drawn alone. `log`: colours from 10⁻⁴ on. `special`: also <s>, </s>, ….
    """

    kind: str | None = None
    layer: int | None = None
    heads: Sequence[int] | str | None = None
    word: str | int | None = None
    column: int | None = None
    style: str = "heatmap"
    merge: bool = False
    log: bool = False
    special: bool = True

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            styles = " and ".join(STYLES)
            raise ConfigError(f"style {self.style!r}: no such style; there are {styles}")
        for name, one in (("word", self.word), ("column", self.column)):
            if one is not None and self.style != "lines":
                raise ConfigError(
                    f"{name} {one!r}: only lines can be drawn for one {name}; use style lines"
                )
        if isinstance(self.heads, str) and self.style == "lines":
            raise ConfigError(f"heads {self.heads!r}: expected numbers of heads for lines")
        if isinstance(self.heads, str) and self.heads not in WAYS:
            ways = ", ".join(WAYS)
            raise ConfigError(f"heads {self.heads!r}: expected {ways} or numbers of heads")


@dataclass(frozen=True)
class Panel:
    """One matrix: a head, or several put together. `unseen` are zeros that nobody chose."""

    head: int | str
    weights: Float32[np.ndarray, "row column"]
    unseen: Bool[np.ndarray, "row column"]

    @property
    def name(self) -> str:
        """How a picture calls it."""
        return self.head if isinstance(self.head, str) else f"head {self.head}"


@dataclass(frozen=True)
class Sheet:
    """One map as it is drawn; of the rows and columns that are not `lit` there are no lines."""

    kind: str
    layer: int
    rows: tuple[Token, ...]
    columns: tuple[Token, ...]
    panels: tuple[Panel, ...]
    lit_rows: frozenset[int]
    lit_columns: frozenset[int]


def sheets(view: AttentionView, choice: ViewOptions) -> list[Sheet]:
    """All maps that are chosen, in order."""
    shown = view.merged() if choice.merge else view
    maps = _maps(shown, choice.kind, choice.layer)
    for one in maps:
        _check_heads(one, choice.heads)
    if choice.style == "lines":
        maps = maps[-1:]
    return [_sheet(shown, one, choice) for one in maps]


def narrowed(view: AttentionView, choice: ViewOptions) -> AttentionView:
    """The same view with the maps that are chosen, and their heads in the order given."""
    shown = view.merged() if choice.merge else view
    maps = _maps(shown, choice.kind, choice.layer)
    for one in maps:
        _check_heads(one, choice.heads)
    return replace(shown, maps=tuple(_with_heads(one, choice.heads) for one in maps))


def _with_heads(one: AttentionMap, heads: Sequence[int] | str | None) -> AttentionMap:
    if heads is None:
        return one
    if isinstance(heads, str):
        (panel,) = _panels(one, heads)
        seen = None if one.seen is None else ~panel.unseen[None]
        return replace(one, weights=panel.weights[None], seen=seen, buckets=None)
    places = [head - 1 for head in heads]
    return replace(
        one,
        weights=one.weights[places],
        seen=None if one.seen is None else one.seen[places],
        buckets=None if one.buckets is None else one.buckets[:, places],
    )


def _sheet(view: AttentionView, one: AttentionMap, choice: ViewOptions) -> Sheet:
    rows, columns = view.rows(one), view.columns(one)
    down, across = _visible(rows, choice.special), _visible(columns, choice.special)
    if not down or not across:
        raise ConfigError("only special tokens are left, which are hidden: nothing to draw")
    lit_rows, lit_columns = _rows_of_word(rows, choice.word), _column(columns, choice.column)
    field = np.ix_(down, across)
    return Sheet(
        one.kind,
        one.layer,
        tuple(rows[i] for i in down),
        tuple(columns[i] for i in across),
        tuple(
            Panel(panel.head, panel.weights[field], panel.unseen[field])
            for panel in _panels(one, choice.heads)
        ),
        frozenset(place for place, i in enumerate(down) if i in lit_rows),
        frozenset(place for place, i in enumerate(across) if i in lit_columns),
    )


def _panels(one: AttentionMap, heads: Sequence[int] | str | None) -> list[Panel]:
    n_heads = one.weights.shape[0]
    unseen = ~one.seen if one.seen is not None else _masked(one)
    if isinstance(heads, str):
        put_together = one.weights.mean(axis=0) if heads == "mean" else one.weights.max(axis=0)
        nowhere = np.logical_and.reduce(unseen)
        return [Panel(WAYS[heads].format(n_heads), put_together, nowhere)]
    return [
        Panel(head, one.weights[head - 1], unseen[head - 1])
        for head in heads or range(1, n_heads + 1)
    ]


def _masked(one: AttentionMap) -> Bool[np.ndarray, "head query key"]:
    """What a decoder may not look at, since it comes later."""
    later = np.triu(np.ones(one.weights.shape[1:], dtype=np.bool_), k=1)
    return (one.weights == 0) & later & (one.kind == "decoder")


def _visible(tokens: Sequence[Token], special: bool) -> list[int]:
    return [place for place, token in enumerate(tokens) if special or not token.special]


def _maps(view: AttentionView, kind: str | None, layer: int | None) -> list[AttentionMap]:
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


def _check_heads(one: AttentionMap, heads: Sequence[int] | str | None) -> None:
    count = one.weights.shape[0]
    if heads is not None and not heads:
        raise ConfigError(f"heads: none chosen; choose from 1 to {count}, or leave it out for all")
    for head in () if heads is None or isinstance(heads, str) else heads:
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


def _column(tokens: Sequence[Token], column: int | None) -> list[int]:
    if column is None:
        return list(range(len(tokens)))
    if not 1 <= column <= len(tokens):
        raise ConfigError(f"column {column}: no such column; there are 1 to {len(tokens)}")
    return [column - 1]
