"""From the recurrent network to attention (rows A1 to A16): what fades, and what looks back.

    h_t = tanh(W_x x_t + W_h h_{t-1} + b)
    c_t = Σ_i α_ti h_i,   α_t = softmax_i score(s_t, h_i)

A11 (that 'an' looks at the word for 'instructor') is a demonstration: it depends on the training.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.nn import functional as F

from polyhead.data.batches.translation import collate
from polyhead.i18n import Words
from polyhead.layers.attention import FullAttention, MultiHeadAttention
from polyhead.layers.attention_scores import ScoredAttention, make_score
from polyhead.layers.kv_cache import Memory
from polyhead.layers.masks import EVERYTHING
from polyhead.layers.recurrent import Encoding, LookBack, Recurrence, RNNCell
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.models.baselines.attention_ladder import (
    ByContent,
    ByPosition,
    Equal,
    Ladder,
    LadderConfig,
)
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import Finding, check, close, same
from polyhead.viz.gradient_reach import gradient_by_word

SMALL = LadderConfig(20, 20, cell="rnn", d_model=16, dropout=0.0, max_length=8)


def weights_of(model: Ladder, source: Tensor, target: Tensor) -> Tensor:
    """α of every step of the decoder over the words of the source."""
    _, h, s = model.vectors(source, target)
    kernel: Any = model.cross_attention.kernel if model.cross_attention is not None else None
    return kernel.weights(s[:, None], h[:, None])[:, 0].detach()


@check(
    "A1",
    note="imprecise",
    claim=Words("h_t = tanh(W_x x_t + W_h h_{t-1} + b)", "h_t = tanh(W_x x_t + W_h h_{t-1} + b)"),
    formula="h_t = tanh(W_x x_t + W_h h_{t-1} + b),   tanh' = 1 - tanh² ∈ (0, 1]",
    explain=Words(
        "The note says that the last neuron is brought over as it is and added. It is multiplied "
        "by a learned matrix W_h first; without it the numbers are others. Range and slope of "
        "tanh are as the note says.",
        "노트는 이전 뉴런을 그대로 가져와 더한다고 한다. 실제로는 학습되는 행렬 W_h를 먼저 "
        "곱하며, 빼먹으면 값이 달라진다. tanh의 범위와 기울기에 대한 설명은 노트가 맞다.",
    ),
    code=(RNNCell,),
)
def one_step() -> Finding:
    """Our cell with the weights of torch's, and the note's without W_h."""
    ours, theirs = RNNCell(3, 4), nn.RNNCell(3, 4)
    ours.w_x.weight, ours.w_h.weight = theirs.weight_ih, theirs.weight_hh
    ours.w_x.bias.data = theirs.bias_ih.data + theirs.bias_hh.data
    x, h = torch.randn(1, 3), torch.randn(1, 4)
    noted = torch.tanh(ours.w_x(x) + h)
    found = close(expected=theirs(x, h)[0], got=ours(x, h)[0], within=1e-6)
    return found.but_noted(
        noted[0].detach(), differs=not torch.allclose(noted, theirs(x, h), atol=0.01)
    )


@check(
    "A2",
    note="wrong",
    claim=Words("It is the gradient that vanishes", "작아지는 것은 그래디언트이다"),
    formula="∂h_T/∂h_t = Π diag(1 - h²) W_h,   shown for T - t = 1, 10, 20",
    explain=Words(
        "The note forbids the word 'vanishing gradient': only the values that are added become "
        "small. It is the other way round. The derivative of a state by an earlier one is a "
        "product with one factor a step, and shrinks if W_h is small; the states stay as large.",
        "노트는 '기울기 소실'이라 부르면 안 되고 더해지는 값이 작아질 뿐이라고 한다. 실제는 "
        "반대다. 앞선 상태에 대한 미분은 단계마다 인수가 하나씩 붙는 곱이라 W_h가 작으면 "
        "줄어든다. 상태의 크기는 줄지 않는다.",
    ),
    code=(RNNCell,),
)
def the_gradient_vanishes() -> Finding:
    """Autograd against the product written out; and the size of the states themselves."""
    cell, xs = RNNCell(8, 8).double(), torch.randn(20, 1, 8).double()
    w = cell.w_h.weight.data
    w *= 0.9 / torch.linalg.eigvals(w).abs().max()
    h = first = torch.zeros(1, 8).double().requires_grad_()
    product, norms = torch.eye(8).double(), []
    for t, x in enumerate(xs, start=1):
        h = cell(x, h)
        product = torch.diag(1 - h[0].detach() ** 2) @ w @ product
        if t in (1, 10, 20):
            rows = [torch.autograd.grad(one, first, retain_graph=True)[0] for one in h[0]]
            norms.append([float(m.detach().norm()) for m in (product, torch.cat(rows), h)])
    expected, got, sizes = zip(*norms, strict=True)
    found = same([f"{n:.2e}" for n in expected], [f"{n:.2e}" for n in got])
    vanishes = got[2] < got[1] < got[0] and got[2] < 0.9**19 * got[0]  # W_h alone, 19 steps
    noted = f"|h| = {', '.join(f'{size:.2f}' for size in sizes)}"
    return found.but_noted(noted, differs=vanishes and sizes[2] > sizes[0] / 2)


@check(
    "A3",
    claim=Words("The gradient vanishes or explodes", "그래디언트는 소실되거나 폭발한다"),
    formula="W_h = r Q, QᵀQ = 1, h = 0:  ‖∂h_10/∂h_0‖ = r¹⁰,   r = 0.5 and 1.5",
    explain=Words(
        "Where tanh has slope 1, ten steps multiply ten times by W_h. If W_h halves every vector, "
        "a thousandth is left; if it makes them half as long again, they grow 58 times. Training "
        "cuts what has grown too long (train.clip_norm); what has vanished stays lost.",
        "tanh의 기울기가 1인 곳에서 열 단계는 W_h를 열 번 곱하는 것과 같다. W_h가 벡터를 반으로 "
        "줄이면 천분의 일이 남고, 1.5배로 늘이면 58배가 된다. 폭발은 긴 그래디언트를 잘라서 "
        "막지만(train.clip_norm), 소실은 그렇게 막을 수 없다.",
    ),
    code=(RNNCell,),
)
def ten_steps() -> Finding:
    """The largest stretch of the Jacobian over ten steps, for a small and for a large W_h."""
    cell, norms = RNNCell(6, 6), []
    nn.init.zeros_(cell.w_x.bias)

    def ten(h: Tensor) -> Tensor:
        for _ in range(10):
            h = cell(torch.zeros(1, 6), h)
        return h

    for r in (0.5, 1.5):
        nn.init.orthogonal_(cell.w_h.weight, gain=r)
        change = jacobian(ten, torch.zeros(1, 6))[0, :, 0]
        norms.append(float(torch.linalg.matrix_norm(change, 2)))
    return close(expected=[0.5**10, 1.5**10], got=norms, within=1e-5)


@check(
    "A4",
    claim=Words("The last word weighs most", "마지막 단어가 가장 뚜렷하게 남는다"),
    formula="argmax_i ‖∂ h_n/∂ x_i‖ = n;   1 if the source is read backwards",
    explain=Words(
        "Without attention the decoder gets one vector, as wide for ten words as for two. Of ten "
        "words, number 10 moves it most; read backwards, number 1. That is why Sutskever et al. "
        "(2014) turned the source around.",
        "어텐션이 없으면 문장이 길든 짧든 벡터 하나만 받는다. 열 단어 중 이 벡터를 가장 크게 "
        "움직이는 것은 10번째, 거꾸로 읽으면 1번째이다. Sutskever(2014)가 소스를 뒤집은 이유이다.",
    ),
    code=(Ladder.encode, Encoding.summary),
)
def the_last_word() -> Finding:
    """The word whose embedding moves the context most, in both directions of reading."""
    source = torch.randint(3, 20, (16, 10))

    def strongest(backwards: bool) -> int:
        model = Ladder(replace(SMALL, context="none", reverse_source=backwards)).eval()
        felt = gradient_by_word(model.embed_source, lambda: model.encode(source).summary)
        return int(felt.mean(0).argmax()) + 1

    return same(expected=[10, 1], got=[strongest(False), strongest(True)])


@check(
    "A5",
    claim=Words("Training reads the labels, one late", "학습은 한 칸 밀린 정답을 읽는다"),
    formula="reads BOS y_1 … y_{n-1},   says y_1 … y_n",
    explain=Words(
        "With teacher forcing the decoder reads the right words, shifted by one, whatever it said "
        "itself. The third number is how much the outputs change when every right word but BOS "
        "is replaced while teacher forcing is off: nothing, since it then reads its own words.",
        "티처 포싱에서는 디코더가 무엇을 출력했든 한 칸 밀린 정답을 읽는다. 셋째 수는 티처 포싱을 "
        "끄고 BOS 뒤의 정답을 모두 바꿨을 때 출력의 변화량이다. 자기 출력을 읽으므로 0이다.",
    ),
    code=(collate, Ladder.hidden),
)
def right_words_one_step_late() -> Finding:
    """A batch as training sees it, and a poisoned target that must not be read."""
    batch, poisoned = collate([([5, 6, 2], [7, 8, 9, 2])]), torch.tensor([[1, 19, 18, 17]])
    forced, free = Ladder(SMALL), Ladder(replace(SMALL, teacher_forcing=0.0))
    change = (free(batch.source, poisoned) - free(batch.source, batch.target)).abs().max()
    got = [batch.target[0].tolist(), batch.labels[0].tolist(), float(change.detach())]
    found = same(expected=[[1, 7, 8, 9], [7, 8, 9, 2], 0.0], got=got)
    reads = not torch.equal(forced(batch.source, poisoned), forced(batch.source, batch.target))
    return replace(found, holds=found.holds and reads)


@check(
    "A6",
    claim=Words("First rung: all states alike", "첫 단계: 모든 상태를 똑같이 더한다"),
    formula="c = 1/n Σ_i h_i   over the words, not over padding",
    explain=Words(
        "All words are looked at, none more than another. Three words stand in a row of five "
        "places: the two places of padding do not count.",
        "모든 단어를 똑같은 비중으로 본다. 다섯 칸 중 패딩 두 칸은 평균에 들어가지 않는다.",
    ),
    code=(Equal, Ladder.context),
)
def all_alike() -> Finding:
    """The context against torch's mean of the three real words."""
    model = Ladder(replace(SMALL, context="mean", d_model=6)).eval()
    source, target = torch.tensor([[5, 6, 2, 0, 0], [5, 6, 7, 8, 2]]), torch.tensor([[1], [1]])
    c, h, _ = model.vectors(source, target)
    return close(expected=h[0, :3].mean(0).detach(), got=c[0, 0].detach(), within=1e-6)


