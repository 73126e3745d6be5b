"""Where a token stands (rows F1 to F13): codes that are added, and the rotation behind the waves.

F14 is a typing error ("soc" for cos).
"""

import math
from dataclasses import replace

import torch
from torch.nn import functional as F

from polyhead.i18n import Words
from polyhead.layers.embeddings import TokenEmbedding
from polyhead.layers.positions import (
    BinaryPositions,
    CountingPositions,
    LearnedPositions,
    NormalisedPositions,
    SinusoidalPositions,
    frequencies,
    rotation,
    swap_pairs,
)
from polyhead.layers.transformer_stack import StackConfig, TransformerBlock
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.models.vit import ViT, ViTConfig
from polyhead.notes.claims import Finding, check, close, same, shown


@check(
    "F1",
    claim=Words("A block knows no order", "블록은 순서를 모른다"),
    formula="block(x[shuffled]) = block(x)[shuffled]",
    explain=Words(
        "Shuffle the words and the vectors come out shuffled in the same way, each of them "
        "unchanged. Word order can therefore only be known if it is written into the vectors, "
        "which is what a position code does: with it, the shuffle makes a difference.",
        "단어를 섞으면 벡터도 똑같이 섞여 나올 뿐 값은 그대로다. 그래서 순서는 벡터 안에 적어 "
        "넣어야만 알 수 있고, 그것이 위치 코드가 하는 일이다. 위치 코드를 더하면 섞었을 때 결과가 "
        "달라진다.",
    ),
    code=(TransformerBlock, SinusoidalPositions),
)
def blind_to_order() -> Finding:
    """How much a shuffle changes the vectors, without positions and with them."""
    block = TransformerBlock(StackConfig(d_model=16, n_heads=2, d_ff=32, dropout=0.0), cross=False)
    x, shuffled, where = torch.randn(1, 5, 16), torch.randperm(5), SinusoidalPositions(16)(5)
    without = (block(x[:, shuffled]) - block(x)[:, shuffled]).abs().max()
    added = (block(x[:, shuffled] + where) - block(x + where)[:, shuffled]).abs().max()
    got = ["blind" if gap < 1e-5 else "sees" for gap in (without, added)]
    return same(expected=["blind", "sees"], got=got)


@check(
    "F2",
    claim=Words("Counting 0, 1, 2, … grows too fast", "0, 1, 2, …로 세면 너무 빨리 커진다"),
    formula="‖PE(100)‖ = 100·√512 = 2263, but 16 = √(512/2) for the waves",
    explain=Words(
        "A number that grows with the position soon drowns the word it is added to. The waves "
        "have the same length everywhere, because sin² + cos² = 1 in every pair of features.",
        "위치에 따라 커지는 수를 더하면 곧 단어가 묻혀 버린다. 사인파는 특징 쌍마다 sin² + cos² = "
        "1이므로 어디서나 길이가 같다.",
    ),
    code=(CountingPositions, SinusoidalPositions),
)
def counting_grows() -> Finding:
    """How long the vector of position 100 is: by counting, and by waves."""
    lengths = [
        codes(512)(101)[100].norm().item() for codes in (CountingPositions, SinusoidalPositions)
    ]
    holds = close([100 * math.sqrt(512), math.sqrt(256)], lengths, within=1e-5).holds
    return Finding(shown([100 * math.sqrt(512), 16.0]), shown(lengths), holds)


