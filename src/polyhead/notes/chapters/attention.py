"""Attention and its scores (rows B1 to B18): softmax(Q Kᵀ / √d_k) V.

B5 is a slip of the pen (d_i for d_k, see B4); B12 and B14 are about words: see the glossary.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.i18n import Words
from polyhead.layers.attention import (
    FullAttention,
    MultiHeadAttention,
    attention,
    attention_weights,
)
from polyhead.layers.attention_scores import Additive, Dot, General, ScaledDot, ScoredAttention
from polyhead.layers.kv_cache import Memory
from polyhead.layers.masks import EVERYTHING, Mask
from polyhead.layers.recurrent import LookBack
from polyhead.layers.transformer_stack import StackConfig, TransformerBlock
from polyhead.notes.claims import Finding, check, close, same, shown


@check(
    "B1",
    claim=Words("Attention is softmax(QKᵀ/√d_k)V", "어텐션은 softmax(QKᵀ/√d_k)V이다"),
    formula="Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V",
    explain=Words(
        "Every query compares itself with every key, turns the scores into shares that add up to "
        "one, and takes that share of every value. The formula as printed and the fast kernel of "
        "the library agree with PyTorch's, with a mask and without.",
        "쿼리마다 모든 키와 견주어 점수를 내고, 그 점수를 합이 1인 비율로 바꾼 뒤, 그 비율만큼 "
        "값을 가져온다. 식을 그대로 옮긴 함수와 빠른 커널 모두 마스크가 있든 없든 PyTorch와 같다.",
    ),
    code=(attention, FullAttention),
)
def the_formula() -> Finding:
    """The formula and the kernel against PyTorch, with all keys and with a third of them hidden."""
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    mask = Mask(keys=torch.tensor([[True] * 4 + [False] * 2, [True] * 6]))
    allowed = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])[:, None, None]
    kernels = attention, FullAttention()
    ours = [kernel(q, k, v, m) for kernel in kernels for m in (EVERYTHING, mask)]
    theirs = [F.scaled_dot_product_attention(q, k, v, attn_mask=m) for m in (None, allowed)]
    return close(expected=torch.stack(theirs * 2), got=torch.stack(ours), within=1e-6)


@check(
    "B2",
    note="imprecise",
    claim=Words("The softmax runs over the keys: dim = -1", "softmax는 키 방향(dim = -1)으로 한다"),
    formula="Σ_key weights[batch, head, query, key] = 1",
    explain=Words(
        "The note says dim = 1. For one unbatched table (query, key) that is the keys; with a "
        "batch and heads dimension 1 is the heads, and a query's weights no longer add up to one. "
        "The last axis is right in every case.",
        "노트에는 dim = 1이라고 되어 있다. 배치 없는 (쿼리, 키) 표에서는 키 방향이지만, 배치와 "
        "헤드가 붙으면 1번 축은 헤드가 되어 가중치의 합이 1이 되지 않는다. 마지막 축이 늘 맞다.",
    ),
    code=(attention_weights,),
)
def softmax_over_keys() -> Finding:
    """The sum of four rows of weights: ours, and if the softmax runs over dimension 1."""
    q, k = torch.randn(2, 2, 3, 4, 8)
    rows = attention_weights(q, k)[0, 0].sum(-1)
    noted = (q @ k.mT / math.sqrt(8)).softmax(dim=1)[0, 0].sum(-1)
    found = close(expected=torch.ones(4), got=rows, within=1e-6)
    return found.but_noted(noted, differs=bool((noted - 1).abs().max() > 0.1))


@check(
    "B3",
    claim=Words("Var(q·k) = d_k, and 1 after the scale", "Var(q·k) = d_k이고, 나누면 1이 된다"),
    formula="Var(Σ q_i k_i) = Σ Var(q_i) Var(k_i) = d_k",
    explain=Words(
        "Products of d_k independent numbers add up, and so do their variances. Large scores push "
        "the softmax into its flat ends, where its slope, here 1 - Σ p², is nearly zero and "
        "nothing is learned. Dividing by √d_k brings the variance back to 1, whatever the width.",
        "서로 독립인 수의 곱 d_k개를 더하면 분산도 그만큼 더해진다. 점수가 크면 softmax의 평평한 "
        "끝으로 밀려 기울기(여기서는 1 - Σ p²)가 거의 0이 되고 학습이 멈춘다. √d_k로 나누면 폭과 "
        "상관없이 분산이 1로 돌아온다.",
    ),
    code=(Dot, ScaledDot),
)
def variance_of_scores() -> Finding:
    """The variance for d_k = 4, 64 and 512, plain and scaled; and the slope that is left at 512."""
    variances, slopes = [], []
    for score in (Dot(), ScaledDot()):
        for d_k in (4, 64, 512):
            scores = score(*torch.randn(2, 1, 1, 2000, d_k))
            variances.append(scores.var().item())
        slopes.append(1 - scores[0, 0, :, :50].softmax(-1).square().sum(-1).mean().item())
    holds = close([4.0, 64.0, 512.0, 1.0, 1.0, 1.0], variances, within=0.05).holds
    holds = holds and slopes[0] < 0.2 < 0.8 < slopes[1]
    return Finding("[4, 64, 512, 1, 1, 1]", shown([f"{v:.3g}" for v in variances]), holds)


@check(
    "B4",
    note="imprecise",
    claim=Words("The factor is 1/√d_head, not 1/√d_model", "√d_model이 아니라 √d_head로 나눈다"),
    formula="d_model = 512, 8 heads:  1/√64 = 0.125",
    explain=Words(
        "The note calls the scale a heuristic and leaves the formula to a picture. It is exact: "
        "one over the root of the width of the vectors that are multiplied, which is that of one "
        "head. With the width of the whole model all scores would be too small by √8.",
        "노트는 이를 휴리스틱이라 하고 식은 그림에만 있다. 실제로는 정확한 값으로, 곱하는 벡터의 "
        "폭, 곧 헤드 하나의 폭의 제곱근으로 나눈다. 모델 전체의 폭을 쓰면 점수가 √8배 작아진다.",
    ),
    code=(FullAttention, MultiHeadAttention.project),
)
def the_factor() -> Finding:
    """Values that are unit vectors show the weights; their logarithms show what was divided by."""
    layer, x = MultiHeadAttention(512, 8, FullAttention()), torch.randn(1, 3, 512)
    k = layer.project(x).keys
    weights = layer.kernel(k, k, torch.eye(3).expand(1, 8, 3, 3))  # keys ask each other
    factor = weights.log().diff().norm() / torch.einsum("bhqd,bhkd->bhqk", k, k).diff().norm()
    found = close(expected=1 / math.sqrt(64), got=factor.item(), within=1e-5)
    return found.but_noted(1 / math.sqrt(512), differs=True)


@check(
    "B6",
    note="wrong",
    claim=Words("The weighted score is QWKᵀ, not QKᵀW", "가중 점수는 QKᵀW가 아니라 QWKᵀ이다"),
    formula="q = [1 2], K = [3 4; 5 6; 7 8]:  q I Kᵀ = [11 17 23]",
    explain=Words(
        "The note writes QKᵀW. But QKᵀ is a table of queries and keys, which a matrix over "
        "features does not fit. The matrix stands between the two (Luong's general score), and "
        "may then join queries and keys of different widths.",
        "노트에는 QKᵀW라고 되어 있다. 그러나 QKᵀ는 쿼리와 키의 표이므로 특징 차원의 행렬을 뒤에 "
        "곱할 수 없다. 행렬은 둘 사이에 놓이며(Luong의 general 점수), 폭이 다른 쿼리와 키도 "
        "잇는다.",
    ),
    code=(General,),
)
def matrix_in_the_middle() -> Finding:
    """The general score with the identity; with keys of another width; and the note's product."""
    q, k = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]]])
    general, wide = General(1, 2, 2), General(1, 2, 5)
    nn.init.eye_(general.w.data[0])
    try:
        noted = shown((q @ k.mT @ general.w).flatten())
    except RuntimeError:
        noted = "1x3 times 2x2: impossible"
    more = f"width 5: {wide(q, torch.randn(1, 1, 3, 5)).numel()} scores"
    got = [*general(q, k).flatten().tolist(), more]
    found = same(expected=[11.0, 17.0, 23.0, "width 5: 3 scores"], got=got)
    return found.but_noted(noted, differs=noted != found.expected)