@check(
    "A7",
    claim=Words("Constant weights know only places", "상수 가중치는 위치만 반영한다"),
    formula="α_i = softmax_i(b_i)   in every sentence of this length",
    explain=Words(
        "With one learned number for each place, two different sentences are weighed alike, "
        "0.5, 0.3, 0.2: by distance, as the note objects, and not by meaning.",
        "위치마다 학습된 수 하나를 주면, 서로 다른 두 문장도 단어와 상관없이 0.5, 0.3, 0.2로 "
        "똑같이 가중된다. 뜻이 아니라 거리만 반영한다는 노트의 지적이 맞다.",
    ),
    code=(ByPosition, ScoredAttention.weights),
)
def only_places() -> Finding:
    """The weights of two sentences without a word in common."""
    model = Ladder(replace(SMALL, context="positional")).eval()
    b = model.get_parameter("cross_attention.kernel.score.b")
    b.data[:3] = torch.tensor([0.5, 0.3, 0.2]).log()
    sentences = torch.tensor([[5, 6, 7], [8, 9, 10]])
    found = weights_of(model, sentences, torch.tensor([[1], [1]]))[:, 0]
    return close(expected=[[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]], got=found, within=1e-6)


@check(
    "A8",
    claim=Words("A weight must be a function of h", "가중치는 h의 함수여야 한다"),
    formula="α_i = softmax_i(v · tanh(W h_i))   at every step",
    explain=Words(
        "Now other words get other weights. But all steps of the decoder still share them: "
        "the first and the last word it writes look at the source in the same way.",
        "이제 단어가 다르면 가중치도 다르다. 그러나 디코더의 모든 단계가 같은 가중치를 쓴다. "
        "첫 단어를 쓸 때나 마지막 단어를 쓸 때나 소스를 똑같이 본다.",
    ),
    code=(ByContent, ScoredAttention.weights),
)
def a_function_of_h() -> Finding:
    """Both sentences and all three steps against the formula; the sentences differ."""
    model = Ladder(replace(SMALL, context="content")).eval()
    source, target = torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([[1, 5, 6], [1, 7, 8]])
    (w, b, v), h = model.get_submodule("cross_attention").parameters(), model.encode(source)
    scores = (torch.tanh(h.memory.states @ w.T + b) @ v[0]).detach()
    expected = scores.softmax(-1)[:, None].expand(2, 3, 3)
    found = close(expected=expected, got=weights_of(model, source, target), within=1e-6)
    differ = not torch.allclose(expected[0], expected[1], atol=1e-3)
    return replace(found, holds=found.holds and differ)


