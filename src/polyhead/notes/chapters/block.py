"""The block around attention (rows G1 to G14): residuals, norms and the feed-forward network.

    x → LayerNorm(x + MultiHead(x)) → LayerNorm(x + FFN(x))                  (post-norm, the paper)

G10 is about words.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.i18n import Words
from polyhead.layers.attention import FullAttention, MultiHeadAttention
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.masks import EVERYTHING
from polyhead.layers.norms import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    NotesLayerNorm,
)
from polyhead.layers.transformer_stack import Residual, StackConfig, TransformerBlock
from polyhead.notes.claims import Finding, check, close, same, shown


@check(
    "G1",
    claim=Words("[1, -4] and attention [2, 3]: [3, -1]", "[1, -4]와 어텐션 [2, 3]: [3, -1]"),
    formula="x + f(x) = [1, -4] + [2, 3] = [3, -1]",
    explain=Words(
        "A residual connection adds what a sub-layer says to what was there before. The sub-layer "
        "thus learns the difference to its input. The example is the note's.",
        "잔차 연결은 하위 층의 출력을 원래 입력에 더한다. 그래서 하위 층은 입력과의 차이를 "
        "배운다. 예시는 노트의 것이다.",
    ),
    code=(Residual,),
)
def the_sum() -> Finding:
    """The word 'I' and what attention found, through the library's residual connection."""
    add = Residual(StackConfig(d_model=2, n_heads=1, dropout=0.0, norm="pre"))
    total = add(torch.tensor([1.0, -4.0]), lambda _: torch.tensor([2.0, 3.0]))
    return same(expected=[3.0, -1.0], got=total.tolist())


@check(
    "G2",
    claim=Words("Residuals keep gradients alive", "잔차 연결은 기울기를 살려 둔다"),
    formula="∂(x + f(x))/∂x = I + ∂f/∂x",
    explain=Words(
        "Without the skip, the gradient is a product of as many factors as there are layers, and "
        "small factors make it vanish. With it, every factor has a 1 in it. Twelve fresh blocks "
        "show both: the length of the gradient at the input, divided by that at the output.",
        "건너뛰는 길이 없으면 기울기는 층수만큼의 인수를 곱한 값이라, 작은 인수가 이어지면 "
        "사라진다. 있으면 인수마다 1이 들어 있다. 갓 만든 블록 열두 개에서 입력에서의 기울기 "
        "길이를 출력에서의 길이로 나누어 비교한다.",
    ),
    code=(Residual, TransformerBlock),
)
def the_road_back() -> Finding:
    """The gradient through twelve blocks, with their residual connections and around them."""
    config = StackConfig(d_model=32, n_heads=4, d_ff=64, dropout=0.0, norm="pre")
    blocks = [TransformerBlock(config, cross=False) for _ in range(12)]
    x = torch.randn(1, 5, 32, requires_grad=True)
    around = with_skip = x
    for block in blocks:
        with_skip = block(with_skip)
        around = block.feed_forward(block.attend(around, EVERYTHING, BlockCache()))
    direction = torch.randn_like(x)
    ratios = [
        (torch.autograd.grad(y, x, direction)[0].norm() / direction.norm()).item()
        for y in (with_skip, around)
    ]
    holds = 0.5 < ratios[0] < 2.0 and ratios[1] < 1e-6
    return Finding("with: about 1, without: below 1e-6",
                   f"with: {ratios[0]:.3g}, without: {ratios[1]:.1g}", holds)  # fmt: skip