@check(
    "B7",
    note="wrong",
    claim=Words("Self-attention never looks at the encoder", "셀프 어텐션은 인코더를 보지 않는다"),
    formula="self: Q, K, V from x        cross: Q from x, K and V from the memory",
    explain=Words(
        "Under the title self-attention the note takes queries from the decoder and keys and "
        "values from the encoder. That is cross-attention. In self-attention all three come from "
        "the same sequence: another memory changes nothing.",
        "노트는 셀프 어텐션 항목에서 쿼리는 디코더, 키와 값은 인코더에서 온다고 한다. 그것은 "
        "크로스 어텐션이다. 셀프 어텐션에서는 셋 다 같은 문장에서 나와 메모리를 바꾸어도 그대로다.",
    ),
    code=(TransformerBlock.attend, TransformerBlock.recall),
)
def self_is_not_cross() -> Finding:
    """How much the two attentions of one block change when it is given another memory."""
    block = TransformerBlock(StackConfig(d_model=16, n_heads=2, d_ff=32, dropout=0.0), cross=True)
    x, one, other = torch.randn(3, 1, 4, 16)
    heard: list[torch.Tensor] = []
    for part in block.children():
        if isinstance(part, MultiHeadAttention):
            part.register_forward_hook(lambda _part, _inputs, output: heard.append(output))
    for states in (one, other):
        block(x, memory=Memory(states, EVERYTHING))
    moved = [(heard[i + 2] - heard[i]).abs().max().item() for i in (0, 1)]
    return same(expected=0.0, got=moved[0]).but_noted(moved[1], differs=moved[1] > 0.01)


