"""Figures of the report, computed by the library when the page is written; texts: figures.toml."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from polyhead.cost.counter import saved_bytes
from polyhead.i18n import Words
from polyhead.layers.attention import CAUSAL, attention_weights
from polyhead.layers.embeddings import SinusoidalPositions
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.notes.claims import read_texts
from polyhead.render.svg import WIDTH, Frame, Length, Point, box, heat, path, round_ticks, svg, text
from polyhead.training.optim import noam

LENGTH, CHUNK, BUCKETS = 40, 8, 6  # of the figure of LSH attention
DEPTHS = (1, 2, 4, 6, 8, 10, 12)


class Figure(NamedTuple):
    """A drawing with its texts."""

    name: str
    title: Words
    caption: Words
    drawing: Words  # the SVG in each language


def make_figure(
    name: str,
    height: Length,
    values: Mapping[str, object],
    draw: Callable[[Mapping[str, str]], list[str]],
) -> Figure:
    """Fill the texts of a figure with values, and draw it with the labels of each language."""
    own = read_texts(Path(__file__).with_suffix(".toml"))[name]
    in_languages = []
    for language in Words._fields:
        title, caption, description = (
            " ".join(own[key][language].split()).format(**values)
            for key in ("title", "caption", "description")
        )
        labels = {key: label[language] for key, label in own.get("labels", {}).items()}
        in_languages.append((title, caption, svg(height, title, description, draw(labels))))
    return Figure(name, *map(Words._make, zip(*in_languages, strict=True)))


def softmax_without_scale() -> Figure:
    """Draw the sorted weights of 16 keys with and without 1/√d_k."""
    sizes, n_keys = (4, 64, 512), 16
    bars: list[tuple[int, bool, list[float]]] = []
    for d_k in sizes:
        q, k = torch.randn(1, 400, 1, d_k), torch.randn(1, 400, n_keys, d_k)
        for scaled, scale in ((True, 1.0), (False, math.sqrt(d_k))):
            weights = attention_weights(q * scale, k)[0, :, 0].sort(descending=True).values
            bars.append((d_k, scaled, weights.mean(0).tolist()))

    def draw(_: Mapping[str, str]) -> list[str]:
        parts = []
        for d_k, scaled, weights in bars:
            left = 10 + sizes.index(d_k) * 145
            top, height, kind = (36, 40, "fill-good") if scaled else (140, 96, "fill-bad")
            frame = Frame(left, top, 130, height, (0, n_keys), (0, height / 96))
            if d_k == sizes[0]:
                heading = "softmax(QKᵀ / √d_k)" if scaled else "softmax(QKᵀ)"
                parts.append(text(left, 14 if scaled else top - 12, heading, "label strong"))
            for place, weight in enumerate(weights):
                corner = frame.at(Point(place, weight))
                tall = top + height - corner.y
                parts.append(box(corner.x + 0.8, corner.y, 130 / n_keys - 1.6, tall, kind))
            first = frame.at(Point(0, weights[0]))
            parts.append(text(first.x, first.y - 5, f"{weights[0]:.2f}", "tick"))
            parts.append(frame.axes({}, {}))
            parts.append(text(left + 65, top + height + 17, f"d_k = {d_k}", "tick middle"))
        return parts

    largest = {(d_k, scaled): weights[0] for d_k, scaled, weights in bars}
    values = {"small": largest[4, False], "large": largest[512, False], "kept": largest[512, True]}
    return make_figure("softmax", 262, values, draw)


def causal_matrix() -> Figure:
    """Draw the causal weights of 8 tokens, and those with a mask of zeros."""
    n = 8
    q = k = torch.zeros(1, 1, n, 4)
    right = attention_weights(q, k, CAUSAL)[0, 0]
    allowed = CAUSAL.dense(n, n, q.device)
    assert allowed is not None
    hidden = ~allowed[0, 0]
    wrong = torch.zeros(n, n).masked_fill(hidden, 0.0).softmax(dim=-1)

    def draw(labels: Mapping[str, str]) -> list[str]:
        return [
            text(4, 16, labels["infinity"], "label strong"),
            _matrix(right, hidden, 4, "masked"),
            text(228, 16, labels["zero"], "label strong"),
            _matrix(wrong, hidden, 228, "leak"),
        ]

    return make_figure("causal", 240, {"leak": wrong[0, 1:].sum().item()}, draw)


def _matrix(matrix: Tensor, hidden: Tensor, left: Length, kind: str) -> str:
    """Draw weights as squares with numbers; `kind` is the class of squares that are hidden."""
    rows, top, cell = matrix.tolist(), 28, 26
    shown = [[None if w == 0 else w for w in row] for row in rows]
    parts = [heat(shown, Point(left, top), Point(cell, cell))]
    for i, row in enumerate(rows):
        for j, weight in enumerate(row):
            x, y = left + j * cell, top + i * cell
            if hidden[i, j]:
                parts.append(box(x + 1, y + 1, cell - 2, cell - 2, kind))
            if weight > 0:
                ink = "number dark" if weight > 0.6 else "number light"
                rounded = math.floor(100 * weight + 0.5) / 100
                number = f"{rounded:.2f}".lstrip("0") if weight < 1 else "1"
                parts.append(text(x + cell / 2, y + cell / 2 + 4, number, ink))
    return "".join(parts)


def position_code() -> Figure:
    """Draw the sinusoidal position code as a heat-map."""
    d_model, n = 64, 48
    levels = ((SinusoidalPositions(d_model)(n) + 1) / 2).tolist()
    bottom = 24 + 5 * n

    def draw(labels: Mapping[str, str]) -> list[str]:
        parts = [heat(levels, Point(40, 24), Point((WIDTH - 44) / d_model, 5))]
        parts.append(text(4, 14, labels["position"], "label"))
        parts.append(text(WIDTH - 4, 14, labels["dimension"], "label end"))
        for position in range(0, n, 10):
            parts.append(text(33, 24 + 5 * position + 7, str(position), "tick end"))
        scale: list[list[Length | None]] = [[i / 40 for i in range(41)]]  # colours of −1 to 1
        parts.append(heat(scale, Point(WIDTH / 2 - 62, bottom + 12), Point(3, 9)))
        parts.append(text(WIDTH / 2 - 68, bottom + 21, "−1", "tick end"))
        parts.append(text(WIDTH / 2 + 68, bottom + 21, "1", "tick"))
        return parts

    return make_figure("positions", bottom + 26, {"d_model": d_model, "n": n}, draw)


def position_products() -> Figure:
    """Draw PE(t) · PE(t + φ) against φ: symmetric, largest at 0, not monotonic."""
    d_model, far = 512, 120
    code = SinusoidalPositions(d_model).double()(2 * far + 1)
    products = (code @ code[far]).tolist()  # position `far` against all
    right = products[far:]
    rises = [i for i in range(1, far + 1) if right[i] > right[i - 1]]

    def draw(labels: Mapping[str, str]) -> list[str]:
        frame = Frame(40, 16, WIDTH - 52, 216, (-far, far), (80, 270))
        xs = {float(x): f"{x}".replace("-", "−") for x in (-100, -50, 0, 50, 100)}
        parts = [frame.axes(xs, {float(y): str(y) for y in (100, 150, 200, 250)})]
        points = [Point(place - far, product) for place, product in enumerate(products)]
        parts.append(frame.line(points, "line-good"))
        for i in rises:
            for side in (1, -1):
                ends = [Point(side * j, right[j]) for j in (i - 1, i)]
                parts.append(frame.line(ends, "line-bad"))
        return [*parts, text(WIDTH / 2, 270, labels["distance"], "label middle")]

    values = {"d_model": d_model, "far": far, "first": rises[0], "rises": len(rises),
              "peak": right[0], "at_10": right[10], "at_100": right[100]}  # fmt: skip
    return make_figure("products", 280, values, draw)


def warm_up() -> Figure:
    """Draw the learning rate of equation 3 of the paper, with and without warm-up."""
    d_model, warmup, last = 512, 4000, 20_000
    steps = range(1, last + 1, 50)
    rate = [Point(step, noam(step, d_model, warmup) * 1e4) for step in (*steps, warmup, last)]
    without = [Point(step, noam(step, d_model, 1) * 1e4) for step in steps]
    peak, first = noam(warmup, d_model, warmup) * 1e4, noam(1, d_model, 1)

    def draw(labels: Mapping[str, str]) -> list[str]:
        frame = Frame(34, 26, WIDTH - 46, 206, (0, last), (0, 10))
        xs = {float(x): f"{x:,}" for x in (1, 4000, 10_000, 20_000)}
        parts = [frame.axes(xs, {float(y): str(y) for y in (0, 2, 4, 6, 8)})]
        parts.append(text(8, 14, labels["rate"], "label"))
        parts.append(frame.line([p for p in without if p.y < 10], "line-soft dashed"))
        parts.append(frame.line(sorted(rate), "line-good"))
        parts.append(frame.dot(Point(warmup, peak), "dot"))
        top = frame.at(Point(warmup, peak))
        parts.append(text(top.x + 9, top.y - 3, f"{peak:.2f}", "tick"))
        return [*parts, text(WIDTH / 2, 270, labels["step"], "label middle")]

    values = {"peak": peak, "peak_rate": peak / 1e4, "first": first, "times": first / peak * 1e4,
              "last": rate[-1].y}  # fmt: skip
    return make_figure("warmup", 280, values, draw)


def bucket_sorting() -> Figure:
    """Draw positions sorted by the bucket of their hash, and the pairs that attention compares."""
    meanings = torch.randn(2 * BUCKETS, 16).repeat(4, 1)[torch.randperm(LENGTH)]
    q = (meanings + 0.4 * torch.randn(LENGTH, 16))[None, None]
    arranged = LSHAttention(chunk=CHUNK, n_rounds=1, n_buckets=BUCKETS).arrange(q)
    bucket, order = arranged.buckets[0, 0, 0].tolist(), arranged.order[0, 0, 0].tolist()
    sees = arranged.sees()[0, 0]

    def draw(labels: Mapping[str, str]) -> list[str]:
        step = (WIDTH - 8) / LENGTH
        lines, squares = [], []
        for slot, position in enumerate(order):
            kind = f"bucket-{bucket[position]}"
            ends = [Point(4 + (position + 0.5) * step, 24), Point(4 + (slot + 0.5) * step, 112)]
            lines.append(path(ends, f"thin {kind}"))
            squares.append(box(4 + position * step + 0.8, 8, step - 1.6, 16, kind))
            squares.append(box(4 + slot * step + 0.8, 112, step - 1.6, 16, kind))
        firsts = range(0, LENGTH, CHUNK)
        chunks = [box(4 + first * step, 109, CHUNK * step, 22, "frame") for first in firsts]
        parts = [*lines, *squares, *chunks]
        for label, left, places in (("text", 4, list(range(LENGTH))), ("sorted", 230, order)):
            parts.append(text(left, 168, labels[label], "label"))
            parts.append(_pairs(sees, bucket, places, Point(left, 178)))
        return parts

    values = {"length": LENGTH, "chunk": CHUNK, "pairs": int(sees.sum()), "all": LENGTH**2,
              "colours": len(set(bucket)), "chunks": LENGTH // CHUNK}  # fmt: skip
    return make_figure("buckets", 390, values, draw)


def _pairs(sees: Tensor, bucket: list[int], places: list[int], corner: Point) -> str:
    """Draw the visible pairs as a matrix, rows and columns in the order of `places`."""
    cell = 208 / LENGTH
    parts = [box(corner.x, corner.y, 208, 208, "masked")]
    for row, query in enumerate(places):
        for column, key in enumerate(places):
            if sees[query, key]:
                same = bucket[query] == bucket[key]
                kind = f"bucket-{bucket[query]}" if same else "seen"
                x, y = corner.x + column * cell, corner.y + row * cell
                parts.append(box(x, y, cell, cell, kind))
    return f'<g class="cells">{"".join(parts)}</g>'


def memory_against_depth() -> Figure:
    """Draw the megabytes saved for backward by ordinary and reversible stacks."""
    config, x = StackConfig(1, d_model=64, n_heads=4, d_ff=256, norm="pre"), torch.randn(4, 64, 64)

    def saved(stack: TransformerStack) -> int:
        return saved_bytes(lambda: stack.train()(x.clone().requires_grad_()), stack.parameters())

    ordinary, reversible = (
        [Point(n, saved(TransformerStack(kind, n_layers=n)) / 2**20) for n in DEPTHS]
        for kind in (config, replace(config, reversible=True))
    )

    def draw(labels: Mapping[str, str]) -> list[str]:
        top = ordinary[-1].y * 1.1
        frame = Frame(38, 30, WIDTH - 54, 296, (0, DEPTHS[-1] + 0.4), (0, top))
        parts = [frame.axes({n: str(n) for n in DEPTHS}, round_ticks(0, top))]
        parts.append(text(8, 14, labels["megabytes"], "label"))
        lines = (ordinary, "bad", "ordinary"), (reversible, "good", "reversible")
        for points, kind, label in lines:
            parts.append(frame.line(points, f"line-{kind} even"))
            parts += [frame.dot(point, f"fill-{kind}") for point in points]
            end = frame.at(points[-2])
            parts.append(text(end.x - 8, end.y - 12, labels[label], "strong end"))
        return [*parts, text(WIDTH / 2, 368, labels["layers"], "label middle")]

    values = {"layers": DEPTHS[-1], "times": ordinary[-1].y / reversible[-1].y,
              "ordinary_first": ordinary[0].y, "ordinary_last": ordinary[-1].y,
              "reversible_first": reversible[0].y, "reversible_last": reversible[-1].y}  # fmt: skip
    return make_figure("memory", 378, values, draw)
