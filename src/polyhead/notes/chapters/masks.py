"""Masks (rows D1 to D11): who may look at whom, and why a zero does not hide anything.

weights = softmax(scores + mask),   mask = 0 where one may look, -∞ where not
"""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.i18n import Words
from polyhead.layers.attention import FullAttention, MultiHeadAttention, attention_weights
from polyhead.layers.attention_hooks import recorded_attention
from polyhead.layers.masks import THE_PAST, Mask, not_padding
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import Finding, check, close, same


@check(
    "D1",
    note="wrong",
    claim=Words(
        "The mask hides later keys from a query; it deletes no queries",
        "마스크는 쿼리를 지우지 않고, 쿼리마다 뒤쪽 키를 가린다",
    ),
    formula="j > i  ⇒  ∂ output_i / ∂ x_j = 0",
    explain=Words(
        "The note says that the later queries are deleted. Then the first token would still look "
        "at all keys, and would change when the last word does. What is hidden is the score of "
        "every later key, for every query: the first four outputs keep every bit when the fifth "
        "word is replaced.",
        "노트는 뒤쪽 쿼리를 지운다고 한다. 그러면 첫 토큰은 여전히 모든 키를 보게 되고, 마지막 "
        "단어가 바뀌면 함께 바뀐다. 실제로 가리는 것은 쿼리마다 자기보다 뒤에 있는 키의 점수다. "
        "다섯째 단어를 바꾸어도 앞의 네 출력은 한 비트도 변하지 않는다.",
    ),
    code=(Mask.dense, FullAttention),
)
def hidden_keys() -> Finding:
    """How far the first four outputs move when the fifth token is replaced."""
    layer, x = MultiHeadAttention(8, 2, FullAttention()), torch.randn(1, 5, 8)
    other = torch.cat([x[:, :4], torch.randn(1, 1, 8)], dim=1)
    queries_deleted = torch.ones(1, 5, 5, dtype=torch.bool)
    queries_deleted[:, 4:] = False  # a row is a query

    def moved(mask: Mask) -> float:
        before, after = layer(x, layer.project(x), mask), layer(other, layer.project(other), mask)
        return (before - after)[:, :4].abs().max().item()

    found = same(expected=0.0, got=moved(THE_PAST))
    noted = moved(Mask(pairs=queries_deleted))
    return found.but_noted(noted, differs=noted > 1e-3)


@check(
    "D2",
    claim=Words(
        "The visible weights sum to 1, so the first token's is 1",
        "보이는 값들끼리 정규화되므로 첫 토큰의 가중치는 1이다",
    ),
    formula="softmax(scores - ∞·hidden) = (softmax(scores)·visible) / row sum",
    explain=Words(
        "Masking before the softmax and renormalising after it are the same. The first token sees "
        "only itself, therefore its one weight is 1 (the weight, not the query itself).",
        "소프트맥스 전에 가리는 것과, 소프트맥스 후에 0으로 만들고 다시 정규화하는 것은 같다. 첫 "
        "토큰은 자기 자신만 보므로 하나뿐인 가중치가 1이 된다(쿼리 값이 아니라 가중치다).",
    ),
    code=(attention_weights,),
)
def renormalised() -> Finding:
    """-∞ before the softmax against zero and renormalise after it."""
    q, k = torch.randn(2, 1, 1, 4, 8)
    kept = (q @ k.mT / 8**0.5).softmax(-1).tril()
    weights = attention_weights(q, k, THE_PAST)
    found = close(expected=kept / kept.sum(-1, keepdim=True), got=weights, within=1e-6)
    first = same(expected=[1.0, 0.0, 0.0, 0.0], got=weights[0, 0, 0].tolist())
    return first if found.holds else found


