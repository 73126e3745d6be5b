"""Complexity (rows I1 to I6): Table 1 of the paper, counted by torch and traced by gradients.

work ≠ steps that must wait for each other ≠ how far a signal has to travel
"""

import torch
from torch import Tensor

from polyhead.cost.complexity import (
    Convolution,
    fit,
    layers_to_see,
    layers_until_reached,
    recurrent_work,
    restricted_work,
    self_attention_work,
    sequential_steps,
)
from polyhead.cost.measured import kept_bytes, products
from polyhead.i18n import Words
from polyhead.layers.attention import FullAttention, attention
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.masks import Mask
from polyhead.layers.recurrent import Recurrence
from polyhead.notes.claims import Finding, check, close, same


@check(
    "I1",
    claim=Words(
        "Self-attention takes n² d work, in steps that do not grow with n",
        "셀프 어텐션의 연산량은 n²d이고, 순차 단계 수는 n에 따라 늘지 않는다",
    ),
    formula="QKᵀ: 2 n² d FLOPs,  A V: 2 n² d FLOPs",
    explain=Words(
        "Every one of n queries meets every one of n keys, and each meeting is d multiplications "
        "and additions; so is the weighted sum. Torch's counter finds exactly 4 n² d, an exponent "
        "of 2. As in the paper, the four projections (n d² each) are left out.",
        "n개의 쿼리가 n개의 키를 모두 만나고, 한 번 만날 때마다 곱셈과 덧셈이 d번씩 든다. 가중합도 "
        "마찬가지다. torch의 카운터로 세면 정확히 4n²d이며 지수는 2다. 논문처럼 네 개의 선형 "
        "변환(각각 nd²)은 세지 않았다.",
    ),
    code=(attention, self_attention_work),
)
def attention_is_quadratic() -> Finding:
    """Torch counts the products of equation (1) for four lengths."""

    def attend(x: Tensor) -> Tensor:
        return attention(*(x[:, None],) * 3)[:, 0]

    lengths, d = [32, 64, 128, 256], 16
    work = [products(lambda n=n: attend(torch.randn(1, n, d))) for n in lengths]  # type: ignore[misc]
    power, explained = fit(lengths, work)
    deeper = sequential_steps(attend, 256, d) - sequential_steps(attend, 32, d)
    exact = work == [4 * n * n * d for n in lengths] == [self_attention_work(n, d) for n in lengths]
    got = f"n^{power:.2f}, R² = {explained:.3f}, {deeper} more steps"
    return Finding("n^2.00, 0 more steps", got, exact and explained > 0.99 and deeper == 0)


@check(
    "I2",
    claim=Words(
        "A recurrent layer takes n steps, each waiting for the one before",
        "순환층은 n단계를 차례로 거쳐야 하고, 각 단계는 앞 단계를 기다린다",
    ),
    formula="h_t = f(x_t, h_{t-1})  ⇒  n sequential steps,  4 n d² FLOPs",
    explain=Words(
        "h_t cannot be computed before h_{t-1} is known. In the graph of the gradients the chain "
        "from the last state to the first becomes longer by the same amount for every word, so 64 "
        "words more are 64 steps more. This chain is also the path that a signal has to go.",
        "h_{t-1}을 알기 전에는 h_t를 계산할 수 없다. 역전파 그래프에서 마지막 상태부터 처음 "
        "상태까지의 사슬은 단어 하나마다 똑같은 만큼 길어진다. 따라서 단어가 64개 늘면 단계도 64개 "
        "늘어난다. 이 사슬이 곧 신호가 지나가야 하는 경로다.",
    ),
    code=(Recurrence, recurrent_work, sequential_steps),
)
def recurrence_waits() -> Finding:
    """How many steps 64 more words take, by the longest chain of the graph."""
    layer = Recurrence("rnn", 8, 1, 0.0)

    def read(x: Tensor) -> Tensor:
        return layer(x, (torch.zeros(1, 1, 8),))[0]

    depth = {n: sequential_steps(read, n, 8) for n in (64, 65, 128)}
    steps = (depth[128] - depth[64]) / (depth[65] - depth[64])
    work = products(lambda: read(torch.randn(1, 64, 8)))
    found = same(expected=64.0, got=steps)
    return found if work == recurrent_work(64, 8) == 4 * 64 * 8**2 else same(4 * 64 * 8**2, work)