@check(
    "A9",
    claim=Words("… and of s: every step has its own", "… 그리고 s의 함수: 단계마다 다르다"),
    formula="c_t = Σ_i softmax_i(score(s_t, h_i)) h_i;   h_i = the i-th unit vector",
    explain=Words(
        "0.7, 0.2, 0.1 may be right for one step, and 0.1, 0.1, 0.8 for the next. A score that "
        "also sees the decoder's state gives both. This is Bahdanau's and Luong's attention.",
        "노트의 0.7, 0.2, 0.1은 한 단계에는 맞아도 다음은 0.1, 0.1, 0.8을 원할 수 있다. 디코더 "
        "상태도 보는 점수는 둘 다 만든다. 이것이 Bahdanau와 Luong의 어텐션이다.",
    ),
    code=(LookBack, ScoredAttention),
)
def weights_of_its_own() -> Finding:
    """Two states whose scores are the logarithms of the wanted weights."""
    wanted = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    attend = LookBack(ScoredAttention(make_score("dot", 1, 3)))
    c = attend(wanted.log()[None], Memory(torch.eye(3)[None], EVERYTHING))
    return close(expected=wanted.tolist(), got=c[0], within=1e-6)


@check(
    "A10",
    claim=Words("a_t = Σ α_i h_i, by hand", "손으로 계산한 a_t = Σ α_i h_i"),
    formula="s·h = ln 3 and 0  ⇒  α = 3/4, 1/4  ⇒  a = 3/4 (ln 3, 4) + 1/4 (0, 8)",
    explain=Words(
        "The scores ln 3 and 0 become 3 and 1 by the exponential, and 3/4 and 1/4 by the division. "
        "The second number is then 3/4 · 4 + 1/4 · 8 = 5.",
        "점수 ln 3과 0은 지수를 취하면 3과 1, 나누면 3/4과 1/4이다. 둘째 수는 3 + 2 = 5이다.",
    ),
    code=(LookBack, ScoredAttention.forward),
)
def two_words() -> Finding:
    """The library's context of two words, against numbers that a pencil gives."""
    ln3, h = 1.0986123, torch.tensor([[[1.0986123, 4.0], [0.0, 8.0]]])
    attend = LookBack(ScoredAttention(make_score("dot", 1, 2)))
    got = attend(torch.tensor([[[1.0, 0.0]]]), Memory(h, EVERYTHING))[0, 0]
    return close(expected=[0.75 * ln3, 5.0], got=got, within=1e-6)


