"""The drawings of the Reformer: how hashing sorts a sequence, and what reversing saves.

The first is the arrangement that `LSHAttention` itself decides on, drawn as it is. The second
counts the bytes that autograd really keeps for the way back, tensor by tensor.
"""

import torch
from torch import Tensor

from polyhead.i18n import Words
from polyhead.layers.lsh.attention import LSHAttention
from polyhead.layers.reversible import ReversibleStack
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.notes.figures import Picture, in_both
from polyhead.render.svg import WIDTH, Frame, Point, box, path, round_ticks, svg, text

LENGTH, CHUNK, BUCKETS = 40, 8, 6
DEPTHS = (1, 2, 4, 6, 8, 10, 12)


def bucket_sorting() -> Picture:
    """Positions in their own order, the same sorted by bucket, and who then sees whom."""
    meanings = torch.randn(2 * BUCKETS, 16).repeat(4, 1)[torch.randperm(LENGTH)]
    q = (meanings + 0.4 * torch.randn(LENGTH, 16))[None, None]
    arranged = LSHAttention(chunk=CHUNK, n_rounds=1, n_buckets=BUCKETS).arrange(q)
    bucket, order = arranged.buckets[0, 0, 0].tolist(), arranged.order[0, 0, 0].tolist()
    sees = arranged.sees()[0, 0]
    n_pairs = int(sees.sum())
    title = Words("Bucket sorting in LSH attention", "LSH 어텐션의 버킷 정렬")
    caption = Words(
        f"Above: {LENGTH} positions, coloured by the bucket of their hash; below: sorted by bucket "
        f"and cut into chunks of {CHUNK}. A query compares with its own chunk and the one before: "
        f"{n_pairs} pairs instead of {LENGTH**2}. In the order of the text (left) they are "
        "scattered, sorted (right) they lie in a band. Coloured: the same bucket.",
        f"위: 해시의 버킷에 따라 색을 칠한 위치 {LENGTH}개. 아래: 버킷 순서로 정렬하여 {CHUNK}개씩 "
        f"자른 것. 쿼리는 자기 청크와 바로 앞 청크만 봅니다. {LENGTH**2}쌍 대신 {n_pairs}쌍만 "
        "계산합니다. 본래 순서(왼쪽)에서는 흩어져 있지만 정렬하면(오른쪽) 띠 안에 모입니다. 색이 "
        "있는 칸은 버킷이 같은 쌍입니다.",
    )
    told = Words(
        f"{LENGTH} squares in {len(set(bucket))} colours, mixed; lines lead to the same squares "
        f"sorted by colour in {LENGTH // CHUNK} chunks. Two matrices of pairs: scattered, and a "
        "band.",
        f"{len(set(bucket))}가지 색이 섞인 칸 {LENGTH}개에서, 색깔별로 정렬되어 청크 "
        f"{LENGTH // CHUNK}개로 나뉜 칸으로 이어지는 선. 쌍의 행렬 두 개: 흩어진 것과 띠.",
    )
    names = (Words("in the order of the text", "본래 순서"), Words("sorted by bucket", "버킷 순서"))

    def draw(language: str) -> str:
        parts = _sorting(bucket, order)
        for place, heading in enumerate(names):
            left = 4 + place * 226
            places = order if place else list(range(LENGTH))
            parts.append(text(left, 168, heading.in_language(language), "label"))
            parts.append(_pairs(sees, bucket, places, Point(left, 178)))
        return svg(390, title.in_language(language), told.in_language(language), parts)

    return Picture("buckets", title, caption, in_both(draw))


def _sorting(bucket: list[int], order: list[int]) -> list[str]:
    """Two rows of squares, a line from each position to its slot, and frames for the chunks."""
    step = (WIDTH - 8) / LENGTH
    parts = []
    for slot, position in enumerate(order):
        kind = f"bucket-{bucket[position]}"
        start = Point(4 + (position + 0.5) * step, 24)
        end = Point(4 + (slot + 0.5) * step, 112)
        parts.append(path([start, end], f"thin {kind}"))
    for slot, position in enumerate(order):
        kind = f"bucket-{bucket[position]}"
        parts.append(box(4 + position * step + 0.8, 8, step - 1.6, 16, kind))
        parts.append(box(4 + slot * step + 0.8, 112, step - 1.6, 16, kind))
    for first in range(0, LENGTH, CHUNK):
        parts.append(box(4 + first * step, 109, CHUNK * step, 22, "frame"))
    return parts


