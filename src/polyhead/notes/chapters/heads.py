"""Multi-head attention (rows C1 to C9): several small attentions instead of a large one.

    MultiHead(X, Y) = Concat(head_1 … head_h) W_o
    head_i          = Attention(X W_q[i], Y W_k[i], Y W_v[i])

C10 is the sentence "I am a teacher", for which there is nothing to compute.
"""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.i18n import Words
from polyhead.layers.attention import FullAttention, MultiHeadAttention, attention_weights
from polyhead.layers.attention_hooks import recorded_attention
from polyhead.layers.masks import Mask
from polyhead.notes.claims import Finding, check, close, same


@check(
    "C1",
    claim=Words(
        "The heads are concatenated to h·d_v numbers, then W_o is applied",
        "헤드를 이어 붙이면 h·d_v차원이고, 그 뒤에 W_o를 곱한다",
    ),
    formula="Concat(head_1 … head_h) ∈ ℝⁿˣʰᵈᵛ,   W_o ∈ ℝʰᵈᵛˣᵈ",
    explain=Words(
        "Every head gives d_v numbers a token; side by side they are h·d_v numbers. The last "
        "linear layer brings them to the width the next layer wants. Here W_o is replaced by the "
        "identity, so that the concatenation itself can be seen.",
        "헤드마다 토큰당 d_v개의 수가 나오고, 나란히 붙이면 h·d_v개가 된다. 마지막 선형층이 이를 "
        "다음 층이 원하는 폭으로 바꾼다. 여기서는 이어 붙인 결과를 그대로 보려고 W_o를 단위행렬로 "
        "바꾼다.",
    ),
    code=(MultiHeadAttention,),
)
def heads_side_by_side() -> Finding:
    """What reaches W_o is head 1, then head 2, then head 3."""
    layer, x = MultiHeadAttention(12, 3, FullAttention()), torch.randn(1, 5, 12)
    nn.init.eye_(layer.w_o.weight)
    nn.init.zeros_(layer.w_o.bias)
    q, k, v = layer.w_q(x), layer.w_k(x), layer.w_v(x)
    heads = [
        F.scaled_dot_product_attention(q[..., i : i + 4], k[..., i : i + 4], v[..., i : i + 4])
        for i in (0, 4, 8)
    ]
    return close(expected=torch.cat(heads, dim=-1), got=layer(x, layer.project(x)), within=1e-6)


@check(
    "C2",
    claim=Words(
        "Eight Linear(512, 64) are one Linear(512, 512), cut in eight",
        "Linear(512, 64) 여덟 개는 Linear(512, 512) 하나를 여덟로 나눈 것이다",
    ),
    formula="[x W_1, …, x W_8] = x [W_1 … W_8]",
    explain=Words(
        "The note draws eight small layers. A program has one large layer whose rows are those of "
        "the small ones, stacked: the numbers are the same, and one large product is faster than "
        "eight small ones.",
        "노트에는 작은 층 여덟 개가 그려져 있다. 프로그램에는 그 행들을 쌓은 큰 층 하나가 있다. "
        "값은 똑같고, 큰 행렬곱 한 번이 작은 행렬곱 여덟 번보다 빠르다.",
    ),
    code=(MultiHeadAttention.project,),
)
def eight_small_layers() -> Finding:
    """The keys of all heads against eight separate layers with the same weights."""
    layer, x = MultiHeadAttention(512, 8, FullAttention()), torch.randn(1, 5, 512)
    small = []
    for weight, bias in zip(layer.w_k.weight.split(64), layer.w_k.bias.split(64), strict=True):
        head = nn.Linear(512, 64)
        head.load_state_dict({"weight": weight, "bias": bias})
        small.append(head(x))
    return close(expected=torch.stack(small, dim=1), got=layer.project(x).keys, within=1e-5)