@check(
    "A12",
    claim=Words("Distance still matters with attention", "어텐션을 더해도 거리의 영향은 남는다"),
    formula="‖∂h_n/∂x_1‖ / ‖∂h_n/∂x_{n-1}‖, n = 20:  RNN with attention, Transformer",
    explain=Words(
        "Attention shortens the way from the decoder to a word, but h and s are still made step "
        "by step: of the first word hardly anything is left in the state of the twentieth. In a "
        "Transformer's encoder every word is one step away.",
        "어텐션은 디코더에서 단어까지의 길을 줄이지만 h와 s는 여전히 한 단계씩 만들어진다. 스무 "
        "번째 상태에 첫 단어는 거의 남지 않는다. Transformer 인코더에서는 모두 한 걸음 거리이다.",
    ),
    code=(Ladder.encode, Transformer.encode),
)
def still_by_distance() -> Finding:
    """How much of the first word is left in the last state, and of the last but one."""
    source, rnn = torch.randint(3, 20, (8, 20)), Ladder(SMALL).eval()
    stack = StackConfig(1, 16, 4, 32, dropout=0.0, norm="pre")
    full = Transformer(TransformerConfig(20, 20, stack=stack)).eval()
    felt = (
        gradient_by_word(rnn.embed_source, lambda: rnn.encode(source).memory.states[:, -1]),
        gradient_by_word(full.embed_source, lambda: full.encode(source).states[:, -1]),
    )
    left, kept = (float(words[:, 0].mean() / words[:, -2].mean()) for words in felt)
    holds = left < 0.001 and 0.5 < kept < 2
    return Finding("below 0.001, about 1", f"{left:.0e}, {kept:.2f}", holds)


