"""Cross-attention (rows E1 to E4): the decoder asks, the encoder answers.

self    Attention(X W_q, X W_k, X W_v)        one sentence looks at itself
cross   Attention(X W_q, Y W_k, Y W_v)        X the decoder's states, Y the encoder's output
"""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.i18n import Words
from polyhead.layers.attention import FullAttention, MultiHeadAttention
from polyhead.layers.attention_hooks import recorded_attention
from polyhead.layers.kv_cache import Memory
from polyhead.layers.masks import EVERYTHING
from polyhead.layers.transformer_stack import Residual, StackConfig, TransformerBlock
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import Finding, check, close, same


@check(
    "E1",
    claim=Words(
        "Q is the decoder's, K and V the encoder's; Add adds the query",
        "Q는 디코더, K와 V는 인코더에서 오고, Add는 쿼리 쪽을 더한다",
    ),
    formula="x + MultiHead(LN(x), memory),   x from the decoder",
    explain=Words(
        "In a decoder block with its two other sub-layers silenced only cross-attention is left. "
        "What comes out is the decoder's own state plus what torch's attention finds when that "
        "state asks the encoder's output. The norm stands before the sub-layer here, so that the "
        "sum can be seen.",
        "디코더 블록에서 다른 두 부분층을 끄면 크로스 어텐션만 남는다. 나오는 값은 디코더 자신의 "
        "상태에, 그 상태가 인코더 출력에 물어 torch의 어텐션이 찾은 것을 더한 것이다. 더한 결과를 "
        "그대로 보려고 여기서는 정규화를 부분층 앞에 둔다.",
    ),
    code=(TransformerBlock.recall, TransformerBlock.forward, Residual),
)
def the_decoder_asks() -> Finding:
    """A block of which only the cross-attention is left, against torch's layer and a plus sign."""
    block = TransformerBlock(StackConfig(1, 8, 2, 16, dropout=0.0, norm="pre"), cross=True)
    for last in (block.self_attention.w_o, block.feed_forward.w_2):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    ours, theirs = block.cross_attention, nn.MultiheadAttention(8, 2, batch_first=True)
    assert ours is not None, "this block was built with cross-attention"
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())
    x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    expected = x + theirs(F.layer_norm(x, (8,)), memory, memory)[0]
    return close(expected=expected, got=block(x, memory=Memory(memory, EVERYTHING)), within=1e-5)


@check(
    "E2",
    note="wrong",
    claim=Words(
        "A row of cross-attention per target word, a column per source word",
        "크로스 어텐션의 행은 타깃 단어, 열은 소스 단어이다",
    ),
    formula="weights ∈ ℝ^(target x source),   Q = decoder, K = V = encoder",
    explain=Words(
        "One note has it the other way round: Q from the encoder, K and V from the decoder. Then "
        "there would be one result for every source word, and it could not be added to the "
        "decoder's states, of which there is one for every target word. Three target words asking "
        "five source words give a table of 3 x 5. It is also not the masked attention under which "
        "that sentence stands: the whole source may be seen.",
        "한 노트는 거꾸로 Q가 인코더, K와 V가 디코더에서 온다고 적었다. 그러면 결과가 소스 "
        "단어마다 하나씩 나와서, 타깃 단어마다 하나씩인 디코더 상태에 더할 수 없다. 타깃 단어 "
        "셋이 소스 단어 다섯에게 물으면 3 x 5 표가 된다. 또 그 문장이 놓인 '마스크드 어텐션'도 "
        "아니다. 소스는 전부 볼 수 있다.",
    ),
    code=(TransformerBlock.recall, recorded_attention),
)
def who_asks_whom() -> Finding:
    """The table of a model with five source and three target words, and the note's."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 5, 6, 2]]), torch.tensor([[1, 5, 6]])
    with recorded_attention(model) as maps:
        model(source, target)
    layer = MultiHeadAttention(16, 2, FullAttention())
    encoded, decoded = torch.randn(1, 5, 16), torch.randn(1, 3, 16)
    noted = layer(encoded, layer.project(decoded)).size(1)  # as many as there are source words
    found = same(expected=[3, 5], got=list(maps["decoder.blocks.0.cross_attention"].shape[-2:]))
    return found.but_noted([noted, decoded.size(1)], differs=noted != decoded.size(1))


@check(
    "E3",
    claim=Words(
        "Self- and cross-attention are one layer with other input",
        "셀프 어텐션과 크로스 어텐션은 입력만 다른 같은 층이다",
    ),
    formula="self = MultiHead(X, X),   cross = MultiHead(X, Y)",
    explain=Words(
        "The note's table compares where queries, keys and values come from, where each kind "
        "stands and what it is for. In code the two differ by one argument. Here one and the same "
        "layer does both, and both times gives what torch's does.",
        "노트의 표는 쿼리, 키, 값이 어디서 오는지, 어디에 놓이는지, 무엇에 쓰는지를 비교한다. "
        "코드에서 둘은 인자 하나가 다를 뿐이다. 여기서는 같은 층 하나가 두 일을 모두 하고, 두 번 "
        "다 torch의 결과와 같다.",
    ),
    code=(MultiHeadAttention,),
)
def one_layer_for_both() -> Finding:
    """The same module as self-attention and as cross-attention, against torch's."""
    ours, theirs = MultiHeadAttention(8, 2, FullAttention()), nn.MultiheadAttention(8, 2)
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())
    x, y = torch.randn(3, 8), torch.randn(5, 8)  # torch takes one sentence without a batch, too
    expected = torch.stack([theirs(x, x, x)[0], theirs(x, y, y)[0]])
    got = torch.cat([ours(x[None], ours.project(x[None])), ours(x[None], ours.project(y[None]))])
    return close(expected=expected, got=got, within=1e-5)


@check(
    "E4",
    claim=Words(
        "Self: words of one sentence; cross: words of two sentences",
        "셀프는 같은 문장 안에서, 크로스는 다른 두 문장 사이에서 본다",
    ),
    formula="encoder n x n,  decoder m x m,  cross m x n",
    explain=Words(
        "A model that reads five source words and three target words has three kinds of tables: "
        "the source with itself, the target with itself, and the target with the source. Only the "
        "last one joins two sentences.",
        "소스 단어 다섯과 타깃 단어 셋을 읽는 모델에는 세 가지 표가 있다. 소스와 소스, 타깃과 "
        "타깃, 그리고 타깃과 소스다. 두 문장을 잇는 것은 마지막 하나뿐이다.",
    ),
    code=(recorded_attention, Transformer),
)
def three_kinds_of_tables() -> Finding:
    """The sizes of all three tables, and whether a new source reaches each of them."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 5, 6, 2]]), torch.tensor([[1, 5, 6]])
    with recorded_attention(model) as before:
        model(source, target)
    with recorded_attention(model) as after:
        model(source.flip(1), target)
    got = [
        f"{before[name].size(-2)} x {before[name].size(-1)}, "
        + ("same" if torch.equal(before[name], after[name]) else "new")
        for name in (
            "encoder.blocks.0.self_attention",
            "decoder.blocks.0.self_attention",
            "decoder.blocks.0.cross_attention",
        )
    ]
    return same(expected=["5 x 5, new", "3 x 3, same", "3 x 5, new"], got=got)