@check(
    "G3",
    claim=Words("Only equal widths can be added", "폭이 같아야 더할 수 있다"),
    formula="Concat(heads) W_o ∈ ℝⁿˣᵈ,   x ∈ ℝⁿˣᵈ",
    explain=Words(
        "A sum needs two vectors of the same width. The last matrix of multi-head attention "
        "brings the concatenated heads back to that of the input; a sub-layer that does not is "
        "refused by the sum.",
        "더하려면 두 벡터의 폭이 같아야 한다. 멀티 헤드 어텐션의 마지막 행렬이 이어 붙인 헤드를 "
        "입력의 폭으로 되돌린다. 그렇게 하지 않는 하위 층은 더할 때 거절된다.",
    ),
    code=(MultiHeadAttention, Residual),
)
def equal_widths() -> Finding:
    """Attention of width 12 added to 12 features, and a layer that gives only 8."""
    add = Residual(StackConfig(d_model=12, n_heads=3, dropout=0.0))
    layer, narrow, x = (
        MultiHeadAttention(12, 3, FullAttention()),
        nn.Linear(12, 8),
        torch.randn(1, 5, 12),
    )
    try:
        refused = shown(list(add(x, narrow).shape))
    except RuntimeError:
        refused = "12 + 8 refused"
    got = [*add(x, lambda h: layer(h, layer.project(h))).shape, refused]
    return same(expected=[1, 5, 12, "12 + 8 refused"], got=got)


def torchs_layer(block: TransformerBlock, *, norm_first: bool) -> nn.TransformerEncoderLayer:
    """PyTorch's own block with the weights of ours."""
    theirs = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=norm_first)
    ours = block.self_attention
    assert ours.w_q is not None, "queries share their matrix with keys"
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.self_attn.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.self_attn.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.self_attn.out_proj.load_state_dict(ours.w_o.state_dict())
    theirs.linear1.load_state_dict(block.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(block.feed_forward.w_2.state_dict())
    return theirs


@check(
    "G4",
    claim=Words(
        "Attention, add & norm, feed-forward, add & norm",
        "어텐션, Add & Norm, 피드포워드, Add & Norm 순서다",
    ),
    formula="h = LN(x + MHA(x)),   y = LN(h + FFN(h))",
    explain=Words(
        "The norm after the sum is the paper's order and the library's default. The other one, x "
        "+ f(LN(x)), came with GPT-2 and is a setting. Both are PyTorch's own block with the same "
        "weights.",
        "더한 뒤에 정규화하는 것이 논문의 순서이자 라이브러리의 기본값이다. x + f(LN(x)) 순서는 "
        "GPT-2에서 나왔고 설정으로 고를 수 있다. 둘 다 가중치가 같은 PyTorch 블록과 일치한다.",
    ),
    code=(TransformerBlock, Residual),
)
def order_of_the_parts() -> Finding:
    """The default block and a pre-norm block against PyTorch's."""
    x, ours, theirs = torch.randn(2, 5, 16), [], []
    post = StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0)
    pre = StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0, norm="pre")
    for config in (post, pre):
        block = TransformerBlock(config, cross=False)
        ours.append(block(x))
        theirs.append(torchs_layer(block, norm_first=config is pre)(x))
    return close(expected=torch.stack(theirs), got=torch.stack(ours), within=1e-5)


@check(
    "G5",
    note="wrong",
    claim=Words("Layer norm: each token by itself", "층 정규화는 토큰마다 따로 한다"),
    formula="mean over features of one token = 0, variance = 1",
    explain=Words(
        "The note says that many samples are brought to mean 0 and variance 1. That is batch "
        "norm. Layer norm takes one token at a time: each row has mean 0 and variance 1, whoever "
        "else is there.",
        "노트는 여러 샘플을 평균 0, 분산 1로 만든다고 한다. 그것은 배치 정규화다. 층 정규화는 "
        "토큰 하나씩 하므로, 곁에 무엇이 있든 각 행의 평균이 0, 분산이 1이다.",
    ),
    code=(LayerNorm,),
)
def one_token_at_a_time() -> Finding:
    """Mean and variance of one row: after layer norm, and if samples are normalised."""
    x = torch.arange(1, 11)[:, None] * (torch.randn(10, 64) + 1)  # the tenth is the largest
    row, noted = LayerNorm(64)(x)[0], F.batch_norm(x, None, None, training=True)[0]
    got = [round(v.item(), 4) + 0.0 for v in (row.mean(), row.var(unbiased=False))]
    others = [round(v.item(), 4) for v in (noted.mean(), noted.var(unbiased=False))]
    return same(expected=[0.0, 1.0], got=got).but_noted(others, differs=others != got)


