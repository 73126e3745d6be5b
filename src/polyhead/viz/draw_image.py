"""Where an image model looks, as a picture for papers and slides: SVG, as `drawing.py` makes it.

    drawn(view, ImageChoice())                              # the roll-out, and every head
    drawn(view, ImageChoice(layer=2, heads="mean"))         # one map beside what the model saw

A map lies over the picture as on the page: viridis from 0 to its strongest patch, whose weight
stands above it, because the colours of two maps cannot be compared. The picture stands in the file
once, as PNG.
"""

import base64
import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from polyhead.errors import ConfigError
from polyhead.render.svg import (
    INK,
    MASKED,
    PALETTE,
    SOFT,
    Length,
    cells,
    document,
    label,
    text_width,
    truncate,
    viridis,
)
from polyhead.viz.draw_text import GAP, MARGIN, check_cells
from polyhead.viz.image_page import ImageView
from polyhead.viz.select import WAYS

OPAQUE = 0.62  # of a map over the picture; the page's number
LARGE, SMALL = 280, 180  # units that a map is wide: one alone, and one of many
PER_ROW = 4  # heads, if there is one layer
BAR, LINE = 64, 18  # units of a class: the bar of certainty, and the line
ROLLOUT = "rollout"


@dataclass(frozen=True)
class ImageViewOptions:
    """What is drawn: a layer (counted from 1) or "rollout", and of a layer some heads.

    Whatever is not chosen is drawn. `heads` are numbers from 1, or "mean" or "max" of all of them;
    `alone` leaves the picture under the maps out.
    """

    layer: int | str | None = None
    heads: Sequence[int] | str | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.layer, str) and self.layer != ROLLOUT:
            raise ConfigError(f"layer {self.layer!r}: expected {ROLLOUT} or a number")
        if isinstance(self.heads, str) and self.heads not in WAYS:
            ways = ", ".join(WAYS)
            raise ConfigError(f"heads {self.heads!r}: expected {ways} or numbers of heads")
        if self.layer == ROLLOUT and self.heads is not None:
            raise ConfigError("the roll-out is one map of all heads; choose a layer or no heads")


@dataclass(frozen=True)
class Tile:
    """A map with its name; without weights, the picture itself."""

    name: str
    weights: Float[np.ndarray, "row column"] | None = None

    @property
    def caption(self) -> str:
        """The name, and what the brightest colour means."""
        if self.weights is None:
            return self.name
        return f"{self.name} · 0 to {self.weights.max():.2g}"


def drawn(view: ImageView, choice: ImageViewOptions) -> str:
    """The answer, what the model saw, and the maps that are chosen."""
    rows = _rows(view, choice)
    n_maps = sum(map(len, rows))
    check_cells(n_maps * view.rollout.size, "a layer or heads")
    height, width, _ = view.picture.shape
    side = LARGE if n_maps == 1 else SMALL
    pixel = side / width
    size = (side, pixel * height)
    name, image = _embedded(view.picture)
    parts, right, y = _answer(view)
    beside = rows.pop(0) if len(rows[0]) == 1 else []
    rows = [[Tile("what the model saw"), *beside], *rows]
    apart = max(side, *(11 * text_width(tile.caption) for row in rows for tile in row))
    for row in rows:
        for place, tile in enumerate(row):
            x = MARGIN + place * (apart + GAP)
            parts.append(label(x, y + 12, tile.caption, colour=SOFT))
            corner = f"translate({x:g} {y + 18:g})"
            if tile.weights is None or not choice.alone:
                parts.append(f'<use href="#{name}" transform="{corner} scale({pixel:g})"/>')
            if tile.weights is not None:
                parts.append(_laid_over(tile.weights, corner, size, choice.alone))
            right = max(right, x + apart)
        y += 18 + size[1] + GAP
    return document(view.title, right + MARGIN, y, [f"<defs>{image}</defs>", *parts])


