"""The Reformer (rows N1 to N10): near vectors by hashing, and layers that can be undone.

near(i, j)  ⇐  bucket(i) = bucket(j),    bucket(x) = argmax [xR ; -xR]
"""

from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.cost.measured import kept_bytes, products
from polyhead.i18n import Words
from polyhead.layers.attention import attention
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.lsh.attention import (
    Arrangement,
    LSHAttention,
    dense_shared_qk,
    shared_qk_weights,
)
from polyhead.layers.lsh.hashing import draw_rotations, hash_vectors, sort_by_bucket
from polyhead.layers.masks import EVERYTHING, THE_PAST
from polyhead.layers.reversible import ReversibleStack
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.notes.claims import Finding, check, close, same


@check(
    "N1",
    note="wrong",
    claim=Words(
        "Attention's work grows quadratically with the length",
        "어텐션의 연산량은 길이의 제곱에 비례해 늘어난다",
    ),
    formula="work(2n) / work(n) = 4,   for every n",
    explain=Words(
        "The note says that the work grows exponentially with the number of tokens. Then every "
        "doubling of the length would multiply it by more than the doubling before: 4, 16, 256. "
        "Torch counts 4, 4, 4. Quadratic growth is bad enough for long inputs, and is what the "
        "Reformer avoids.",
        "노트는 토큰 수가 많아질수록 연산량이 기하급수적으로 늘어난다고 한다. 그렇다면 길이를 두 "
        "배로 할 때마다 배율이 4, 16, 256처럼 점점 커져야 한다. torch로 세어 보면 4, 4, 4로 "
        "일정하다. 즉 제곱에 비례하며, Reformer가 피하려는 것도 이 제곱 증가다.",
    ),
    code=(attention,),
)
def quadratic() -> Finding:
    """By how much three doublings of the length multiply the matrix products."""
    work = []
    for n in (32, 64, 128, 256):
        q, k, v = torch.randn(3, 1, 1, n, 16)
        work.append(products(lambda q=q, k=k, v=v: attention(q, k, v)))  # type: ignore[misc]
    grown = [after / before for before, after in pairwise(work)]
    exponentially = [grown[0] ** (2**i) for i in range(3)]  # with the same first step
    found = same(expected=[4.0, 4.0, 4.0], got=grown)
    return found.but_noted(exponentially, differs=exponentially != grown)


@check(
    "N2",
    note="wrong",
    claim=Words(
        "Reversible layers save memory and cost a third more work",
        "가역 층은 메모리를 아끼는 대신 연산이 3분의 1 늘어난다",
    ),
    formula="kept(12 layers) = kept(2 layers),   work = 4/3 of an ordinary step",
    explain=Words(
        "The note says that reversible layers reduce the computation of the residual connections. "
        "What they reduce is what has to be kept for the way back, which no longer grows with "
        "depth. The computation grows: an ordinary step is one way there and two on the way back, "
        "and here the way there is gone a second time.",
        "노트는 가역 층이 잔차 연결의 연산량을 줄인다고 한다. 실제로 줄어드는 것은 역전파를 위해 "
        "저장하는 활성값이며, 층이 깊어져도 늘지 않는다. 연산은 오히려 늘어난다. 보통은 순전파 1, "
        "역전파 2의 일을 하는데, 여기서는 순전파를 한 번 더 하기 때문이다.",
    ),
    code=(ReversibleStack, TransformerStack),
)
def memory_not_work() -> Finding:
    """Bytes kept at two depths, and the matrix products of one training step."""
    config, x = StackConfig(2, 16, 2, 32, norm="pre"), torch.randn(2, 8, 16, requires_grad=True)
    stacks = [
        kind(config, n_layers=n) for kind in (TransformerStack, ReversibleStack) for n in (2, 12)
    ]
    kept = [kept_bytes(lambda s=s: s(x), without=s.parameters()) for s in stacks]  # type: ignore[misc]
    work = [products(lambda s=s: s(x).sum().backward()) for s in stacks[1::2]]  # type: ignore[misc]
    deeper, harder = kept[3] / kept[2], work[1] / work[0]
    ordinary = kept[1] / kept[0]
    holds = deeper == 1.0 and abs(harder - 4 / 3) < 0.01 and ordinary > 4
    expected, got = "memory x1.00, work x1.33", f"memory x{deeper:.2f}, work x{harder:.2f}"
    return Finding(expected, got, holds).but_noted("work below x1.00", differs=harder > 1)