@check(
    "F3",
    claim=Words(
        "Counts in [0, 1] change with the length", "0~1로 정규화한 값은 문장 길이에 따라 변한다"
    ),
    formula="PE(1) = 1/(n - 1):  1/3 of 4 words, 1/4 of 5",
    explain=Words(
        "The second word stands at 1/3 in a sentence of four words and at 1/4 in one of five: the "
        "same number means different places. The waves say the same about the second word, always.",
        "두 번째 단어가 네 단어 문장에서는 1/3, 다섯 단어 문장에서는 1/4에 놓인다. 같은 수가 다른 "
        "자리를 뜻하게 된다. 사인파는 두 번째 단어에 언제나 같은 값을 준다.",
    ),
    code=(NormalisedPositions,),
)
def normalised_counts() -> Finding:
    """The second word of four and of five."""
    second = [NormalisedPositions(1)(n)[1].item() for n in (4, 5)]
    holds = close([1 / 3, 1 / 4], second, within=1e-6).holds
    return Finding(shown([1 / 3, 1 / 4]), shown(second), holds)


@check(
    "F4",
    claim=Words(
        "Binary neighbours are 1, √2 and 1 apart", "이진 코드의 이웃 간 거리는 1, √2, 1이다"
    ),
    formula="000, 001, 010, 011:  ‖001 - 000‖ = 1,  ‖010 - 001‖ = √2,  ‖011 - 010‖ = 1",
    explain=Words(
        "Digits are the same for every length of sentence, but a step of one position is "
        "sometimes one changed digit and sometimes many. The example is the note's: I am a "
        "teacher.",
        "이진수는 문장 길이와 상관없지만, 한 칸 옮길 때 바뀌는 자릿수가 하나일 때도 있고 여럿일 "
        "때도 있다. 예문은 노트의 I am a teacher이다.",
    ),
    code=(BinaryPositions,),
)
def binary_steps() -> Finding:
    """The digits of four positions, and how far apart they are."""
    codes = BinaryPositions(3)(4)
    digits = ["".join(f"{digit:.0f}" for digit in row) for row in codes.tolist()]
    steps = [f"{step:.5f}" for step in codes.diff(dim=0).norm(dim=1).tolist()]
    expected = ["000", "001", "010", "011", "1.00000", f"{math.sqrt(2):.5f}", "1.00000"]
    return same(expected, got=digits + steps)


@check(
    "F5",
    claim=Words(
        "Even features are sines, odd ones cosines", "짝수 차원은 사인, 홀수 차원은 코사인이다"
    ),
    formula="PE(t, 2k) = sin(w_k t),  PE(t, 2k+1) = cos(w_k t),  w_k = 10000^(-2k/d)",
    explain=Words(
        "Every pair of features is a wave of its own speed. At position 0 all sines are 0 and all "
        "cosines 1; the first number of position 1 is sin 1. The whole table is compared with the "
        "formula, one number at a time.",
        "특징 쌍마다 빠르기가 다른 파동이다. 위치 0에서는 사인이 모두 0, 코사인이 모두 1이고, "
        "위치 1의 첫 수는 sin 1이다. 표 전체를 식과 하나씩 비교한다.",
    ),
    code=(SinusoidalPositions,),
)
def the_waves() -> Finding:
    """Position 0, the first number of position 1, and all others against Python's sin and cos."""
    table = SinusoidalPositions(4)(10)
    formula = [
        [wave(t * 10000 ** (-2 * k / 4)) for k in range(2) for wave in (math.sin, math.cos)]
        for t in range(10)
    ]
    holds = close(formula, table, within=1e-6).holds
    return Finding(
        shown([0, 1, 0, 1, math.sin(1)]), shown([*table[0].tolist(), table[1, 0].item()]), holds
    )