@check(
    "B8",
    note="wrong",
    claim=Words("Scores, weights and output are three things", "점수, 가중치, 출력은 서로 다르다"),
    formula="scores = QKᵀ/√d_k,   weights = softmax(scores),   output = weights V",
    explain=Words(
        "The note calls softmax(…)V the attention score. Scores are any numbers, before the "
        "softmax; weights are shares that add up to one; the output is a vector of values. The "
        "library keeps the three names apart.",
        "노트는 softmax(…)V를 어텐션 점수라고 부른다. 점수는 softmax 이전의 수, 가중치는 합이 1인 "
        "비율, 출력은 값을 섞은 벡터다. 라이브러리는 세 이름을 구별한다.",
    ),
    code=(ScaledDot, attention_weights, attention),
)
def three_names() -> Finding:
    """Scores 1, 0, 0 by hand: their weights, and the output for the values 1, 2, 3."""
    q, k = torch.ones(1, 1, 1, 4), torch.tensor([[[[0.5] * 4, [0.0] * 4, [0.0] * 4]]])
    v, e = torch.tensor([[[[1.0], [2.0], [3.0]]]]), math.e
    expected = torch.tensor([1, 0, 0, e / (e + 2), 1 / (e + 2), 1 / (e + 2), (e + 5) / (e + 2)])
    parts = [ScaledDot()(q, k), attention_weights(q, k), attention(q, k, v)]
    found = close(expected, torch.cat([part.flatten() for part in parts]), within=1e-6)
    return found.but_noted(f"score {shown(parts[2].item())}", differs=parts[2].numel() != 3)


@check(
    "B9",
    note="imprecise",
    claim=Words("Weights are softmax of scaled similarity", "가중치는 나눈 유사도의 softmax이다"),
    formula="Σ softmax(q·k_i/√d_k) v_i = (10e + 20)/(e + 1) = 12.69,  not Σ (q·k_i) v_i = 20",
    explain=Words(
        "The note first writes a sum of values times dot products. Its shares may be negative and "
        "add up to anything; attention divides by √d_k and takes the softmax. Here dot products "
        "of 2 and 0 with d_k = 4 weigh the values 10 and 20.",
        "노트는 먼저 내적과 값을 곱해 더하는 식을 적는다. 그런 비율은 음수일 수 있고 합도 1이 "
        "아니다. 실제 어텐션은 √d_k로 나누고 softmax를 한다. 여기서는 d_k = 4에서 내적이 2와 0인 "
        "두 키로 값 10과 20을 섞는다.",
    ),
    code=(attention,),
)
def shares_and_not_products() -> Finding:
    """Two keys, d_k = 4: attention, and the sum without a softmax."""
    q, k = torch.ones(1, 1, 1, 4), torch.tensor([[[[0.5] * 4, [0.0] * 4]]])
    v = torch.tensor([[[[10.0], [20.0]]]])
    noted = ((q @ k.mT) @ v).item()
    found = close((10 * math.e + 20) / (math.e + 1), attention(q, k, v).item(), within=1e-6)
    return found.but_noted(noted, differs=abs(noted - attention(q, k, v).item()) > 1)


@check(
    "B10",
    claim=Words("q = x·W_q; nn.Linear stores Wᵀ", "q = x·W_q이고 nn.Linear는 Wᵀ를 저장한다"),
    formula="k = x W_k + b_k   with   W_k = w_k.weightᵀ",
    explain=Words(
        "Tokens are rows, so matrices are multiplied from the right. PyTorch keeps them "
        "transposed. Keys and values of the library's layer are these products, cut into heads.",
        "토큰이 행이므로 행렬은 오른쪽에서 곱한다. PyTorch는 이를 전치해서 저장한다. 라이브러리 "
        "층의 키와 값은 이 곱을 헤드별로 나눈 것이다.",
    ),
    code=(MultiHeadAttention.project,),
)
def rows_times_matrices() -> Finding:
    """Keys and values against the product written out, head by head."""
    layer, x = MultiHeadAttention(8, 2, FullAttention()), torch.randn(1, 5, 8)
    products = [x[0] @ part.weight.T + part.bias for part in (layer.w_k, layer.w_v)]
    expected = torch.stack([torch.stack([p[:, :4], p[:, 4:]]) for p in products])
    return close(expected, got=torch.cat(layer.project(x)), within=1e-6)