def _pairs(sees: Tensor, bucket: list[int], places: list[int], corner: Point) -> str:
    """Who sees whom as a matrix, rows and columns in the order of `places`."""
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


def memory_against_depth() -> Picture:
    """The megabytes that training keeps for the way back: ordinary and reversible stacks."""
    config, x = StackConfig(1, d_model=64, n_heads=4, d_ff=256, norm="pre"), torch.randn(4, 64, 64)
    kept = {
        kind: [Point(n, bytes_kept(kind(config, n_layers=n), x) / 2**20) for n in DEPTHS]
        for kind in (TransformerStack, ReversibleStack)
    }
    ordinary, reversible = kept[TransformerStack], kept[ReversibleStack]
    times = ordinary[-1].y / reversible[-1].y
    title = Words("Memory against depth", "깊이에 따른 메모리")
    caption = Words(
        f"What autograd keeps for the way back, counted tensor by tensor (batch 4, length 64, "
        f"d_model 64). An ordinary stack keeps every layer; a reversible one computes the inputs "
        f"again from the outputs. At {DEPTHS[-1]} layers that is {times:.0f} times less memory, "
        "for more computation.",
        f"역전파를 위해 저장하는 텐서의 크기를 하나하나 더했습니다(배치 4, 길이 64, d_model 64). "
        "보통의 스택은 모든 층을 저장하고, 가역 스택은 출력에서 입력을 다시 계산합니다. "
        f"{DEPTHS[-1]}층에서 메모리는 {times:.0f}분의 1이 되지만 계산은 늘어납니다.",
    )
    told = Words(
        f"Two lines over 1 to {DEPTHS[-1]} layers. Ordinary: from {ordinary[0].y:.1f} to "
        f"{ordinary[-1].y:.1f} MB. Reversible: {reversible[0].y:.1f} MB at 1 layer and "
        f"{reversible[-1].y:.1f} MB at {DEPTHS[-1]}.",
        f"1층부터 {DEPTHS[-1]}층까지의 선 두 개. 보통: {ordinary[0].y:.1f} MB에서 "
        f"{ordinary[-1].y:.1f} MB까지. 가역: 1층에서 {reversible[0].y:.1f} MB, {DEPTHS[-1]}층에서 "
        f"{reversible[-1].y:.1f} MB.",
    )
    names = (Words("ordinary", "보통 스택"), Words("reversible", "가역 스택"),
             Words("layers", "층 수"), Words("MB kept", "저장한 MB"))  # fmt: skip

    def draw(language: str) -> str:
        top = ordinary[-1].y * 1.1
        frame = Frame(38, 30, WIDTH - 54, 296, (0, DEPTHS[-1] + 0.4), (0, top))
        parts = [frame.axes({n: str(n) for n in DEPTHS}, round_ticks(0, top))]
        parts.append(text(8, 14, names[3].in_language(language), "label"))
        for points, kind, name in ((ordinary, "bad", 0), (reversible, "good", 1)):
            parts.append(frame.line(points, f"line-{kind} even"))
            parts += [frame.dot(point, f"fill-{kind}") for point in points]
            end = frame.at(points[-2])
            parts.append(
                text(end.x - 8, end.y - 12, names[name].in_language(language), "strong end")
            )
        parts.append(text(WIDTH / 2, 368, names[2].in_language(language), "label middle"))
        return svg(378, title.in_language(language), told.in_language(language), parts)

    return Picture("memory", title, caption, in_both(draw))


def bytes_kept(stack: TransformerStack, x: Tensor) -> int:
    """How many bytes autograd keeps of one forward pass, the stack's own parameters left out."""
    parameters = {p.untyped_storage().data_ptr() for p in stack.parameters()}
    kept: dict[
        int, Tensor
    ] = {}  # each storage once; the tensor keeps its address from being reused

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        stack.train()(x.clone().requires_grad_())
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