@check(
    "I3",
    note="imprecise",
    claim=Words(
        "Convolutions connect n positions in log_k n layers only if dilated",
        "합성곱이 log_k n개 층으로 n개 위치를 잇는 것은 팽창 합성곱뿐이다",
    ),
    formula="seen after L layers: k^L (dilated 1, k, k², …),  1 + (k - 1) L (contiguous)",
    explain=Words(
        "The note gives log_k n for every convolution. That holds if each layer is dilated k times "
        "as far as the one below it. Contiguous kernels see k - 1 positions more with every layer "
        "and need about n / k of them. Here layers are stacked until the gradient of the last of "
        "27 positions reaches the first.",
        "노트는 모든 합성곱의 경로를 log_k n으로 적었다. 이것은 층마다 간격을 k배씩 벌리는 팽창"
        "(dilated) 합성곱일 때만 맞다. 붙어 있는 커널은 층마다 k-1개 위치만 더 보므로 약 n/k개 "
        "층이 필요하다. 여기서는 27개 위치 중 마지막의 기울기가 처음에 닿을 때까지 층을 쌓아 "
        "보았다.",
    ),
    code=(Convolution, layers_until_reached, layers_to_see),
)
def convolutions_connect() -> Finding:
    """Layers until position 27 depends on position 1, dilated and contiguous, k = 3."""
    dilated = layers_until_reached(lambda layer: Convolution(4, 3, 3**layer), 27, 4)
    contiguous = layers_until_reached(lambda _: Convolution(4, 3), 27, 4)
    computed = [layers_to_see(27, 3, dilated=True), layers_to_see(27, 3, dilated=False)]
    found = same(expected=[3, 13], got=[dilated, contiguous] if computed == [3, 13] else computed)
    return found.but_noted([3, 3], differs=contiguous != 3)


@check(
    "I4",
    claim=Words(
        "Restricted attention: work grows with n, the path with n / r",
        "제한된 셀프 어텐션의 연산량은 n에, 경로는 n/r에 비례한다",
    ),
    formula="|i - j| ≤ r:  O(r n d) FLOPs,  ⌈(n - 1) / r⌉ layers from end to end",
    explain=Words(
        "Everyone sees only r neighbours on either side, so twice the length is twice the work and "
        "not four times. The price: a signal moves r positions a layer. The result is that of full "
        "attention under a band mask.",
        "모두가 좌우로 r개의 이웃만 보므로 길이가 두 배가 되면 연산량도 네 배가 아니라 두 배가 "
        "된다. 대신 신호는 한 층에 r칸씩만 나아간다. 결과는 띠 모양 마스크를 씌운 일반 어텐션과 "
        "같다.",
    ),
    code=(LocalAttention, restricted_work),
)
def neighbours_only() -> Finding:
    """Exponent of the work, and layers until position 65 depends on position 1, r = 16."""
    local = LocalAttention(window=16)

    def attend(x: Tensor) -> Tensor:
        return local(*(x[:, None],) * 3)[:, 0]

    x, place = torch.randn(1, 1, 100, 8), torch.arange(100)
    band = (place[:, None] - place).abs() <= 16
    right = close(attention(x, x, x, Mask(pairs=band[None])), local(x, x, x), within=1e-5)
    lengths = [256, 512, 1024]
    work = [products(lambda n=n: attend(torch.randn(1, n, 8))) for n in lengths]  # type: ignore[misc]
    enough = all(w >= restricted_work(n, 8, 2 * 16) for n, w in zip(lengths, work, strict=True))
    layers = layers_until_reached(lambda _: attend, 65, 2)
    found = close(expected=[1.0, 4.0], got=[fit(lengths, work)[0], float(layers)], within=0.01)
    shown = Finding(
        "n^1.00, 4 layers", f"n^{fit(lengths, work)[0]:.2f}, {layers} layers", found.holds
    )
    return shown if right.holds and enough else right