@check(
    "B11",
    note="imprecise",
    claim=Words("The old attention has values: K = V = h", "옛 어텐션에도 값이 있다: K = V = h"),
    formula="context = Σ softmax(vᵀ tanh(W_q s + W_k h_i)) h_i",
    explain=Words(
        "The note says that attention before the Transformer knew only keys and queries. It had "
        "values: the encoder's states h were found by and taken, both. The Transformer projects "
        "them twice, so that what a word is found by need not be what it says.",
        "노트는 트랜스포머 이전의 어텐션에는 키와 쿼리만 있었다고 한다. 값도 있었다. 인코더 상태 "
        "h가 찾는 기준이자 가져오는 내용이었다. 트랜스포머는 h를 두 번 투영해 둘을 나눈다.",
    ),
    code=(LookBack, Additive),
)
def found_by_and_taken() -> Finding:
    """Bahdanau's context by hand: only with h as values is there a vector, not just weights."""
    s, h, score = torch.randn(1, 1, 4), torch.randn(1, 3, 4), Additive(1, 4, 4)
    energy = torch.tanh(s[0] @ score.w_q[0] + h[0] @ score.w_k[0]) @ score.v[0]
    alpha = energy.exp() / energy.exp().sum()
    expected = alpha[0] * h[0, 0] + alpha[1] * h[0, 1] + alpha[2] * h[0, 2]
    got = LookBack(ScoredAttention(score))(s, Memory(h, EVERYTHING))[0, 0]
    found = close(expected, got, within=1e-5)
    return found.but_noted(f"{len(alpha)} weights, no vector", differs=len(alpha) != len(expected))


@check(
    "B13",
    note="imprecise",
    claim=Words("The result has n_q rows and d_v columns", "결과는 n_q행 d_v열이다"),
    formula="(3x8, 5x8, 5x6) → 3x6;   W_o brings it back to d_model",
    explain=Words(
        "The note gives the result the query's dimension. It has as many rows as queries, but is "
        "as wide as the values; in the paper the two are equal. Layers can be stacked thanks to "
        "W_o, which gives back the width of the input.",
        "노트는 결과가 쿼리와 같은 차원이라고 한다. 행의 수는 쿼리와 같지만 폭은 값의 폭이며, "
        "논문에서는 두 폭이 같을 뿐이다. 층을 쌓을 수 있는 것은 폭을 되돌려 주는 W_o 덕분이다.",
    ),
    code=(FullAttention, MultiHeadAttention),
)
def rows_of_queries() -> Finding:
    """Values narrower than keys; and a whole layer, which gives back what it was given."""
    q, k, v = torch.randn(1, 1, 3, 8), torch.randn(1, 1, 5, 8), torch.randn(1, 1, 5, 6)
    layer, x = MultiHeadAttention(12, 3, FullAttention()), torch.randn(1, 3, 12)
    shapes = [*FullAttention()(q, k, v).shape[2:], *layer(x, layer.project(x)).shape[1:]]
    found = same(expected=[3, 6, 3, 12], got=shapes)
    return found.but_noted([*q.shape[2:]], differs=shapes[1] != q.size(-1))


@check(
    "B15",
    note="imprecise",
    claim=Words("K and V share a length, Q need not", "K와 V의 길이는 같고 Q는 달라도 된다"),
    formula="Q: 3 tokens,   K, V: 5 tokens   →   3 vectors",
    explain=Words(
        "The note gives all three one shape. Keys and values belong to the same tokens and come "
        "in pairs, but those who ask may be fewer or more: translations differ in length.",
        "노트는 셋의 모양이 모두 같다고 한다. 키와 값은 같은 토큰에서 나와 짝을 이루지만, 묻는 "
        "쪽의 길이는 다를 수 있다. 번역문은 원문과 길이가 같지 않다.",
    ),
    code=(MultiHeadAttention,),
)
def lengths_may_differ() -> Finding:
    """Three tokens ask five: the lengths of Q, K, V and of the result, which is PyTorch's."""
    layer, (x, y) = MultiHeadAttention(4, 1, FullAttention()), torch.randn(1, 8, 4).split([3, 5], 1)
    q, (k, v) = layer.project(x).keys, layer.project(y)
    output = layer.kernel(q, k, v)
    right = torch.allclose(output, F.scaled_dot_product_attention(q, k, v), atol=1e-6)
    lengths = [t.size(2) for t in (q, k, v, output)]
    found = same(expected=[3, 5, 5, 3, "right"], got=[*lengths, "right" if right else "wrong"])
    return found.but_noted([3, 3, 3, 3], differs=lengths != [3, 3, 3, 3])