@check(
    "C3",
    claim=Words(
        "MultiHead = Concat(head_1 … head_h) W_o is PyTorch's, too",
        "MultiHead = Concat(head_1 … head_h) W_o 는 PyTorch의 결과와 같다",
    ),
    formula="head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V),   W_i^Q ∈ ℝᵈˣᵈᵏ",
    explain=Words(
        "The library's layer and torch.nn.MultiheadAttention get the same weights and the same "
        "sentences, three positions that ask and five that answer. Their outputs agree to the "
        "last digits.",
        "이 라이브러리의 층과 torch.nn.MultiheadAttention에 같은 가중치와 같은 문장을 준다. 묻는 "
        "자리는 셋, 답하는 자리는 다섯이다. 두 출력은 끝자리까지 일치한다.",
    ),
    code=(MultiHeadAttention, FullAttention),
)
def all_heads_are_those_of_torch() -> Finding:
    """The same weights in torch's own layer."""
    ours = MultiHeadAttention(12, 3, FullAttention())
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())
    x, y = 3 * torch.randn(2, 3, 12), 3 * torch.randn(2, 5, 12)
    return close(expected=theirs(x, y, y)[0], got=ours(x, ours.project(y)), within=1e-5)


@check(
    "C4",
    claim=Words(
        "The width is divided by the heads: 512 in, 8 x 64, 512 out",
        "차원을 헤드 수로 나눈다: 512 입력, 8 x 64, 512 출력",
    ),
    formula="d_head = d_model / h",
    explain=Words(
        "Because the heads share the width, the output is as wide as the input, however many "
        "heads there are, and blocks can be stacked. A width that the heads do not divide is "
        "refused when the layer is built, with a message that names both numbers.",
        "헤드들이 차원을 나누어 가지므로 헤드가 몇 개든 출력의 폭은 입력과 같고, 그래서 블록을 "
        "쌓을 수 있다. 헤드 수로 나누어떨어지지 않는 폭은 층을 만들 때 두 수를 밝히는 메시지와 "
        "함께 거절된다.",
    ),
    code=(MultiHeadAttention,),
)
def the_width_is_shared() -> Finding:
    """Sizes on the way through, and what seven heads are told."""
    layer, x = MultiHeadAttention(512, 8, FullAttention()), torch.randn(1, 3, 512)
    kv = layer.project(x)
    sizes = [x.size(-1), kv.keys.size(1), kv.keys.size(-1), layer(x, kv).size(-1)]
    try:
        MultiHeadAttention(512, 7, FullAttention())
        seven = "accepted"
    except ValueError as error:
        seven = "refused" if "512" in str(error) and "7" in str(error) else str(error)
    return same(expected=[512, 8, 64, 512, "7 heads refused"], got=[*sizes, f"7 heads {seven}"])


@check(
    "C5",
    claim=Words(
        "Heads see different things because their projections differ",
        "투영이 서로 다르기 때문에 헤드마다 다른 것을 본다",
    ),
    formula="W_q[i] ≠ W_q[j]  ⇒  weights_i ≠ weights_j",
    explain=Words(
        "Eight readers or eight judges are a good picture, as long as one knows what makes them "
        "differ: all heads read the same tokens, and only their matrices are different. If all of "
        "them get the first head's matrices, their weights are all the same.",
        "'여덟 명의 독자'나 '여덟 명의 심사위원'은 좋은 비유다. 다만 무엇이 이들을 다르게 "
        "만드는지 알아야 한다. 모든 헤드는 같은 토큰을 읽고, 다른 것은 행렬뿐이다. 모두에게 첫 "
        "헤드의 행렬을 주면 가중치도 모두 같아진다.",
    ),
    code=(MultiHeadAttention, recorded_attention),
)
def eight_readers() -> Finding:
    """How many of the other seven heads look elsewhere than the first: as built, and if copied."""
    layer, x = MultiHeadAttention(64, 8, FullAttention()), torch.randn(1, 5, 64)
    different = []
    for copied in (False, True):
        with torch.no_grad():
            for part in (layer.w_q, layer.w_k) if copied else ():
                part.weight.copy_(part.weight[:8].repeat(8, 1))
                part.bias.copy_(part.bias[:8].repeat(8))
        with recorded_attention(layer) as maps:
            layer(x, layer.project(x))
        first, *others = maps[""][0]
        different.append(sum(not torch.allclose(first, other, atol=1e-5) for other in others))
    return same(expected=[7, 0], got=different)


