"""Drawings of an image model's attention for papers and slides, as SVG.

    draw_image(view, ImageViewOptions())                            # roll-out and every head
    draw_image(view, ImageViewOptions(layer=2, heads="mean"))       # one map beside the image

A map is laid over the image: viridis from 0 to its largest weight, which is written above it,
because the colours of two maps cannot be compared. The image is in the file once, as PNG.
"""

import base64
import hashlib
import struct
import zlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from polyhead.errors import ConfigError
from polyhead.render import svg
from polyhead.viz.draw_text import GAP, MARGIN, check_cells
from polyhead.viz.select import REDUCTIONS, Heads, check_heads, check_reduction
from polyhead.viz.views import ImageView

OPACITY = 0.62  # of a map over the image, as on the page
LARGE, SMALL = 280, 180  # width of a single map, and of one of several
PER_ROW = 4  # heads in a row, if there is one layer
BAR, LINE = 64, 18  # width of the bar of a class, and height of its line
ROLLOUT = "rollout"


@dataclass(frozen=True)
class ImageViewOptions:
    """Selection of an image view: everything by default.

    layer: a number from 1, or "rollout".
    alone: leave out the image under the maps.
    """

    layer: int | str | None = None
    heads: Heads = None
    alone: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.layer, str) and self.layer != ROLLOUT:
            message = f"layer {self.layer!r}: expected {ROLLOUT} or a number"
            raise ConfigError(message, "unknown_layer")
        check_reduction(self.heads)
        if self.layer == ROLLOUT and self.heads is not None:
            message = "the roll-out is one map of all heads; omit the heads"
            raise ConfigError(message, "unknown_head")


@dataclass(frozen=True)
class Tile:
    """A map with its name; without weights, the image itself."""

    name: str
    weights: Float[np.ndarray, "row column"] | None = None

    @property
    def caption(self) -> str:
        """The name, and the weight of the brightest colour."""
        if self.weights is None:
            return self.name
        return f"{self.name} · 0 to {self.weights.max():.2g}"


def draw_image(view: ImageView, options: ImageViewOptions) -> str:
    """Draw the predicted classes, the image, and the selected maps."""
    rows = _rows(view, options)
    n_maps = sum(map(len, rows))
    check_cells(n_maps * view.rollout.size, "a layer or heads")
    height, width, _ = view.picture.shape
    side = LARGE if n_maps == 1 else SMALL
    pixel = side / width
    name, image = _embedded(view.picture)
    parts, right, y = _classes(view)
    beside = rows.pop(0) if len(rows[0]) == 1 else []
    rows = [[Tile("input image"), *beside], *rows]
    apart = max(side, *(11 * svg.text_width(tile.caption) for row in rows for tile in row))
    for row in rows:
        for place, tile in enumerate(row):
            x = MARGIN + place * (apart + GAP)
            parts.append(svg.label(x, y + 12, tile.caption, colour=svg.SOFT))
            corner = f"translate({x:g} {y + 18:g})"
            if tile.weights is None or not options.alone:
                parts.append(f'<use href="#{name}" transform="{corner} scale({pixel:g})"/>')
            if tile.weights is not None:
                largest, (n_rows, n_columns) = float(tile.weights.max()) or 1.0, tile.weights.shape
                fills = [[svg.viridis(w / largest) for w in line] for line in tile.weights.tolist()]
                scale = f"scale({side / n_columns:g} {pixel * height / n_rows:g})"
                opacity = 1 if options.alone else OPACITY
                parts.append(svg.cells(fills, f"{corner} {scale}", opacity))
            right = max(right, x + apart)
        y += 18 + pixel * height + GAP
    return svg.document(view.title, right + MARGIN, y, [f"<defs>{image}</defs>", *parts])


def _rows(view: ImageView, options: ImageViewOptions) -> list[list[Tile]]:
    """Return the rows of maps: one for each layer, if several layers have several maps."""
    rollout = [Tile("roll-out", view.rollout)]
    if options.layer == ROLLOUT:
        return [rollout]
    n_layers, n_heads = view.layers.shape[:2]
    if isinstance(options.layer, int) and not 1 <= options.layer <= n_layers:
        message = f"layer {options.layer}: no such layer; there are 1 to {n_layers}"
        raise ConfigError(message, "unknown_layer")
    check_heads(options.heads, n_heads, "every layer")
    layers = range(1, n_layers + 1) if options.layer is None else [options.layer]
    rows = [_heads(view, int(layer), options.heads) for layer in layers]
    if len(rows) == 1 or len(rows[0]) == 1:
        flat = [tile for row in rows for tile in row]
        rows = [flat[start : start + PER_ROW] for start in range(0, len(flat), PER_ROW)]
    return [rollout, *rows] if options.layer is None and options.heads is None else rows


def _heads(view: ImageView, layer: int, heads: Heads) -> list[Tile]:
    weights = view.layers[layer - 1]
    n_heads = len(weights)
    if isinstance(heads, str):
        reduced = weights.mean(axis=0) if heads == "mean" else weights.max(axis=0)
        return [Tile(f"layer {layer}, {REDUCTIONS[heads].format(n_heads)}", reduced)]
    numbers = heads or range(1, n_heads + 1)
    return [Tile(f"layer {layer}, head {head}", weights[head - 1]) for head in numbers]


def _classes(view: ImageView) -> tuple[list[str], float, float]:
    """Draw the title and the likeliest classes; return also their width and their end."""
    title, y = svg.truncate(view.title, 40), MARGIN + 26.0
    parts = [svg.label(MARGIN, MARGIN + 12, title, size=13, bold=True)]
    width = MARGIN + 13 * svg.text_width(title)
    for name, share in view.labels:
        bar = f'<rect x="{MARGIN}" y="{y + 4:g}" height="6" rx="3"'
        parts.append(f'{bar} width="{BAR}" fill="{svg.MASKED}"/>')
        parts.append(f'{bar} width="{BAR * share:.4g}" fill="{svg.PALETTE[0]}"/>')
        percent, x = f"{100 * share:.1f} %", MARGIN + BAR + 52
        parts.append(svg.label(x, y + 11, percent, anchor="end", colour=svg.SOFT))
        name = svg.truncate(name, 40)
        parts.append(svg.label(MARGIN + BAR + 60, y + 11, name, colour=svg.INK))
        width, y = max(width, MARGIN + BAR + 60 + 11 * svg.text_width(name)), y + LINE
    return parts, width, y + GAP / 2


def _embedded(picture: UInt8[np.ndarray, "height width channel"]) -> tuple[str, str]:
    """Return the name of an element with the image, and the element."""
    content = to_png(picture)
    name = f"seen-{hashlib.sha256(content).hexdigest()[:12]}"
    height, width, _ = picture.shape
    data = base64.b64encode(content).decode("ascii")
    return name, (
        f'<image id="{name}" width="{width}" height="{height}" style="image-rendering:pixelated"'
        f' href="data:image/png;base64,{data}"/>'
    )


def to_png(picture: UInt8[np.ndarray, "height width channel"]) -> bytes:
    """Return a PNG file of a grey (one channel) or colour (three) image, without filters."""
    height, width, channels = picture.shape
    colour_type = {1: 0, 3: 2}[channels]
    lines = np.pad(picture.reshape(height, -1), ((0, 0), (1, 0)))  # filter type 0
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour_type, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