@check(
    "N3",
    claim=Words(
        "The nearer two vectors, the more often they share a bucket",
        "가까운 벡터일수록 같은 버킷에 들어갈 확률이 높다",
    ),
    formula="cos(x, y) ↑  ⇒  P[h(x) = h(y)] ↑",
    explain=Words(
        "An ordinary hash scatters neighbours; a locality-sensitive one keeps them together with a "
        "probability that rises with their cosine. Four thousand pairs at each of five angles are "
        "hashed into 16 buckets: strangers meet less than once in 16 times, equal vectors always.",
        "보통의 해시는 이웃을 흩어 놓지만, 지역 민감 해시는 코사인 유사도가 클수록 높은 확률로 "
        "같은 값을 준다. 다섯 가지 각도에서 각각 4천 쌍을 16개 버킷으로 해시하면, 서로 수직인 "
        "벡터는 16번에 한 번도 채 만나지 못하고 같은 벡터는 항상 만난다.",
    ),
    code=(hash_vectors, draw_rotations),
)
def collisions() -> Finding:
    """How often pairs at a given cosine share one of 16 buckets."""
    x, away = torch.linalg.qr(torch.randn(4000, 16, 2)).Q.unbind(-1)  # at right angles
    rates = []
    for cosine in (0.0, 0.5, 0.8, 0.95, 1.0):
        y = cosine * x + (1 - cosine**2) ** 0.5 * away
        buckets = hash_vectors(torch.stack([x, y])[:, None], draw_rotations(16, 16, 1, like=x))
        rates.append(round((buckets[:, 0] == buckets[:, 1]).float().mean().item(), 3))
    rising = rates == sorted(rates) and rates[-1] == 1.0 and rates[0] < 1 / 16 + 0.02
    return Finding("rising to 1", " < ".join(f"{rate:g}" for rate in rates), rising)


@check(
    "N4",
    note="imprecise",
    claim=Words(
        "A bucket is the axis a rotated vector points along most",
        "버킷은 회전한 벡터가 가장 크게 향하는 축의 방향이다",
    ),
    formula="h(x) = argmax [xR ; -xR],   R random, (d, b/2)",
    explain=Words(
        "The note takes the number of the quadrant, which is the drawing in the plane. In d "
        "dimensions there would be 2^d quadrants, for 16 already 65,536. What is used is a random "
        "rotation to b/2 axes, each with two ends: b buckets for whatever b one needs. The length "
        "of the vector does not matter.",
        "노트는 사분면의 번호를 해시로 쓴다고 하는데, 이는 2차원 그림에서만 맞다. d차원에서는 "
        "사분면에 해당하는 영역이 2^d개라서 16차원이면 벌써 65,536개다. 실제로는 b/2개의 축으로 "
        "무작위 회전을 하고, 축마다 양끝이 있으므로 원하는 만큼 b개의 버킷을 얻는다. 벡터의 길이는 "
        "상관없다.",
    ),
    code=(hash_vectors, draw_rotations),
)
def axes() -> Finding:
    """The library's buckets against the formula by torch.argmax."""
    x = torch.randn(1, 1, 2000, 16)
    (rotation,) = rotations = draw_rotations(16, 8, 1, like=x)
    turned = x[0, 0] @ rotation[0]
    formula = torch.cat([turned, -turned], dim=-1).argmax(-1)
    ours, longer = hash_vectors(x, rotations)[0, 0, 0], hash_vectors(7 * x, rotations)[0, 0, 0]
    agree = torch.equal(ours.long(), formula) and torch.equal(ours, longer)
    quadrants = 2 ** x.size(-1)
    found = Finding("8 buckets, all as argmax", f"{len(ours.unique())} buckets", agree)
    return found.but_noted(f"{quadrants} quadrants", differs=len(ours.unique()) == 8)