def _rows(view: ImageView, choice: ImageViewOptions) -> list[list[Tile]]:
    """The maps as they stand below each other: a row for each layer, if several have several."""
    rollout = [Tile("roll-out", view.rollout)]
    if choice.layer == ROLLOUT:
        return [rollout]
    n_layers, n_heads = view.layers.shape[:2]
    if isinstance(choice.layer, int) and not 1 <= choice.layer <= n_layers:
        raise ConfigError(f"layer {choice.layer}: no such layer; there are 1 to {n_layers}")
    if choice.heads is not None and not choice.heads:
        raise ConfigError(f"heads: none chosen; choose from 1 to {n_heads}, or leave it out")
    chosen = range(1, n_layers + 1) if choice.layer is None else [choice.layer]
    rows = [_heads(view, int(layer), choice.heads) for layer in chosen]
    if len(rows) == 1 or len(rows[0]) == 1:
        flat = [tile for row in rows for tile in row]
        rows = [flat[start : start + PER_ROW] for start in range(0, len(flat), PER_ROW)]
    return [rollout, *rows] if choice.layer is None and choice.heads is None else rows


def _heads(view: ImageView, layer: int, heads: Sequence[int] | str | None) -> list[Tile]:
    weights = view.layers[layer - 1]
    n_heads = len(weights)
    if isinstance(heads, str):
        together = weights.mean(axis=0) if heads == "mean" else weights.max(axis=0)
        return [Tile(f"layer {layer}, {WAYS[heads].format(n_heads)}", together)]
    chosen = heads or range(1, n_heads + 1)
    for head in chosen:
        if not 1 <= head <= n_heads:
            raise ConfigError(f"head {head}: no such head; there are 1 to {n_heads}")
    return [Tile(f"layer {layer}, head {head}", weights[head - 1]) for head in chosen]


def _answer(view: ImageView) -> tuple[list[str], float, float]:
    """The title and the likeliest classes; how wide they are, and where they end."""
    title = truncate(view.title, 40)
    parts, width = (
        [label(MARGIN, MARGIN + 12, title, size=13, bold=True)],
        MARGIN + 13 * text_width(title),
    )
    y = MARGIN + 26.0
    for name, share in view.labels:
        bar = f'<rect x="{MARGIN}" y="{y + 4:g}" height="6" rx="3"'
        parts.append(f'{bar} width="{BAR}" fill="{MASKED}"/>')
        parts.append(f'{bar} width="{BAR * share:.4g}" fill="{PALETTE[0]}"/>')
        parts.append(
            label(MARGIN + BAR + 52, y + 11, f"{100 * share:.1f} %", anchor="end", colour=SOFT)
        )
        name = truncate(name, 40)
        parts.append(label(MARGIN + BAR + 60, y + 11, name, colour=INK))
        width, y = max(width, MARGIN + BAR + 60 + 11 * text_width(name)), y + LINE
    return parts, width, y + GAP / 2


def _laid_over(
    weights: Float[np.ndarray, "row column"], corner: str, size: tuple[Length, Length], alone: bool
) -> str:
    """A map of this size; the picture shines through unless it is alone."""
    most = float(weights.max()) or 1.0
    colours = [[viridis(weight / most) for weight in line] for line in weights.tolist()]
    rows, columns = weights.shape
    place = f"{corner} scale({size[0] / columns:g} {size[1] / rows:g})"
    return cells(colours, place, 1 if alone else OPAQUE)


def _embedded(picture: UInt8[np.ndarray, "height width channel"]) -> tuple[str, str]:
    """The picture as an element to be used by its name, which no other picture has."""
    content = png_of(picture)
    name = f"seen-{hashlib.sha256(content).hexdigest()[:12]}"
    height, width, _ = picture.shape
    data = base64.b64encode(content).decode("ascii")
    return name, (
        f'<image id="{name}" width="{width}" height="{height}" style="image-rendering:pixelated"'
        f' href="data:image/png;base64,{data}"/>'
    )


def png_of(picture: UInt8[np.ndarray, "height width channel"]) -> bytes:
    """A PNG file of grey (one channel) or colour (three), without filters."""
    height, width, channels = picture.shape
    kind = {1: 0, 3: 2}[channels]
    lines = np.pad(picture.reshape(height, -1), ((0, 0), (1, 0)))  # each begins with: no filter
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + what + data + struct.pack(">I", zlib.crc32(what + data))
        for what, data in parts
    )