@check(
    "F6",
    note="wrong",
    claim=Words(
        "Sine first: position 0 is [0, 1, 0, 1]", "사인이 먼저다: 위치 0은 [0, 1, 0, 1]이다"
    ),
    formula="PE(0) = [sin 0, cos 0, sin 0, cos 0]",
    explain=Words(
        "The note's numpy listing writes cosines into the even features, against the formula "
        "above it. That is the same code in another order; it matters when weights are exchanged. "
        "swap_pairs turns one into the other.",
        "노트의 numpy 코드는 바로 위의 식과 달리 짝수 차원에 코사인을 넣는다. 순서만 다른 같은 "
        "코드지만, 가중치를 주고받을 때는 문제가 된다. swap_pairs가 둘을 서로 바꾸어 준다.",
    ),
    code=(SinusoidalPositions, swap_pairs),
)
def sine_first() -> Finding:
    """Position 0 by the formula and by the listing; swapping the pairs makes them equal."""
    freqs = 1e-4 ** (2 * (torch.arange(4) // 2) / 4)
    listing = torch.arange(6)[:, None] * freqs
    listing[:, ::2], listing[:, 1::2] = listing[:, ::2].cos(), listing[:, 1::2].sin()
    table = SinusoidalPositions(4)(6)
    found = same(expected=[0.0, 1.0, 0.0, 1.0], got=table[0].tolist())
    differs = torch.allclose(swap_pairs(table), listing) and not torch.allclose(table, listing)
    return found.but_noted(listing[0], differs=differs)


@check(
    "F7",
    claim=Words("Frequencies fall from feature to feature", "차원이 커질수록 진동수가 줄어든다"),
    formula="wavelengths 2π/w_k: 2π, …, 2π·10000^(510/512), each longer than the one before",
    explain=Words(
        "The first pair turns once in six words, the last once in sixty thousand: like the hands "
        "of a clock, fast ones tell near places apart and slow ones far places.",
        "첫 쌍은 단어 여섯 개마다 한 바퀴, 마지막 쌍은 육만 개마다 한 바퀴 돈다. 시계 바늘처럼 "
        "빠른 것은 가까운 자리를, 느린 것은 먼 자리를 구별한다.",
    ),
    code=(frequencies, SinusoidalPositions),
)
def ever_slower() -> Finding:
    """The shortest and the longest of 256 waves, and how many are longer than the one before."""
    waves = 2 * math.pi / SinusoidalPositions(512).rate
    expected = [2 * math.pi, 2 * math.pi * 10000 ** (510 / 512), 255]
    got = [waves[0].item(), waves[-1].item(), int((waves.diff() > 0).sum())]
    return Finding(shown(expected), shown(got), close(expected, got, within=1e-4).holds)


@check(
    "F8",
    claim=Words(
        "φ positions further is a rotation M(φ)", "φ만큼 떨어진 위치는 회전 M(φ)로 옮겨진다"
    ),
    formula="M(φ) (sin w_k t, cos w_k t) = (sin w_k(t+φ), cos w_k(t+φ)),  M = [cos sin; -sin cos]",
    explain=Words(
        "The same matrix takes every position t to t + φ, for each pair of features: distance is "
        "a linear map, which a layer can learn. It is orthogonal with determinant 1. Rotary "
        "positions apply it to queries and keys.",
        "같은 행렬이 모든 위치 t를 t + φ로 옮긴다. 거리가 선형 변환이 되므로 층이 배울 수 있다. "
        "행렬은 직교이고 행렬식은 1이다. 회전 위치(rotary)는 이 행렬을 쿼리와 키에 곱한다.",
    ),
    code=(rotation, SinusoidalPositions),
)
def a_rotation() -> Finding:
    """All pairs of 64 features, all t below 50, φ = 7: where M takes them, MMᵀ and det M."""
    matrix, waves = rotation(7, 64), SinusoidalPositions(64)
    turned = torch.einsum("kij,tkj->tki", matrix, waves(50).unflatten(-1, (32, 2))).flatten(1)
    goes = (turned - waves(50, 7)).abs().max().item()
    length = (matrix @ matrix.mT - torch.eye(2)).abs().max().item()
    det = (torch.linalg.det(matrix) - 1).abs().max().item()
    gaps = [round(gap, 4) for gap in (goes, length, det)]
    return same(expected="M PE(t) - PE(t+φ), MMᵀ - I, det M - 1: [0, 0, 0]",
                got=f"M PE(t) - PE(t+φ), MMᵀ - I, det M - 1: {shown(gaps)}")  # fmt: skip


@check(
    "F9",
    note="imprecise",
    claim=Words(
        "PE(t)·PE(t+φ) falls with φ, but not steadily",
        "PE(t)·PE(t+φ)는 줄어들지만 꾸준히 줄지는 않는다",
    ),
    formula="PE(t)·PE(t+φ) = Σ cos(w_k φ):  256, 249.1, 173.8 at φ = 0, 1, 10",
    explain=Words(
        "The note says that the product is symmetric and decreases with distance. It is symmetric "
        "and largest at 0, but a sum of cosines goes up and down: for d = 512 it first rises at φ "
        "= 44, and 55 times within 200 positions.",
        "노트는 값이 대칭이고 거리에 따라 감소한다고 한다. 대칭이고 0에서 가장 큰 것은 맞지만, "
        "코사인의 합은 오르내린다. d = 512에서는 φ = 44에서 처음 커지고 200 안에서 55번 커진다.",
    ),
    code=(SinusoidalPositions,),
)
def falls_on_average() -> Finding:
    """Products of position 200 with those after and before it; the first rise, and how many."""
    table = SinusoidalPositions(512).double()(401)
    after, before = table[200:] @ table[200], table[:201].flip(0) @ table[200]
    rises = (after.diff() > 0).nonzero().flatten() + 1
    got = [round(after[phi].item(), 1) for phi in (0, 1, 10, 50, 100)] + [int(rises[0]), len(rises)]
    even = torch.allclose(after, before, atol=1e-2)
    found = same(expected=[256.0, 249.1, 173.8, 131.1, 112.0, 44, 55], got=got)
    return replace(found, holds=found.holds and even).but_noted("0 rises", differs=len(rises) > 0)


@check(
    "F10",
    claim=Words(
        "Learned positions: one-hot times a matrix", "학습 위치는 원-핫 벡터와 행렬의 곱이다"
    ),
    formula="onehot(t) W = W[t],   W: max_length x d_model",
    explain=Words(
        "A linear layer on one-hot positions picks a row of its matrix; nobody multiplies by "
        "zeros. The table ends at max_length, and beyond it the library says so instead of "
        "failing somewhere.",
        "원-핫 위치에 선형층을 쓰면 행렬의 한 행을 고르는 것과 같으므로 실제로 0을 곱하지 않는다. "
        "표는 max_length에서 끝나고, 그 너머는 분명한 오류로 알린다.",
    ),
    code=(LearnedPositions,),
)
def a_row_of_a_table() -> Finding:
    """Five positions by one-hot vectors and by the table; and what position 11 of 10 says."""
    positions = LearnedPositions(10, 4)
    picked = F.one_hot(torch.arange(5), 10).float() @ positions.table.weight
    try:
        message = shown(positions(11))
    except ValueError as problem:
        message = str(problem)
    told = "has 10 positions" in message and "position 11" in message
    got = [torch.equal(picked, positions(5)), "refuses 11" if told else message]
    return same(expected=[True, "refuses 11"], got=got)


@check(
    "F11",
    note="wrong",
    claim=Words("The paper's own positions are fixed sinusoids", "논문 자체가 고정 사인파를 쓴다"),
    formula="sinusoidal: 0 parameters     learned: max_length x d_model",
    explain=Words(
        "The note says that the code differs from the paper by not learning positions, and that "
        "all models learn them today. The paper itself uses fixed waves (learned ones did nearly "
        "as well, Table 3 row E), and today most models rotate queries and keys instead.",
        "노트는 논문과 달리 코드가 위치를 학습하지 않으며 요즘은 모두 학습한다고 한다. 논문 "
        "자체가 고정된 파동을 쓰고(학습해도 거의 같다, 표 3의 E행), 요즘은 쿼리와 키를 회전시키는 "
        "방식이 흔하다.",
    ),
    code=(TransformerConfig, SinusoidalPositions, LearnedPositions),
)
def fixed_in_the_paper() -> Finding:
    """The default of the base model, and how many numbers each kind learns (d = 8, 1024 places)."""
    small = TransformerConfig(9, 9, stack=StackConfig(n_layers=1, d_model=8, n_heads=1, d_ff=8))
    kinds: list[int | str] = [TransformerConfig().positions]
    for config in (small, replace(small, positions="learned")):
        embed = Transformer(config).embed_source
        kinds.append(sum(p.numel() for p in embed.parameters()) - embed.tokens.weight.numel())
    found = same(expected=["sinusoidal", 0, 1024 * 8], got=kinds)
    return found.but_noted("learned", differs=kinds[0] != "learned")


@check(
    "F12",
    claim=Words(
        "Positions are added to √d times the embedding", "√d를 곱한 임베딩에 위치를 더한다"
    ),
    formula="x_t = dropout(√d · E[token] + PE(t))",
    explain=Words(
        "The note adds the two. The paper also multiplies the embedding by √d_model first, so "
        "that it is not drowned, and applies dropout to the sum. With two features the code is "
        "(sin t, cos t).",
        "노트는 둘을 더한다. 논문은 그 전에 임베딩에 √d_model을 곱해 묻히지 않게 하고, 합에 "
        "드롭아웃을 적용한다. 특징이 둘이면 위치 코드는 (sin t, cos t)이다.",
    ),
    code=(TokenEmbedding, Transformer),
)
def scaled_and_added() -> Finding:
    """A Transformer's input for tokens 3, 1, 4 by hand; in training, half of the sum is zero."""
    stack = StackConfig(n_layers=1, d_model=2, n_heads=1, d_ff=2, dropout=0.5)
    embed = Transformer(TransformerConfig(9, 9, stack=stack)).embed_source
    words = embed.tokens.weight[[3, 1, 4]] * math.sqrt(2)
    places = torch.tensor([[math.sin(t), math.cos(t)] for t in range(3)])
    dropped = (embed(torch.ones(1, 2000, dtype=torch.int64)) == 0).float().mean()
    found = close(words + places, embed.eval()(torch.tensor([[3, 1, 4]]))[0], within=1e-6)
    return replace(found, holds=found.holds and 0.45 < dropped.item() < 0.55)


@check(
    "F13",
    claim=Words(
        "ViT learns a position per patch, and one more",
        "ViT는 패치마다, 그리고 하나 더 위치를 학습한다",
    ),
    formula="P ∈ ℝ⁽ᴺ⁺¹⁾ˣᴰ,  N = (224/16)² = 196",
    explain=Words(
        "An image of 224 pixels has 14 x 14 patches. Their positions are learned, and the class "
        "token before them has one too. The sum is made after the class token was put in front.",
        "224픽셀 이미지에는 14 x 14개의 패치가 있다. 위치는 학습되며, 맨 앞의 클래스 토큰에도 "
        "위치가 하나 있다. 클래스 토큰을 붙인 뒤에 더한다.",
    ),
    code=(ViT,),
)
def patches_and_one() -> Finding:
    """The shape of the table; and that the stack receives the patches plus their positions."""
    model = ViT(replace(ViTConfig(), stack=StackConfig(1, 8, 1, 8, dropout=0.0, norm="pre")))
    heard: list[torch.Tensor] = []
    model.stack.register_forward_pre_hook(lambda _stack, inputs: heard.append(inputs[0]))
    images = torch.randn(1, 3, 224, 224)
    model(images)
    moved, table = heard[0][0, 1:] - model.embed(images)[0], model.positions(197)
    added = torch.allclose(moved, table[1:], atol=1e-6) and len(heard[0][0]) == len(table)
    got = [*model.positions(197).shape, "added" if added else "not added"]
    return same(expected=[14 * 14 + 1, 8, "added"], got=got)