@check(
    "C6",
    claim=Words(
        "Four steps: project, attend, concatenate, project back",
        "네 단계: 입력 투영, 어텐션 계산, 이어 붙이기, 마지막 선형층",
    ),
    formula="x → (xW_q, xW_k, xW_v) → softmax(qkᵀ/√d)v → concat → ·W_o",
    explain=Words(
        "The four steps of the note, written out with torch's functions, one line each. The "
        "library's layer gives the same numbers. In the library they are project (keys and "
        "values) and w_q, the kernel, the merging of heads, and w_o.",
        "노트의 네 단계를 torch 함수로 한 줄씩 적었다. 라이브러리의 층도 같은 값을 낸다. "
        "라이브러리에서는 차례로 project(키와 값)와 w_q, 커널, 헤드 합치기, w_o에 해당한다.",
    ),
    code=(MultiHeadAttention.project, FullAttention, MultiHeadAttention.forward),
)
def four_steps() -> Finding:
    """The recipe by hand against the layer."""
    layer, x = MultiHeadAttention(12, 3, FullAttention()), torch.randn(2, 5, 12)
    parts = layer.w_q, layer.w_k, layer.w_v
    q, k, v = (F.linear(x, part.weight, part.bias).view(2, 5, 3, 4) for part in parts)  # 1
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2  # 2: √4 = 2
    heads = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    joined = heads.reshape(2, 5, 12)  # 3
    expected = F.linear(joined, layer.w_o.weight, layer.w_o.bias)  # 4
    return close(expected=expected, got=layer(x, layer.project(x)), within=1e-5)


@check(
    "C7",
    note="wrong",
    claim=Words(
        "A query that may see nothing takes nothing, in any precision",
        "볼 것이 없는 쿼리는 어떤 정밀도에서도 아무것도 가져오지 않는다",
    ),
    formula="all keys hidden  ⇒  weights = 0, not 1/n and not NaN",
    explain=Words(
        "The note's layer stops in the middle: heads are neither joined nor projected nor "
        "returned. Its scale is a plain tensor that model.to() leaves behind, and it fills hidden "
        "scores with -1e10, so that a row without any visible key becomes uniform: it takes from "
        "padding what nobody should see. Here such a row is zero, the scale is a plain number, "
        "and the layer runs in half precision.",
        "노트의 층은 중간에서 끝난다. 헤드를 합치지도, 투영하지도, 돌려주지도 않는다. scale은 "
        "평범한 텐서라 model.to()를 해도 그대로 남고, 가릴 점수를 -1e10으로 채워 볼 수 있는 키가 "
        "하나도 없는 행은 균등 분포가 된다. 아무도 보면 안 되는 패딩에서 값을 가져오는 셈이다. "
        "여기서는 그런 행이 0이고, scale은 그냥 수이며, 층은 반정밀도에서도 동작한다.",
    ),
    code=(attention_weights, FullAttention, MultiHeadAttention),
)
def nothing_to_see() -> Finding:
    """Three hidden keys: our weights, the note's, and a whole layer with half the bits."""
    q, k = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 3, 4)
    nothing = Mask(keys=torch.zeros(1, 3, dtype=torch.bool))
    layer = MultiHeadAttention(4, 1, FullAttention()).half()
    x = torch.randn(1, 3, 4).half()
    taken = layer(x, layer.project(x), nothing)  # only W_o's bias is left of it
    survives = taken.dtype == torch.float16 and torch.equal(taken, layer.w_o.bias.expand(1, 3, 4))
    weights = attention_weights(q, k, nothing)[0, 0, 0]
    noted = (q @ k.mT / 2).masked_fill(torch.ones(1, 3, dtype=torch.bool), -1e10).softmax(-1)[0, 0]
    half = "half: runs" if survives else "half: broken"
    found = same(expected=[0.0, 0.0, 0.0, "half: runs"], got=[*weights.tolist(), half])
    return found.but_noted(noted[0], differs=not torch.equal(noted[0], weights))