@check(
    "G6",
    claim=Words("ax + b gives mean b and variance a²", "ax + b를 하면 평균 b, 분산 a²가 된다"),
    formula="a = 3, b = 5:  mean 5, variance 9",
    explain=Words(
        "After the normalisation a weight and a bias set any mean and variance. In layer norm "
        "there is one of each per feature; with the same numbers in all of them the note's rule "
        "can be seen.",
        "정규화한 뒤 가중치와 편향으로 원하는 평균과 분산을 만든다. 층 정규화에서는 특징마다 "
        "하나씩 있고, 모두 같은 값으로 두면 노트의 규칙이 그대로 보인다.",
    ),
    code=(LayerNorm,),
)
def stretched() -> Finding:
    """Weight 3 and bias 5 on a row of 512."""
    norm = LayerNorm(512)
    nn.init.constant_(norm.weight, 3.0)
    nn.init.constant_(norm.bias, 5.0)
    row = norm(torch.randn(512))
    got = [round(value.item(), 3) for value in (row.mean(), row.var(unbiased=False))]
    return same(expected=[5.0, 9.0], got=got)


@check(
    "G7",
    note="wrong",
    claim=Words("Biased variance, ε inside the root", "편향 분산을 쓰고 ε은 근호 안에 둔다"),
    formula="(x - mean)/√(var + ε):  [1 0 0 0] → [1.732 -0.577 -0.577 -0.577]",
    explain=Words(
        "The note's code divides by x.std(), which is the unbiased deviation (by n - 1), and adds "
        "ε outside the root. That makes everything smaller by √((n-1)/n). Ba et al. and PyTorch "
        "divide by n.",
        "노트의 코드는 x.std(), 곧 n - 1로 나눈 표준편차를 쓰고 ε을 근호 밖에서 더한다. 그러면 "
        "모든 값이 √((n-1)/n)배로 작아진다. Ba 등의 논문과 PyTorch는 n으로 나눈다.",
    ),
    code=(LayerNorm, NotesLayerNorm),
)
def biased_variance() -> Finding:
    """Four features: PyTorch, ours, and the note's listing."""
    x = torch.tensor([1.0, 0.0, 0.0, 0.0])
    right, noted = F.layer_norm(x, (4,)), NotesLayerNorm(4)(x)
    found = close(expected=right, got=LayerNorm(4)(x), within=1e-6)
    return found.but_noted(noted, differs=not torch.allclose(noted, right, atol=0.1))


@check(
    "G8",
    claim=Words("Four norms, all equal to torch's", "네 가지 정규화가 모두 torch와 같다"),
    formula="group(1) = layer over features and positions,   group(C) = instance",
    explain=Words(
        "The four differ only in what is averaged over: the batch, the features of a token, the "
        "positions of a feature, or a group of features. Each is written out in the library and "
        "compared with PyTorch's; the last two comparisons are the limits of group norm.",
        "넷은 무엇에 대해 평균을 내느냐만 다르다. 배치, 한 토큰의 특징들, 한 특징의 위치들, 특징 "
        "묶음이다. 라이브러리에 풀어 쓴 것을 PyTorch와 비교하고, 마지막 둘은 그룹 정규화의 양 "
        "끝이다.",
    ),
    code=(BatchNorm, LayerNorm, InstanceNorm, GroupNorm),
)
def four_norms() -> Finding:
    """How far each is from PyTorch's, on six features at six positions."""
    x = 2 * torch.randn(4, 6, 6) + 1
    pairs: dict[str, tuple[Tensor, Tensor]] = {
        "batch": (BatchNorm(6)(x), nn.BatchNorm1d(6)(x)),
        "layer": (LayerNorm(6)(x), nn.LayerNorm(6)(x)),
        "instance": (InstanceNorm(6)(x), nn.InstanceNorm1d(6)(x)),
        "group": (GroupNorm(3, 6)(x), nn.GroupNorm(3, 6)(x)),
        "group(1)": (GroupNorm(1, 6)(x), F.layer_norm(x, (6, 6))),
        "group(C)": (GroupNorm(6, 6)(x), F.instance_norm(x)),
    }
    return same(
        list(pairs), got=[n for n, (a, b) in pairs.items() if torch.allclose(a, b, atol=1e-5)]
    )