@check(
    "N5",
    note="imprecise",
    claim=Words(
        "One shared bucket in any round is enough to be found",
        "여러 번의 해시 중 한 번만 같은 버킷이면 충분하다",
    ),
    formula="P_i = ∪_r P_i⁽ʳ⁾,   z_i = log Σ_{j ∈ P_i} exp(s_ij)",
    explain=Words(
        "The note says that near vectors come to share all hashes. They need not: a round that "
        "misses a neighbour is repaired by another, since a query sees the union of what its "
        "rounds find. Every round brings the result closer to dense attention. To demand all "
        "hashes would find less with every round.",
        "노트는 가까우면 전체 해시 값을 공유한다고 한다. 그럴 필요는 없다. 한 번의 해시가 이웃을 "
        "놓쳐도 다른 해시가 찾아 주며, 쿼리는 모든 회차에서 찾은 것의 합집합을 본다. 회차가 늘수록 "
        "전체 어텐션에 가까워진다. 모든 해시가 같아야 한다면 회차가 늘수록 오히려 덜 찾게 된다.",
    ),
    code=(LSHAttention, dense_shared_qk),
)
def rounds() -> Finding:
    """The distance to dense attention with 1, 2, 4 and 8 rounds, and pairs found by all 8."""
    q = 3 * torch.randn(16, 16).repeat(16, 1) + torch.randn(1, 4, 256, 16)
    v, kernel = torch.randn(1, 4, 256, 16), LSHAttention(16, 8)
    exact = dense_shared_qk(q, v)
    errors = [(LSHAttention(16, n)(q, q, v) - exact).norm() / exact.norm() for n in (1, 2, 4, 8)]
    falling = errors == sorted(errors, reverse=True) and errors[3] < errors[0] / 2

    arranged = kernel.arrange(q)
    one, *rest = (Arrangement(b[None], o[None], 16).sees()
                  for b, o in zip(*arranged[:2], strict=True))  # fmt: skip
    union = torch.stack([one, *rest]).any(0) & ~torch.eye(256, dtype=torch.bool)
    scores = (q @ F.normalize(q, dim=-1).mT).masked_fill(~union, -torch.inf)
    once = torch.allclose(
        kernel(q, q, v, EVERYTHING, arranged.buckets), scores.softmax(-1) @ v, atol=1e-5
    )
    every = torch.stack([one, *rest]).all(0).sum() / one.sum()
    shown = " > ".join(f"{error:.2f}" for error in errors)
    found = Finding("falling with the rounds", shown, falling and once)
    return found.but_noted(f"{every:.0%} of one round's pairs", differs=bool(every < 1))


@check(
    "N6",
    claim=Words(
        "Queries are keys; a key has length 1; nobody looks at oneself",
        "쿼리와 키는 같고, 키의 길이는 1이며, 자기 자신은 보지 않는다",
    ),
    formula="s_ij = q_i · q_j / ‖q_j‖  (j ≠ i),   no 1/√d",
    explain=Words(
        "With Q = K a vector would mostly find itself, so a position looks at itself only if it "
        "may look at nobody else, as the first of a text. Keys have unit length, or long vectors "
        "would be found by everyone. That is the scale already: to divide by √d once more, as a "
        "popular implementation does, makes the softmax almost flat.",
        "Q = K이면 벡터는 대개 자기 자신을 가장 가깝게 찾는다. 그래서 문장의 첫 토큰처럼 달리 볼 "
        "것이 없을 때만 자신을 본다. 키의 길이를 1로 맞추지 않으면 긴 벡터가 모두에게 선택된다. "
        "이것으로 크기 조절은 끝난다. 널리 쓰이는 한 구현처럼 √d로 한 번 더 나누면 소프트맥스가 "
        "거의 평평해진다.",
    ),
    code=(shared_qk_weights, LSHAttention),
)
def shared() -> Finding:
    """The weights of the kernel (one chunk) against the formula written out."""
    q = torch.randn(1, 2, 12, 16)
    scores = torch.einsum("bhid,bhjd->bhij", q, q / q.norm(dim=-1, keepdim=True))
    hidden = torch.ones(12, 12, dtype=torch.bool).triu()
    hidden[0, 0] = False  # the first has nobody else
    formula = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    values = torch.eye(12).expand(1, 2, 12, 12)  # so that the output is the weights
    kernel = LSHAttention(chunk=12, n_rounds=3)(q, q, values, THE_PAST)
    dense = close(formula, shared_qk_weights(q, q, THE_PAST), within=1e-5)
    return close(formula, kernel, within=1e-5) if dense.holds else dense