@check(
    "B16",
    claim=Words("Scores are batch x length x length", "점수의 모양은 배치 x 길이 x 길이이다"),
    formula="scores = bmm(q, kᵀ) / math.sqrt(d_k)",
    explain=Words(
        "One number for every pair of tokens of every sentence. The note's lines of code, written "
        "with PyTorch's batched product, and the library's score give the same table.",
        "문장마다 토큰 쌍마다 수가 하나씩 있다. 노트의 코드를 PyTorch의 배치 행렬곱으로 적은 것과 "
        "라이브러리의 점수는 같은 표를 낸다.",
    ),
    code=(ScaledDot,),
)
def a_score_for_every_pair() -> Finding:
    """Two sentences of five tokens, d_k = 64."""
    q, k = torch.randn(2, 2, 5, 64)
    expected = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(64)
    return close(expected, got=ScaledDot()(q[:, None], k[:, None])[:, 0], within=1e-6)


@check(
    "B17",
    note="imprecise",
    claim=Words(
        "W_q, W_k, W_v are learned, not Q, K, V", "Q, K, V가 아니라 W_q, W_k, W_v를 배운다"
    ),
    formula="W ← W - η ∂L/∂W   for W in (W_q, W_k, W_v, W_o)",
    explain=Words(
        "The note lists Q, K and V as parameters and asks how they are learned. They are "
        "activations: each sentence has its own. Back-propagation changes the matrices that make "
        "them.",
        "노트는 Q, K, V를 학습 파라미터라 하고 어떻게 학습되는지 묻는다. 이들은 문장마다 새로 "
        "계산되는 활성값이다. 역전파가 바꾸는 것은 이들을 만드는 행렬이다.",
    ),
    code=(MultiHeadAttention,),
)
def what_is_learned() -> Finding:
    """Which matrices of a layer a step of gradient descent would move."""
    layer, x = MultiHeadAttention(8, 2, FullAttention()), torch.randn(1, 5, 8)
    weights = {name: weight for name, weight in layer.named_parameters() if weight.dim() > 1}
    slopes = torch.autograd.grad(layer(x, layer.project(x)).square().sum(), [*weights.values()])
    moved = [name for name, slope in zip(weights, slopes, strict=True) if slope.norm() > 1e-6]
    found = same(expected=["w_q.weight", "w_k.weight", "w_v.weight", "w_o.weight"], got=moved)
    return found.but_noted(["q", "k", "v"], differs=not {"q", "k", "v"} & set(moved))


@check(
    "B18",
    claim=Words("All n x n pairs meet in one layer", "한 층에서 n x n 쌍이 모두 만난다"),
    formula="∂ output_i / ∂ input_j ≠ 0 for all i, j;   the order of keys does not matter",
    explain=Words(
        "A recurrent network carries the first word through all others to reach the last. Here "
        "every output depends on every input directly, and the order of keys and values is all "
        "the same.",
        "순환 신경망에서는 첫 단어가 모든 단어를 거쳐야 끝에 닿는다. 여기서는 모든 출력이 모든 "
        "입력에 직접 의존하고, 키와 값의 순서를 함께 섞어도 결과가 같다.",
    ),
    code=(MultiHeadAttention, FullAttention),
)
def everybody_meets() -> Finding:
    """How many of 64 pairs have a gradient; and how much a shuffle of the keys changes."""
    layer, x = MultiHeadAttention(16, 2, FullAttention()), torch.randn(1, 8, 16)
    slopes = torch.autograd.functional.jacobian(lambda x: layer(x, layer.project(x))[0].sum(-1), x)
    (k, v), shuffled = layer.project(x), torch.randperm(8)
    q, kernel = torch.randn(1, 2, 8, 8), layer.kernel
    change = (kernel(q, k, v) - kernel(q, k[:, :, shuffled], v[:, :, shuffled])).abs().max().item()
    pairs = int((slopes[:, 0].norm(dim=-1) > 0).sum())
    return same(expected=[64, 0.0], got=[pairs, round(change, 5)])