@check(
    "G9",
    note="imprecise",
    claim=Words("Layer norm does not see the batch", "층 정규화는 배치를 보지 않는다"),
    formula="LN(x)[0] does not change when x[1:] does",
    explain=Words(
        "The note has batch norm right: statistics per feature over the samples, which depend on "
        "the batch. For layer norm it says 'per batch'; it is per sample, that is per token. "
        "Other company changes the output of batch norm, and nothing in layer norm.",
        "배치 정규화에 대한 설명은 맞다. 특징별로 샘플 전체의 통계를 쓰므로 배치에 좌우된다. 층 "
        "정규화는 '각 배치에 대해'가 아니라 샘플(토큰)마다 한다. 곁의 샘플이 바뀌면 배치 정규화만 "
        "달라진다.",
    ),
    code=(LayerNorm, BatchNorm),
)
def other_company() -> Finding:
    """How much the first sample changes when the others are replaced."""
    x, other = torch.randn(2, 8, 6)
    other[0] = x[0]
    changes = []
    for norm in (LayerNorm(6), BatchNorm(6)):
        changes.append((norm(x) - norm(other))[0].abs().max().item())
    return same(expected=0.0, got=changes[0]).but_noted(changes[1], differs=changes[1] > 0.01)


@check(
    "G11",
    note="wrong",
    claim=Words("The norm is LayerNorm, not torch.norm", "Norm은 torch.norm이 아닌 LayerNorm이다"),
    formula="LayerNorm([3 4]) = [-1 1]      torch.norm([3 4]) = 5",
    explain=Words(
        "The note names torch.norm(), which is the length of a vector: one number. The norm of a "
        "block is a layer with a weight and a bias that brings a vector to mean 0 and variance 1.",
        "노트에 적힌 torch.norm()은 벡터의 길이, 곧 수 하나다. 블록의 Norm은 가중치와 편향을 가진 "
        "층으로, 벡터를 평균 0, 분산 1로 만든다.",
    ),
    code=(LayerNorm, Residual),
)
def a_layer_not_a_length() -> Finding:
    """Both for [3, 4]; the block's own norm gives what ours does."""
    x, config = torch.tensor([3.0, 4.0]), StackConfig(d_model=2, n_heads=1, dropout=0.0)
    through = Residual(config)(torch.zeros(2), lambda _: x)
    both = torch.stack([LayerNorm(2)(x), through])
    found = close(expected=torch.tensor([[-1.0, 1.0]] * 2), got=both, within=1e-4)
    return found.but_noted(torch.norm(x), differs=torch.norm(x).dim() == 0)


@check(
    "G12",
    note="imprecise",
    claim=Words("The same network at every position", "모든 위치에 같은 피드포워드를 쓴다"),
    formula="FFN(x) = max(0, x W_1 + b_1) W_2 + b_2,   512 → 2048 → 512",
    explain=Words(
        "The note calls it fully connected. It connects all features of one position, but no two "
        "positions: changing a word changes its own output and no other. One layer over the whole "
        "sentence would mix them.",
        "노트는 완전 연결이라고만 한다. 한 위치의 특징끼리는 모두 이어지지만 위치끼리는 이어지지 "
        "않는다. 한 단어를 바꾸면 그 단어의 출력만 바뀐다. 문장 전체를 잇는 층이라면 서로 섞인다.",
    ),
    code=(FeedForward,),
)
def position_by_position() -> Finding:
    """What position 0 gives, by hand; and how much it feels a change at position 1."""
    ffn, x = FeedForward(512, 2048, "relu", 0.0), torch.randn(1, 2, 512)
    other = torch.cat([x[:, :1], torch.randn(1, 1, 512)], dim=1)
    hidden = (x[0, 0] @ ffn.w_1.weight.T + ffn.w_1.bias).clamp(min=0)
    right = torch.allclose(ffn(x)[0, 0], hidden @ ffn.w_2.weight.T + ffn.w_2.bias, atol=1e-5)
    felt = (ffn(x) - ffn(other))[0, 0].abs().max().item()
    mixing = nn.Linear(1024, 1024)  # fully connected over both positions
    noted = (mixing(x.flatten()) - mixing(other.flatten()))[:512].abs().max().item()
    found = same(["right", 0.0], got=["right" if right else "wrong", round(felt, 6)])
    return found.but_noted(noted, differs=noted > 0.01)