@check(
    "A13",
    claim=Words("Three vectors: C, H and S", "세 벡터: 문맥 C, 인코딩 H, 디코딩 S"),
    formula="C = softmax(S Hᵀ / √d) H:   target x d,   H: source x d,   S: target x d",
    explain=Words(
        "H has a vector for every source word, S one for every target word, and C is what S takes "
        "from H. In a Transformer H and S come from self-attention, C from cross-attention.",
        "H는 소스 단어마다, S는 타깃 단어마다 벡터가 하나씩이고, C는 S가 H에서 가져온 것이다. "
        "Transformer에서는 H와 S가 셀프 어텐션, C가 크로스 어텐션의 결과이다.",
    ),
    code=(Ladder.vectors,),
)
def three_vectors() -> Finding:
    """C against torch's attention of S and H."""
    model = Ladder(replace(SMALL, score="scaled_dot")).eval()
    source, target = torch.randint(3, 20, (2, 5)), torch.randint(3, 20, (2, 4))
    c, h, s = (vectors.detach() for vectors in model.vectors(source, target))
    return close(expected=F.scaled_dot_product_attention(s, h, h), got=c, within=1e-6)


@check(
    "A14",
    claim=Words("An RNN knows the order of words", "RNN은 순서를 알고, 셀프 어텐션은 모른다"),
    formula="f(P x) = P f(x)  for a Transformer encoder without positions",
    explain=Words(
        "Of words in another order a Transformer without positions makes the same vectors in "
        "another order. A recurrent encoder makes others: each state depends on all before it.",
        "단어 순서를 바꾸면 위치 정보가 없는 Transformer 인코더는 같은 벡터를 순서만 바꿔 낸다. "
        "RNN 인코더는 각 상태가 앞의 모든 단어에 달려 있어 다른 벡터를 낸다.",
    ),
    code=(TransformerStack, Recurrence.read),
)
def order() -> Finding:
    """Five words shuffled before and after a stack; and before and after a recurrence."""
    x, shuffled, lengths = torch.randn(1, 5, 8), [3, 0, 4, 1, 2], torch.tensor([5])
    stack, rnn = (
        TransformerStack(StackConfig(2, 8, 2, 16, dropout=0.0)),
        Recurrence("rnn", 8, 1, 0.0),
    )
    found = close(expected=stack(x)[:, shuffled], got=stack(x[:, shuffled]), within=1e-5)
    before, after = rnn.read(x[:, shuffled], lengths)[0], rnn.read(x, lengths)[0][:, shuffled]
    return replace(found, holds=found.holds and not torch.allclose(before, after, atol=0.01))