@check(
    "I5",
    note="imprecise",
    claim=Words(
        "Parallel hardware makes QKᵀ one step; its work stays n² d",
        "병렬 하드웨어로 QKᵀ는 한 단계가 되지만 연산량은 여전히 n²d다",
    ),
    formula="n → 4 n:  sequential steps x 1,  work x 16",
    explain=Words(
        "The note says that with enough parallelism the complexity O(n² d) becomes O(1). What "
        "becomes O(1) is the number of sequential operations: no product waits for another one. "
        "The multiplications are all done and all cost energy; and enough processors for n² of "
        "them do not exist for long input.",
        "노트는 병렬화만 충분하면 복잡도 O(n²d)가 O(1)이 된다고 한다. O(1)이 되는 것은 순차 연산의 "
        "수, 곧 서로 기다려야 하는 단계의 수다. 곱셈 자체는 모두 수행되고 에너지도 그만큼 든다. "
        "입력이 길면 n²개를 동시에 처리할 만큼의 연산기도 없다.",
    ),
    code=(attention, sequential_steps),
)
def steps_are_not_work() -> Finding:
    """How both grow if the input becomes four times as long."""

    def attend(x: Tensor) -> Tensor:
        return attention(*(x[:, None],) * 3)[:, 0]

    steps = sequential_steps(attend, 256, 8) / sequential_steps(attend, 64, 8)
    short, long = (products(lambda n=n: attend(torch.randn(1, n, 8))) for n in (64, 256))  # type: ignore[misc]
    growth = long / short
    found = Finding("steps x 1, work x 16", f"steps x {steps:g}, work x {growth:g}",
                    (steps, growth) == (1, 16))  # fmt: skip
    return found.but_noted("work x 1", differs=growth != 1)


@check(
    "I6",
    claim=Words(
        "Self-attention keeps n² weights; n is the data's choice, not ours",
        "셀프 어텐션은 n²개의 가중치를 저장하며, n은 우리가 정할 수 없다",
    ),
    formula="4 bytes · batch · heads · n²   (as printed),   n² → n  (fused)",
    explain=Words(
        "d is chosen by us, n by whoever wrote the text. Equation (1) as printed keeps all weights "
        "until the gradient has come by: four bytes for each pair of positions in each head. A "
        "fused kernel keeps one number for each query and computes the weights again on the way "
        "back.",
        "d는 우리가 정하지만 n은 글을 쓴 사람이 정한다. 식 (1)을 그대로 계산하면 역전파가 끝날 "
        "때까지 헤드마다 모든 위치 쌍의 가중치를 4바이트씩 들고 있어야 한다. 융합(fused) 커널은 "
        "쿼리마다 수 하나만 저장하고 역전파 때 가중치를 다시 계산한다.",
    ),
    code=(attention, FullAttention, kept_bytes),
)
def weights_in_memory() -> Finding:
    """Bytes that autograd keeps beyond Q, K and V."""
    batch, heads, n, d_head = 2, 4, 256, 16
    q, k, v = (torch.randn(batch, heads, n, d_head, requires_grad=True) for _ in range(3))
    printed = kept_bytes(lambda: attention(q, k, v), without=(q, k, v))
    fused = kept_bytes(lambda: FullAttention()(q, k, v), without=(q, k, v))
    output_and_sums = 4 * batch * heads * n * (d_head + 1)
    return same(expected=[4 * batch * heads * n**2, output_and_sums], got=[printed, fused])
