"""The drawings of the report, computed by the library while the page is made.

Each function computes something with the parts that the checks of its chapter are about, and
returns it as a `Picture`: the same drawing with words in both languages, what to see in it, and a
text for those who cannot. The pictures of the Reformer stand in `drawings_reformer`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from polyhead.i18n import Words
from polyhead.layers.attention import attention_weights
from polyhead.layers.masks import CAUSAL
from polyhead.layers.positions import SinusoidalPositions
from polyhead.render.svg import WIDTH, Frame, Length, Point, box, heat, svg, text
from polyhead.training.optim import noam


class Picture(NamedTuple):
    """A drawing with its words."""

    name: str
    title: Words
    caption: Words
    drawn: Words  # the SVG in each language


def in_both(draw: Callable[[str], str]) -> Words:
    """The same drawing in each language."""
    return Words(draw("en"), draw("ko"))


# Attention


def softmax_without_scale() -> Picture:
    """The sixteen weights of a query, sorted, with and without 1/√d_k."""
    sizes, n_keys = (4, 64, 512), 16
    title = Words("The softmax without the scale", "스케일이 없는 소프트맥스")
    bars: list[tuple[int, str, list[float]]] = []
    for d_k in sizes:
        q, k = torch.randn(1, 400, 1, d_k), torch.randn(1, 400, n_keys, d_k)
        for name, scale in (("√", 1.0), ("", math.sqrt(d_k))):
            weights = attention_weights(q * scale, k)[0, :, 0].sort(descending=True).values
            bars.append((d_k, name, weights.mean(0).tolist()))
    most = {(d_k, name): weights[0] for d_k, name, weights in bars}
    small, large = most[sizes[0], ""], most[sizes[-1], ""]
    kept = most[sizes[-1], "√"]
    caption = Words(
        f"Sixteen keys, their weights sorted, mean of 400 queries. With 1/√d_k the picture is the "
        f"same for every width. Without it the largest weight grows from {small:.2f} to "
        f"{large:.2f}: one key takes everything, and the gradient with it.",
        f"키 16개의 가중치를 큰 순서로 늘어놓았습니다(쿼리 400개의 평균). 1/√d_k로 나누면 차원이 "
        f"커져도 모양이 같습니다. 나누지 않으면 가장 큰 가중치가 {small:.2f}에서 {large:.2f}까지 "
        "커져서 키 하나가 전부를 차지하고, 기울기도 사라집니다.",
    )
    told = Words(
        f"Bar charts for d_k = 4, 64 and 512. Scaled: the largest weight stays near {kept:.2f}. "
        f"Unscaled: it is {large:.2f} at d_k = 512.",
        f"d_k = 4, 64, 512의 막대그래프. 나누면 가장 큰 가중치는 {kept:.2f} 정도로 그대로이고, "
        f"나누지 않으면 d_k = 512에서 {large:.2f}입니다.",
    )

    def draw(language: str) -> str:
        parts = []
        for d_k, name, weights in bars:
            left, top, height = 10 + sizes.index(d_k) * 145, 36 if name else 140, 40 if name else 96
            kind = "fill-good" if name else "fill-bad"
            frame = Frame(left, top, 130, height, (0, n_keys), (0, height / 96))
            if d_k == sizes[0]:
                heading = "softmax(QKᵀ / √d_k)" if name else "softmax(QKᵀ)"
                parts.append(text(left, 14 if name else top - 12, heading, "label strong"))
            for place, weight in enumerate(weights):
                corner = frame.at(Point(place, weight))
                tall = top + height - corner.y
                parts.append(box(corner.x + 0.8, corner.y, 130 / n_keys - 1.6, tall, kind))
            first = frame.at(Point(0, weights[0]))
            parts.append(text(first.x, first.y - 5, f"{weights[0]:.2f}", "tick"))
            parts.append(frame.axes({}, {}))
            parts.append(text(left + 65, top + height + 17, f"d_k = {d_k}", "tick middle"))
        return svg(262, title.in_language(language), told.in_language(language), parts)

    return Picture("softmax", title, caption, in_both(draw))


# Masks


def causal_matrix() -> Picture:
    """The 8 x 8 matrix of the notes, and the one that a mask of zeros would give."""
    n = 8
    q = k = torch.zeros(1, 1, n, 4)
    right = attention_weights(q, k, CAUSAL)[0, 0]
    allowed = CAUSAL.dense(n, n, q.device)
    assert allowed is not None
    hidden = ~allowed[0, 0]
    wrong = torch.zeros(n, n).masked_fill(hidden, 0.0).softmax(dim=-1)
    title = Words("The causal matrix", "인과 마스크 행렬")
    leak = wrong[0, 1:].sum().item()
    caption = Words(
        "Equal scores, each row a query. Left: the future is −∞ before the softmax, row i shares 1 "
        f"among its i keys. Right: it is 0 instead. e⁰ = 1, so the first query gives {leak:.0%} of "
        "its weight to words that it must not know.",
        "모든 점수가 같을 때이고, 한 행이 쿼리 하나입니다. 왼쪽: 소프트맥스 전에 미래를 −∞로 "
        "바꾸면 i번째 행은 1을 i개의 키에 고르게 나눕니다. 오른쪽: 0으로 바꾸면 e⁰ = 1이므로 첫 "
        f"쿼리는 가중치의 {leak:.0%}를 알아서는 안 되는 단어에 줍니다.",
    )
    told = Words(
        "Two 8 by 8 matrices of weights. Left: lower triangle, rows 1; 0.50 0.50; 0.33 …; down to "
        "1/8 eight times. Right: 1/8 everywhere, also above the diagonal.",
        "8행 8열의 가중치 행렬 두 개. 왼쪽: 아래 삼각형만 있고 행은 1; 0.50 0.50; 0.33 …, 마지막 "
        "행은 1/8이 여덟 번. 오른쪽: 대각선 위까지 모두 1/8.",
    )
    names = (Words("−∞ before the softmax", "소프트맥스 전에 −∞"),
             Words("0 before the softmax", "소프트맥스 전에 0"))  # fmt: skip

    def draw(language: str) -> str:
        parts = []
        for place, matrix in enumerate((right, wrong)):
            left = 4 + place * 224
            heading = names[place].in_language(language)
            parts.append(text(left, 16, heading, "label strong"))
            parts.append(_matrix(matrix, hidden, left, 28, 26, leaks=bool(place)))
        return svg(240, title.in_language(language), told.in_language(language), parts)

    return Picture("causal", title, caption, in_both(draw))


def _matrix(
    matrix: Tensor, hidden: Tensor, left: Length, top: Length, cell: Length, *, leaks: bool
) -> str:
    """Weights as coloured squares with their numbers; what may not be seen is outlined in red."""
    rows, forbidden = matrix.tolist(), hidden.tolist()
    shown = [[None if w == 0 else w for w in row] for row in rows]
    parts = [heat(shown, Point(left, top), Point(cell, cell))]
    for i, row in enumerate(rows):
        for j, weight in enumerate(row):
            x, y = left + j * cell, top + i * cell
            if forbidden[i][j]:
                kind = "leak" if leaks else "masked"
                parts.append(box(x + 1, y + 1, cell - 2, cell - 2, kind))
            if weight > 0:
                ink = "number dark" if weight > 0.6 else "number light"
                number = (
                    f"{math.floor(100 * weight + 0.5) / 100:.2f}".lstrip("0") if weight < 1 else "1"
                )
                parts.append(text(x + cell / 2, y + cell / 2 + 4, number, ink))
    return "".join(parts)


# Positions


def position_code() -> Picture:
    """The waves of equation PE as a heat-map."""
    d_model, n = 64, 48
    code = SinusoidalPositions(d_model)(n)
    levels = ((code + 1) / 2).tolist()
    title = Words("The position code", "위치 인코딩")
    caption = Words(
        f"d_model = {d_model}: each row is a position, each column a dimension, sine and cosine in "
        "turns. Like the digits of a binary number, the columns on the left change at every step, "
        "those on the right hardly at all.",
        f"d_model = {d_model}: 한 행이 위치 하나, 한 열이 차원 하나이며 사인과 코사인이 번갈아 "
        "나옵니다. 이진수의 자릿수처럼 왼쪽 열은 한 칸마다 바뀌고, 오른쪽 열은 거의 바뀌지 "
        "않습니다.",
    )
    told = Words(
        f"Heat-map of {n} positions by {d_model} dimensions; fast stripes on the left, slow ones "
        "to the right.",
        f"위치 {n}개와 차원 {d_model}개의 히트맵. 왼쪽은 빠르게, 오른쪽으로 갈수록 천천히 "
        "바뀝니다.",
    )
    names = (Words("dimension →", "차원 →"), Words("position ↓", "위치 ↓"))

    def draw(language: str) -> str:
        cell = Point((WIDTH - 44) / d_model, 5)
        parts = [heat(levels, Point(40, 24), cell)]
        parts.append(text(4, 14, names[1].in_language(language), "label"))
        parts.append(text(WIDTH - 4, 14, names[0].in_language(language), "label end"))
        for position in range(0, n, 10):
            parts.append(text(33, 24 + 5 * position + 7, str(position), "tick end"))
        _scale(parts, 24 + 5 * n + 12)
        return svg(24 + 5 * n + 26, title.in_language(language), told.in_language(language), parts)

    return Picture("positions", title, caption, in_both(draw))


def _scale(parts: list[str], top: Length) -> None:
    """What the colours mean: −1 to 1."""
    steps: list[list[Length | None]] = [[i / 40 for i in range(41)]]
    parts.append(heat(steps, Point(WIDTH / 2 - 62, top), Point(3, 9)))
    parts.append(text(WIDTH / 2 - 68, top + 9, "−1", "tick end"))
    parts.append(text(WIDTH / 2 + 68, top + 9, "1", "tick"))


def position_products() -> Picture:
    """PE(t) · PE(t + φ) against φ: symmetric, largest at 0, but not falling all the way."""
    d_model, far = 512, 120
    code = SinusoidalPositions(d_model).double()(2 * far + 1)
    products = (code @ code[far]).tolist()  # position `far` against all
    right = products[far:]
    rises = [i for i in range(1, far + 1) if right[i] > right[i - 1]]
    title = Words("Its dot products against distance", "거리에 따른 내적")
    caption = Words(
        f"PE(t)·PE(t+φ) = Σ cos(ω_k φ) for d_model = {d_model}. Symmetric, and largest "
        f"({right[0]:.0f}) at φ = 0. The note says that it decreases with distance; that is true "
        f"on average only: it rises for the first time at φ = {rises[0]} (red).",
        f"d_model = {d_model}일 때 PE(t)·PE(t+φ) = Σ cos(ω_k φ). 좌우 대칭이고 φ = 0에서 가장 "
        f"큽니다({right[0]:.0f}). 노트는 거리가 멀수록 줄어든다고 하지만 평균적으로만 그렇습니다. "
        f"φ = {rises[0]}에서 처음으로 다시 커집니다(빨간 부분).",
    )
    told = Words(
        f"A symmetric curve with its peak {right[0]:.0f} at distance 0, {right[10]:.0f} at 10 and "
        f"{right[100]:.0f} at 100; it rises in {len(rises)} of the first {far} steps.",
        f"거리 0에서 {right[0]:.0f}, 10에서 {right[10]:.0f}, 100에서 {right[100]:.0f}인 대칭 곡선. "
        f"거리 1부터 {far} 사이에서 {len(rises)}번 다시 커집니다.",
    )
    name = Words("distance φ", "거리 φ")

    def draw(language: str) -> str:
        frame = Frame(40, 16, WIDTH - 52, 216, (-far, far), (80, 270))
        xs = {float(x): f"{x}".replace("-", "−") for x in (-100, -50, 0, 50, 100)}
        parts = [frame.axes(xs, {float(y): str(y) for y in (100, 150, 200, 250)})]
        points = [Point(place - far, product) for place, product in enumerate(products)]
        parts.append(frame.line(points, "line-good"))
        for i in rises:
            for side in (1, -1):
                ends = [Point(side * j, right[j]) for j in (i - 1, i)]
                parts.append(frame.line(ends, "line-bad"))
        parts.append(text(WIDTH / 2, 270, name.in_language(language), "label middle"))
        return svg(280, title.in_language(language), told.in_language(language), parts)

    return Picture("products", title, caption, in_both(draw))


# Training


def warm_up() -> Picture:
    """The learning rate of the paper's equation 3, and what it would be without the rise."""
    d_model, warmup, last = 512, 4000, 20_000
    steps = range(1, last + 1, 50)
    rate = [Point(step, noam(step, d_model, warmup) * 1e4) for step in (*steps, warmup, last)]
    bare = [Point(step, noam(step, d_model, 1) * 1e4) for step in steps]
    peak = noam(warmup, d_model, warmup) * 1e4
    cold = noam(1, d_model, 1)
    title = Words("The warm-up", "웜업")
    caption = Words(
        f"d_model^−0.5 · min(step^−0.5, step · warmup^−1.5) with 512 and 4,000: up to "
        f"{peak / 1e4:.3e} at step 4,000, then down with 1/√step. The dashed line has no warm-up "
        f"and begins at {cold:.3f}, {cold / peak * 1e4:.0f} times the peak.",
        f"d_model^−0.5 · min(step^−0.5, step · warmup^−1.5), 512와 4,000일 때: 4,000번째 스텝에서 "
        f"{peak / 1e4:.3e}까지 올랐다가 1/√step으로 내려갑니다. 점선은 웜업이 없을 때이며 최고값의 "
        f"{cold / peak * 1e4:.0f}배인 {cold:.3f}에서 시작합니다.",
    )
    told = Words(
        f"A line that rises straight to {peak:.2f}e-4 at step 4,000 and falls to "
        f"{rate[-1].y:.2f}e-4 at step 20,000.",
        f"4,000번째 스텝에서 {peak:.2f}e-4까지 곧게 올랐다가 20,000번째 스텝에서 "
        f"{rate[-1].y:.2f}e-4까지 내려가는 선.",
    )
    names = (Words("rate × 10⁴", "학습률 × 10⁴"), Words("step", "스텝"))

    def draw(language: str) -> str:
        frame = Frame(34, 26, WIDTH - 46, 206, (0, last), (0, 10))
        xs = {float(x): f"{x:,}" for x in (1, 4000, 10_000, 20_000)}
        parts = [frame.axes(xs, {float(y): str(y) for y in (0, 2, 4, 6, 8)})]
        parts.append(text(8, 14, names[0].in_language(language), "label"))
        parts.append(frame.line([p for p in bare if p.y < 10], "line-soft dashed"))
        parts.append(frame.line(sorted(rate), "line-good"))
        parts.append(frame.dot(Point(warmup, peak), "dot"))
        top = frame.at(Point(warmup, peak))
        parts.append(text(top.x + 9, top.y - 3, f"{peak:.2f}", "tick"))
        parts.append(text(WIDTH / 2, 270, names[1].in_language(language), "label middle"))
        return svg(280, title.in_language(language), told.in_language(language), parts)

    return Picture("warmup", title, caption, in_both(draw))