@check(
    "A15",
    claim=Words("Self-attention reaches every word", "셀프 어텐션은 한 층에서 모든 단어를 본다"),
    formula="pairs (i, j) of 10 words with ∂y_i/∂x_j ≠ 0:  10²,  3·10 - 2,  10·11/2",
    explain=Words(
        "In one layer of self-attention all 100 pairs are connected; by a convolution three words "
        "wide 28; by an RNN 55, and those through up to nine steps.",
        "셀프 어텐션 한 층은 100쌍, 폭 3의 합성곱은 28쌍, RNN은 길게는 아홉 단계로 55쌍을 잇는다.",
    ),
    code=(MultiHeadAttention, Recurrence.read),
)
def who_reaches_whom() -> Finding:
    """Count the pairs with a gradient in three layers of the same width."""
    attention, rnn = MultiHeadAttention(4, 2, FullAttention()), Recurrence("rnn", 4, 1, 0.0)
    convolution, n = nn.Conv1d(4, 4, 3, padding=1), torch.tensor([10])
    layers: list[Callable[[Tensor], Tensor]] = [
        lambda x: attention(x, attention.project(x)),
        lambda x: convolution(x.mT).mT,
        lambda x: rnn.read(x, n)[0],
    ]
    x = torch.randn(1, 10, 4)
    slopes = [jacobian(layer, x)[0, :, :, 0].abs().sum((1, 3)) for layer in layers]
    return same(expected=[100, 28, 55], got=[int((slope > 0).sum()) for slope in slopes])


@check(
    "A16",
    note="imprecise",
    claim=Words("Attention shows the whole context", "문맥 전체를 보는 일은 어텐션이 이미 한다"),
    formula="words of 어제 카페에 갔었어 거기 사람 많더라 with α_ti > 0, at every step t",
    explain=Words(
        "The note says that self-attention lets each word use the whole context. So does an RNN "
        "with attention: each of its steps looks at all six words. What self-attention adds is "
        "one step from 거기 'there' to any other word, and all words computed at once.",
        "노트는 셀프 어텐션 덕분에 단어마다 문맥 전체를 쓴다고 한다. 그것은 어텐션을 단 RNN도 "
        "한다. 매 단계가 여섯 단어를 모두 본다. 셀프 어텐션이 더하는 것은 '거기'에서 다른 어느 "
        "단어까지든 한 걸음이라는 점과 모든 단어를 한꺼번에 계산한다는 점이다.",
    ),
    code=(Ladder.context, ScoredAttention.weights),
)
def the_whole_context() -> Finding:
    """How many words each of three steps looks at, without any self-attention."""
    source = torch.arange(3, 9)[None]  # a number for each of the six words
    weights = weights_of(Ladder(SMALL).eval(), source, torch.tensor([[1, 5, 6]]))
    found = same(expected=[6, 6, 6], got=(weights[0] > 0).sum(-1).tolist())
    whole = bool((weights.sum(-1) - 1).abs().max() < 1e-6)
    return found.but_noted("fewer without self-attention", differs=whole)