@check(
    "G13",
    claim=Words("Wide or narrow inside, equal outside", "가운데가 넓든 좁든 바깥 폭은 같다"),
    formula="parameters = 2·d·d_ff + d_ff + d:   8352 for 32 → 128 → 32,   552 for 32 → 8 → 32",
    explain=Words(
        "The note asks what widening and then narrowing does, against the opposite. The paper "
        "widens by four: most parameters of a block stand there. A bottleneck is allowed, saves "
        "them, and is a number in the configuration.",
        "노트는 넓혔다 좁히는 것과 그 반대의 차이를 묻는다. 논문은 네 배로 넓히며 블록의 파라미터 "
        "대부분이 여기에 있다. 병목처럼 좁히는 것도 설정값 하나로 가능하고 파라미터가 줄어든다.",
    ),
    code=(FeedForward, StackConfig),
)
def wide_or_narrow() -> Finding:
    """Parameters of both, and the width of what comes out."""
    got = []
    for d_ff in (128, 8):
        block = TransformerBlock(StackConfig(d_model=32, n_heads=4, d_ff=d_ff), cross=False)
        parameters = sum(weight.numel() for weight in block.feed_forward.parameters())
        got += [parameters, block(torch.randn(1, 5, 32)).size(-1)]
    return same(expected=[8352, 32, 552, 32], got=got)


@check(
    "G14",
    claim=Words("Minus the mean, over the deviation", "평균을 빼고 표준편차로 나눈다"),
    formula="[2 4 4 4 5 5 7 9]: mean 5, deviation 2  →  [-1.5 -0.5 -0.5 -0.5 0 0 1 2]",
    explain=Words(
        "Eight numbers whose mean is 5 and whose standard deviation is exactly 2, by hand.",
        "평균이 5이고 표준편차가 정확히 2인 여덟 수를 손으로 계산한 것이다.",
    ),
    code=(LayerNorm,),
)
def mean_and_deviation() -> Finding:
    """The textbook's eight numbers."""
    x = torch.tensor([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    got = [round(value, 4) + 0.0 for value in LayerNorm(8)(x).tolist()]
    return same(expected=[-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0], got=got)


@check(
    "G15",
    claim=Words(
        "The skip carries the word, the norm its size", "잔차는 내용을, 정규화는 크기를 지킨다"
    ),
    formula="f = 0:   LN(x + f(x)) = LN(x),   of size 1 and in the direction of x",
    explain=Words(
        "The note names two helpers: skip connections and layer norm. A sub-layer that says "
        "nothing shows what each does. Thanks to the skip the word passes unchanged, and thanks "
        "to the norm it leaves with size 1, even if it came in a thousand times too large.",
        "노트는 성능을 높이는 것으로 잔차 연결과 층 정규화를 든다. 아무 말도 하지 않는 하위 층을 "
        "두면 각각의 일이 보인다. 잔차 덕분에 단어가 그대로 지나가고, 정규화 덕분에 천 배로 커서 "
        "들어와도 크기 1로 나온다.",
    ),
    code=(Residual,),
)
def two_helpers() -> Finding:
    """A word a thousand times too large through a silent sub-layer: its direction, its size."""
    add, x = Residual(StackConfig(d_model=64, n_heads=1, dropout=0.0)), 1000 * torch.randn(64)
    y = add(x, torch.zeros_like)
    alike = torch.corrcoef(torch.stack([x, y]))[0, 1].item()
    got = [round(alike, 4), round(y.std(unbiased=False).item(), 4)]
    return same(expected=[1.0, 1.0], got=got)