@check(
    "D3",
    claim=Words(
        "Each token sees itself and what came before it",
        "각 토큰은 자기 자신과 그 앞의 토큰만 본다",
    ),
    formula="visible(i, j)  ⇔  j ≤ i",
    explain=Words(
        "The mask is a lower triangle with its diagonal, applied just before the softmax. Listed "
        "here is which keys each of four queries may see, compared with the mask that torch makes "
        "for its own Transformer.",
        "마스크는 대각선을 포함한 하삼각 행렬이고, 소프트맥스 바로 앞에서 적용된다. 여기서는 네 "
        "쿼리가 각각 볼 수 있는 키를 나열하고, torch가 자기 Transformer에 쓰는 마스크와 비교한다.",
    ),
    code=(Mask.dense,),
)
def the_triangle() -> Finding:
    """The keys that each of four queries may look at."""
    theirs = nn.Transformer.generate_square_subsequent_mask(4) == 0
    ours = THE_PAST.dense(4, 4, torch.device("cpu"))
    assert ours is not None, "four queries must be kept from the future"
    expected, got = ([row.nonzero()[:, 0].tolist() for row in m] for m in (theirs, ours[0, 0]))
    return same(expected=expected, got=got)


@check(
    "D4",
    note="wrong",
    claim=Words(
        "A score of 0 hides nothing, because exp(0) = 1",
        "점수를 0으로 만들어도 가려지지 않는다. exp(0) = 1이기 때문이다",
    ),
    formula="softmax([2, 0, 0]) = [0.787, 0.107, 0.107]",
    explain=Words(
        "The note writes 0 into the hidden cells of the table of scores. Zero is an ordinary "
        "score: a fifth of the attention leaks to the hidden keys. It must be -∞ before the "
        "softmax; zero is right only after it, with the rest made to sum to one again.",
        "노트는 점수 표에서 가릴 칸에 0을 적는다. 그러나 0도 평범한 점수라서 어텐션의 5분의 1이 "
        "가려야 할 키로 새어 나간다. 소프트맥스 전이라면 -∞여야 한다. 0이 옳은 것은 소프트맥스 "
        "다음뿐이고, 그때는 나머지를 다시 합이 1이 되도록 나누어야 한다.",
    ),
    code=(attention_weights,),
)
def zero_does_not_hide() -> Finding:
    """One visible key with score 2 and two hidden ones."""
    q, k = torch.tensor([[[[1.0]]]]), torch.tensor([[[[2.0], [5.0], [7.0]]]])
    visible = torch.tensor([[True, False, False]])
    weights = attention_weights(q, k, Mask(keys=visible))[0, 0, 0]
    leaked = (q @ k.mT * visible).softmax(-1)[0, 0, 0]
    leaks = torch.allclose(leaked, torch.tensor([0.787, 0.107, 0.107]), atol=1e-3)
    return same(expected=torch.tensor([1.0, 0.0, 0.0]), got=weights).but_noted(
        leaked, differs=leaks
    )


@check(
    "D5",
    note="imprecise",
    claim=Words(
        "Hidden scores are -∞; -1e10 does not fit into 16 bits",
        "가릴 점수는 -∞여야 한다. -1e10은 16비트에 들어가지 않는다",
    ),
    formula="softmax(-∞) = 0 in every precision;  |min float16| = 65504 < 1e10",
    explain=Words(
        "masked_fill(mask == 0, -1e10) works in 32 bits. In 16 bits it fails, because the largest "
        "number there is 65,504. The library uses -∞, which every floating-point format has, and "
        "its weights in half precision are those of full precision, rounded.",
        "masked_fill(mask == 0, -1e10)은 32비트에서는 동작한다. 16비트에서는 가장 큰 수가 "
        "65,504라서 실패한다. 라이브러리는 모든 부동소수점 형식에 있는 -∞를 쓰며, 반정밀도에서의 "
        "가중치는 단정밀도 값을 반올림한 것과 같다.",
    ),
    code=(attention_weights,),
)
def minus_infinity() -> Finding:
    """The causal weights of four tokens in half precision, and what the note's fill does there."""
    q, k = torch.randn(2, 1, 1, 4, 8)
    half = attention_weights(q.half(), k.half(), THE_PAST)
    found = close(expected=attention_weights(q, k, THE_PAST), got=half.float(), within=2e-3)
    try:
        (q.half() @ k.half().mT).masked_fill(torch.ones(4, 4).triu(1).bool(), -1e10)
        noted = "works"
    except RuntimeError as error:
        noted = str(error).splitlines()[0]
    return found.but_noted(noted, differs="overflow" in noted)