@check(
    "C8",
    claim=Words(
        "Weights have the axes (batch, head, query, key)",
        "어텐션 가중치의 축은 (배치, 헤드, 쿼리, 키)이다",
    ),
    formula="weights ∈ ℝᵇˣʰˣ𐞥ˣᵏ,   Σ_key weights = 1",
    explain=Words(
        "Every head of every sentence has a table of its own: a row for each token that asks and "
        "a column for each token that may answer. With three that ask and five that answer the "
        "two cannot be mixed up; the rows, and not the columns, add up to one.",
        "문장마다, 헤드마다 표가 하나씩 있다. 묻는 토큰이 행이고 답하는 토큰이 열이다. 묻는 쪽이 "
        "셋, 답하는 쪽이 다섯이면 둘을 혼동할 수 없다. 합이 1인 것은 열이 아니라 행이다.",
    ),
    code=(recorded_attention, attention_weights),
)
def axes_of_the_weights() -> Finding:
    """Two sentences, eight heads, three queries, five keys; and along which axis they sum to 1."""
    layer = MultiHeadAttention(32, 8, FullAttention())
    x, y = torch.randn(2, 3, 32), torch.randn(2, 5, 32)
    with recorded_attention(layer) as maps:
        layer(x, layer.project(y))
    weights = maps[""]
    ones = [bool((weights.sum(axis) - 1).abs().max() < 1e-5) for axis in range(4)]
    sums = [name for name, one in zip(["batch", "head", "query", "key"], ones, strict=True) if one]
    return same(
        expected=[2, 8, 3, 5, "sum over key"], got=[*weights.shape, "sum over " + "+".join(sums)]
    )


@check(
    "C9",
    claim=Words(
        "view() needs numbers in a row; reshape() copies if it must",
        "view()는 연속된 메모리가 필요하고, reshape()는 필요하면 복사한다",
    ),
    formula="x.transpose(1, 2).view(…) fails;  .contiguous().view(…) = .reshape(…)",
    explain=Words(
        "Joining heads swaps two axes, and after that the numbers no longer lie in memory in the "
        "order in which they are read: view() refuses. The library joins heads by flatten(), "
        "which copies where needed, and its layers accept input that was transposed by others.",
        "헤드를 합칠 때 두 축을 바꾸면 수들이 읽는 순서대로 메모리에 놓여 있지 않게 되어 view()가 "
        "거절한다. 라이브러리는 필요할 때만 복사하는 flatten()으로 헤드를 합치며, 남이 "
        "transpose한 입력도 그대로 받아들인다.",
    ),
    code=(MultiHeadAttention,),
)
def numbers_in_a_row() -> Finding:
    """What view() says to a transposed tensor, and what the layer makes of it."""
    layer, turned = MultiHeadAttention(12, 3, FullAttention()), torch.randn(2, 12, 5).mT
    try:
        turned.view(2, 60)
        view = "works"
    except RuntimeError:
        view = "refuses"
    straight = turned.contiguous()
    merged = layer(turned, layer.project(turned))
    gap = (merged - layer(straight, layer.project(straight))).abs().max().item()
    alike = torch.equal(turned.reshape(2, 60), straight.view(2, 60)) and gap < 1e-6
    heard = "layer: the same" if alike else f"layer: off by {gap:.2g}"
    return same(expected=["view refuses", "layer: the same"], got=[f"view {view}", heard])