@check(
    "N7",
    claim=Words(
        "Sort by bucket, cut into equal chunks, undo the sort exactly",
        "버킷 순으로 정렬해 같은 크기로 자르고, 정렬은 정확히 되돌린다",
    ),
    formula="slot = rank of (bucket, position),   chunk = ⌊slot / m⌋",
    explain=Words(
        "Buckets are of unequal size, chunks are not, so that all chunks are one batch of equal "
        "matrices. Inside a bucket positions keep their order. The inverse permutation brings "
        "every result back to its own position.",
        "버킷의 크기는 제각각이지만 청크의 크기는 같아서, 모든 청크를 같은 크기의 행렬 묶음으로 "
        "한꺼번에 계산할 수 있다. 버킷 안에서는 원래 위치 순서를 지킨다. 역순열을 쓰면 모든 결과가 "
        "제자리로 돌아온다.",
    ),
    code=(sort_by_bucket, Arrangement.chunks),
)
def sorting() -> Finding:
    """Python's own sort of (bucket, position), and the way back."""
    buckets = torch.tensor([2, 0, 1, 2, 0, 2, 2, 1])
    order = sort_by_bucket(buckets[None, None, None])
    expected = sorted(range(8), key=lambda i: (int(buckets[i]), i))
    slots = order.argsort(dim=-1)
    back = order.take_along_dim(slots, dim=-1).flatten().tolist() == list(range(8))
    chunks = Arrangement(buckets[None, None, None], order, 4).chunks().flatten().tolist()
    undone = back and chunks == [expected.index(i) // 4 for i in range(8)]
    found = same(expected=expected, got=order.flatten().tolist())
    return found if undone else Finding(found.expected, "not undone", holds=False)


@check(
    "N8",
    note="wrong",
    claim=Words(
        "Visible: same bucket AND in the own or the previous chunk",
        "조건은 같은 버킷 '그리고' 자기 청크 또는 바로 앞 청크",
    ),
    formula="j ∈ P_i  ⇔  b(i) = b(j)  and  0 ≤ c(i) - c(j) ≤ 1",
    explain=Words(
        "The note joins the conditions by or: then whole buckets would be visible however long "
        "they are, and nothing would be saved. The paper's formula joins them by and. The authors' "
        "code leaves the bucket out and sees both chunks whole; here that is the default, and "
        "same_bucket asks for the formula. With one chunk and one bucket it is dense attention.",
        "노트는 조건들을 '또는'으로 잇는다. 그러면 아무리 큰 버킷이라도 전부 보게 되어 아끼는 것이 "
        "없다. 논문의 식은 '그리고'다. 저자들의 코드는 버킷 조건 없이 두 청크를 모두 보며, "
        "여기서도 그것이 기본값이고 same_bucket을 켜면 식 그대로가 된다. 청크와 버킷이 하나뿐이면 "
        "전체 어텐션과 같다.",
    ),
    code=(Arrangement.sees, LSHAttention, dense_shared_qk),
)
def visible_pairs() -> Finding:
    """Pair by pair: what the kernel sees against the two conditions and against the note's."""
    q, v = torch.randn(2, 1, 1, 60, 8)
    kernel = LSHAttention(chunk=6, n_rounds=1, n_buckets=4, same_bucket=True)
    arranged = kernel.arrange(q)
    bucket = arranged.buckets.flatten().tolist()
    order = sorted(range(60), key=lambda i: (bucket[i], i))
    near = [[order.index(i) // 6 - order.index(j) // 6 in (0, 1) for j in range(60)]
            for i in range(60)]  # fmt: skip
    both = [[near[i][j] and bucket[i] == bucket[j] for j in range(60)] for i in range(60)]
    either = [[near[i][j] or bucket[i] == bucket[j] for j in range(60)] for i in range(60)]
    seen = arranged.sees(same_bucket=True)[0, 0]
    pairs, found = torch.tensor(both), kernel(q, q, v, EVERYTHING, arranged.buckets)[0, 0]
    scores = q[0, 0] @ F.normalize(q[0, 0], dim=-1).T
    others = pairs & ~torch.eye(60, dtype=torch.bool)
    formula = scores.masked_fill(~others, -torch.inf).softmax(-1).nan_to_num() @ v[0, 0]
    company = others.any(-1)
    dense = LSHAttention(60, 2)(q, q, v, THE_PAST, torch.zeros(2, 1, 1, 60, dtype=torch.int64))
    holds = torch.equal(seen, pairs) and torch.allclose(found[company], formula[company], atol=1e-5)
    holds = holds and torch.allclose(dense, dense_shared_qk(q, v, THE_PAST), atol=1e-5)
    expected, noted = int(pairs.sum()), sum(map(sum, either))
    result = Finding(f"{expected} pairs", f"{int(seen.sum())} pairs", holds)
    return result.but_noted(f"{noted} pairs", differs=noted > expected)


@check(
    "N9",
    claim=Words(
        "A reversible block's input follows from its output",
        "가역 블록의 입력은 출력에서 거꾸로 계산할 수 있다",
    ),
    formula="y₁ = x₁ + F(x₂),  y₂ = x₂ + G(y₁)   ⇒   x₂ = y₂ - G(y₁),  x₁ = y₁ - F(x₂)",
    explain=Words(
        "Two streams take turns, so that each sum can be undone by a subtraction. The way back "
        "computes every input again, with the same dropout, instead of remembering it. The "
        "gradients are those of ordinary back-propagation through the same formulas.",
        "두 흐름이 번갈아 더해지므로 각 덧셈을 뺄셈으로 되돌릴 수 있다. 역전파 때 입력을 저장해 "
        "두지 않고 같은 드롭아웃으로 다시 계산한다. 기울기는 같은 식을 보통의 역전파로 미분한 것과 "
        "같다.",
    ),
    code=(ReversibleStack,),
)
def undone() -> Finding:
    """The gradient at the input against autograd through the two formulas, with dropout."""
    stack = ReversibleStack(StackConfig(4, 16, 2, 32, dropout=0.1, norm="pre")).double()
    x = torch.randn(2, 6, 16, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    y_1 = y_2 = x
    blocks: list[Any] = list(stack.blocks)
    for b in blocks:
        y_1 = y_1 + b.self_residual.branch(y_2, lambda h: b.attend(h, THE_PAST, BlockCache()))  # noqa: B023
        y_2 = y_2 + b.feed_residual.branch(y_1, b.feed_forward)
    weight = blocks[0].self_attention.w_v.weight
    out = stack.norm((y_1 + y_2) / 2)
    direction = torch.randn_like(out)
    expected = torch.autograd.grad(out, [x, weight], direction)
    torch.manual_seed(1)
    got = torch.autograd.grad(stack(x, THE_PAST), [x, weight], direction)
    first = close(expected[0], got[0], within=1e-9)
    return close(expected[1], got[1], within=1e-9) if first.holds else first


@check(
    "N10",
    claim=Words(
        "Feeding forward in pieces is exact, with less memory",
        "피드포워드를 나누어 계산해도 결과는 같고 메모리는 준다",
    ),
    formula="FFN([x_1 … x_n]) = [FFN(x_1 … x_c) ; … ; FFN(x_{n-c+1} … x_n)]",
    explain=Words(
        "Positions do not meet in the feed-forward network, therefore any number of them may be "
        "computed at a time. Nothing is approximated; only one piece of the wide inner layer "
        "exists at once.",
        "피드포워드 층에서는 위치끼리 섞이지 않으므로 몇 개씩 나누어 계산해도 된다. 근사가 아니라 "
        "정확히 같은 값이며, 폭이 넓은 안쪽 층은 한 번에 한 조각만 존재한다.",
    ),
    code=(FeedForward,),
)
def pieces() -> Finding:
    """Torch's two layers at once against ours in pieces of 7 positions."""
    ours, x = FeedForward(16, 64, "gelu", 0.0, chunk=7), torch.randn(2, 50, 16)
    at_once = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))
    at_once[0].load_state_dict(ours.w_1.state_dict())
    at_once[2].load_state_dict(ours.w_2.state_dict())
    widest: list[int] = []
    ours.w_1.register_forward_hook(lambda _, __, inner: widest.append(inner.numel() // 64))
    found = close(expected=at_once(x), got=ours(x), within=1e-6)
    return found if max(widest) == 7 else same(expected=7, got=max(widest))