@check(
    "D6",
    claim=Words(
        "Equal scores under the causal mask: row i is 1/i, i times",
        "점수가 모두 같으면 인과 마스크의 i행은 1/i이 i개이다",
    ),
    formula="softmax(0 on and below the diagonal, -∞ above)[i, j] = 1/i for j ≤ i",
    explain=Words(
        "The 8 x 8 matrix printed in the note, from scores that are all zero. The snippet there "
        "forgets to define tril = torch.tril(torch.ones(8, 8)); its output is right.",
        "점수가 모두 0일 때 노트에 인쇄된 8 x 8 행렬이다. 그 코드에는 tril = "
        "torch.tril(torch.ones(8, 8)) 정의가 빠져 있지만 출력은 맞다.",
    ),
    code=(attention_weights,),
)
def the_printed_matrix() -> Finding:
    """Zeros for queries and keys; the rows of the note to four decimals."""
    nothing = torch.zeros(1, 1, 8, 4)
    weights = attention_weights(nothing, nothing, THE_PAST)[0, 0]
    rows = [[round(1 / (i + 1), 4) if j <= i else 0.0 for j in range(8)] for i in range(8)]
    printed = [[round(w, 4) for w in row] for row in weights.tolist()]
    first_column = same(expected=[row[0] for row in rows], got=[row[0] for row in printed])
    return first_column if printed == rows else same(expected=rows, got=printed)


@check(
    "D7",
    claim=Words(
        "Source padding is hidden from encoder and cross-attention",
        "소스 패딩은 인코더와 크로스 어텐션에서 모두 가려진다",
    ),
    formula="mask: (batch, 1, 1, source);  logits(padded) = logits(alone)",
    explain=Words(
        "Self-attention of the encoder hides its own padding; cross-attention hides the source's "
        "padding too, although its queries are target words. A sentence therefore gets the same "
        "logits alone and in a batch beside a longer one.",
        "인코더의 셀프 어텐션은 자기 패딩을 가리고, 크로스 어텐션은 쿼리가 타깃 단어라도 소스의 "
        "패딩을 가린다. 그래서 문장은 혼자 있을 때나 더 긴 문장과 한 배치에 있을 때나 같은 "
        "logit을 얻는다.",
    ),
    code=(not_padding, Transformer.encode),
)
def padding_is_not_seen() -> Finding:
    """A short sentence beside a long one, and by itself."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(2, 16, 2, 32))).eval()
    source = torch.tensor([[3, 4, 5, 6, 2], [7, 2, 0, 0, 0]])
    target = torch.tensor([[1, 5, 6], [1, 7, 8]])
    drawn = not_padding(source, pad=0).dense(3, 5, source.device)
    together, alone = model(source, target)[1:], model(source[1:, :2], target[1:])
    found = close(expected=alone, got=together, within=1e-5)
    shape = None if drawn is None else list(drawn.shape)
    return same(expected=[2, 1, 1, 5], got=shape) if found.holds else found


@check(
    "D8",
    claim=Words(
        "The target's mask: not in the future, and not padding",
        "타깃 마스크: 미래도 아니고 패딩도 아닌 곳",
    ),
    formula="visible(i, j)  ⇔  j ≤ i  and  target_j ≠ pad",
    explain=Words(
        "Both conditions must hold. The library describes them apart and joins them when a kernel "
        "draws the mask. Its translation model pads on the right, where hiding the future hides "
        "the padding from every real token as well.",
        "두 조건이 모두 맞아야 한다. 라이브러리는 둘을 따로 적어 두고 커널이 마스크를 그릴 때 "
        "합친다. 번역 모델은 오른쪽에 패딩을 넣으므로, 미래를 가리기만 해도 진짜 토큰에게는 "
        "패딩까지 가려진다.",
    ),
    code=(Mask.dense, not_padding),
)
def future_and_padding() -> Finding:
    """Padding in the middle, so that the two conditions differ; pair by pair."""
    ids = [1, 5, 0, 7]
    padding = not_padding(torch.tensor([ids]), pad=0)
    drawn = Mask(keys=padding.keys, causal=True).dense(4, 4, torch.device("cpu"))
    assert drawn is not None, "something is hidden here"
    expected = [[j for j in range(4) if j <= i and ids[j] != 0] for i in range(4)]
    return same(expected=expected, got=[row.nonzero()[:, 0].tolist() for row in drawn[0, 0]])


@check(
    "D9",
    claim=Words(
        "A prediction uses only what is known when it is made",
        "예측에는 그 시점에 알 수 있는 정보만 쓴다",
    ),
    formula="logits_i = f(source, target_1 … target_i)",
    explain=Words(
        "One target token at a time is replaced in a whole model, and the positions whose logits "
        "move are listed. Token j reaches position j and all later ones, and no earlier one.",
        "전체 모델에서 타깃 토큰을 하나씩 바꾸고 logit이 움직인 자리를 적는다. j번째 토큰은 "
        "j번째와 그 뒤의 자리에만 닿고 앞쪽에는 닿지 않는다.",
    ),
    code=(Transformer, Mask.dense),
)
def only_the_knowable() -> Finding:
    """Which positions of the output move when one token of the target does."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(2, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 2]]), torch.tensor([[1, 5, 6, 7]])
    logits, reached = model(source, target), []
    for j in range(4):
        changed = target.clone()
        changed[0, j] = 8
        moved = (model(source, changed) != logits).any(-1)[0]
        reached.append(moved.nonzero()[:, 0].tolist())
    return same(expected=[[0, 1, 2, 3], [1, 2, 3], [2, 3], [3]], got=reached)


@check(
    "D10",
    claim=Words(
        "Translation's decoder and GPT hide the future the same way",
        "번역 디코더와 GPT는 같은 방식으로 미래를 가린다",
    ),
    formula="Σ_{j>i} weights_ij = 0 in both",
    explain=Words(
        "GPT's body is the decoder without its cross-attention. In the library both are the same "
        "stack with the same mask; in both, no weight at all stands above the diagonal. In an "
        "encoder, which has no such mask, all six pairs of four tokens do.",
        "GPT의 몸통은 디코더에서 크로스 어텐션을 뺀 것이다. 라이브러리에서 둘은 같은 마스크를 "
        "쓰는 같은 스택이다. 둘 다 대각선 위에는 가중치가 전혀 "
        "없다. 그런 마스크가 없는 인코더에서는 토큰 넷의 여섯 쌍이 모두 가중치를 가진다.",
    ),
    code=(Transformer.hidden, GPT.hidden, Mask.dense),
)
def one_mask_for_both() -> Finding:
    """Pairs (i, j > i) of four tokens with any weight: in both, and in an encoder, all six."""
    stack, ids = StackConfig(1, 16, 2, 32, dropout=0.0), torch.tensor([[3, 4, 5, 6]])
    translation = Transformer(TransformerConfig(9, 9, stack=stack))
    gpt = GPT(GPTConfig(9, stack=stack))
    with recorded_attention(translation) as maps, recorded_attention(gpt) as its_maps:
        translation(ids, ids)
        gpt(ids)
    maps |= its_maps
    ahead = {name: int(weights.sum(1).triu(1).count_nonzero()) for name, weights in maps.items()}
    names = "decoder.blocks.0", "stack.blocks.0", "encoder.blocks.0"
    return same(expected=[0, 0, 6], got=[ahead[f"{name}.self_attention"] for name in names])


@check(
    "D11",
    claim=Words(
        "All targets at once give what one at a time gives",
        "타깃을 한꺼번에 넣어도 하나씩 넣은 것과 결과가 같다",
    ),
    formula="forward(y_1 … y_T) = [step(y_1), …, step(y_T)]",
    explain=Words(
        "Because no position sees a later one, a whole sentence can be trained on in one pass: "
        "the logits are those of T steps of decoding that remember keys and values. This is what "
        "makes training parallel.",
        "어느 자리도 뒤를 보지 않으므로 문장 전체를 한 번에 학습할 수 있다. 그 logit은 키와 값을 "
        "기억하며 T번 디코딩한 것과 같다. 학습을 병렬로 할 수 있는 이유다.",
    ),
    code=(Transformer.step, Transformer.hidden),
)
def all_at_once() -> Finding:
    """One pass over five target tokens against five steps with a cache."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(2, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 5, 2]]), torch.tensor([[1, 5, 6, 7, 8]])
    state = model.begin(source, max_length=5)
    steps = [model.step(target[:, [i]], state) for i in range(5)]
    chances = F.softmax(torch.cat(steps, dim=1), dim=-1)
    return close(expected=model(source, target).softmax(-1), got=chances, within=1e-5)
