"""BERT, GPT and the attention pictures (rows K1 to K4).

BERT fills in blanks and sees both sides; GPT continues a text and sees only its left side.
"""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from polyhead.data.batches.masking import BERT as BERTS_SHARES
from polyhead.data.batches.masking import blank
from polyhead.i18n import Words
from polyhead.layers.attention_hooks import recorded_attention
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.models.bert import BERT, BERTConfig, bert_stack
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.notes.claims import Finding, check, close, same
from polyhead.render.svg import PALETTE
from polyhead.viz.draw_text import svg
from polyhead.viz.views import AttentionMap, AttentionView, Token, TokenizedText


@check(
    "K1",
    claim=Words(
        "Figure 3: layer 5 of 6, the word 'making', one colour per head",
        "그림 3: 6층 중 5층, 단어 'making', 헤드마다 다른 색",
    ),
    formula="line(head, key) has opacity softmax(q_making · k / √d_head)[key]",
    explain=Words(
        "The figure shows one row of the attention weights of the fifth encoder layer: what the "
        "word 'making' looks at, in eight colours for eight heads. Here the weights of layer 5 are "
        "recorded and compared with those of torch's own attention on the same input; then the "
        "lines are drawn, and the colours in the picture are counted.",
        "이 그림은 인코더 다섯째 층의 어텐션 가중치 가운데 한 행, 즉 'making'이 무엇을 보는지를 "
        "여덟 헤드의 여덟 색으로 보여 준다. 여기서는 5층의 가중치를 기록해 같은 입력에 대한 "
        "torch의 어텐션과 비교하고, 선을 그린 뒤 그림에 쓰인 색의 수를 센다.",
    ),
    code=(recorded_attention, svg),
)
def figure_3() -> Finding:
    """The weights of layer 5 by torch's own attention, and the colours of the picture."""
    words, stack = (
        ["making", "it", "more", "difficult"],
        TransformerStack(StackConfig(6, 32, 8, 64)).eval(),
    )
    before = torch.randn(1, len(words), 32)
    ours: Any = stack.blocks[4].self_attention
    with recorded_attention(stack) as maps:
        stack(before)
    for block in stack.blocks[:4]:
        before = block(before)
    theirs = nn.MultiheadAttention(32, 8, batch_first=True)
    theirs.in_proj_weight.data = torch.cat([w.weight for w in (ours.w_q, ours.w_k, ours.w_v)])
    theirs.in_proj_bias.data = torch.cat([w.bias for w in (ours.w_q, ours.w_k, ours.w_v)])
    weights = theirs(before, before, before, average_attn_weights=False)[1]
    found = close(expected=weights, got=maps["blocks.4.self_attention"], within=1e-5)
    tokens = tuple(Token(word, number) for number, word in enumerate(words))
    drawn = AttentionMap("encoder", 5, weights[0].detach().numpy(), "source", "source")
    view = AttentionView("", "", TokenizedText(" ".join(words), tokens), None, (), (drawn,))
    picture = svg(view, "encoder", layer=5, word="making", style="lines")
    colours = same(expected=8, got=len({colour for colour in PALETTE if colour in picture}))
    return colours if found.holds else found


@check(
    "K2",
    claim=Words(
        "Eight heads are eight heat maps, of any layer and any attention",
        "헤드 여덟 개는 히트맵 여덟 개이고, 어느 층이든 그릴 수 있다",
    ),
    formula="cells = heads · queries · keys",
    explain=Words(
        "The notebook draws the cross-attention of the last layer, eight heads in a grid of four "
        "by two. Here the heat maps of the first of two layers are drawn, without any display, "
        "and the cells of the picture are counted by an XML parser that is not ours: 8 heads with "
        "3 target and 4 source words have 96.",
        "노트북은 마지막 층의 크로스 어텐션만, 여덟 헤드를 4×2 격자로 그린다. 여기서는 두 층 "
        "가운데 첫째 층을 화면 없이 그리고, 우리가 만들지 않은 XML 파서로 칸을 센다. 헤드 8개, "
        "타깃 3단어, 소스 4단어이면 96칸이다.",
    ),
    code=(svg, AttentionView),
)
def heat_maps() -> Finding:
    """Count the squares of the picture."""
    weights = torch.randn(2, 8, 3, 4).softmax(-1).numpy().astype(np.float32)
    maps = tuple(AttentionMap("cross", i + 1, w, "target", "source") for i, w in enumerate(weights))
    source, target = (
        TokenizedText(text, tuple(Token(word, number) for number, word in enumerate(text.split())))
        for text in ("저는 학교에 갑니다 .", "I go there")
    )
    picture = svg(AttentionView("", "", source, target, (), maps), "cross", layer=1)
    squares = [e for e in ElementTree.fromstring(picture).iter() if e.get("width") == "1"]
    names = re.findall("학교에", picture)
    return same(expected="96 cells, 학교에", got=f"{len(squares)} cells, {'/'.join(set(names))}")


@check(
    "K3",
    claim=Words(
        "BERT hides some tokens behind [MASK] and restores them",
        "BERT는 일부 토큰을 [MASK]로 가리고 복원한다",
    ),
    formula="15 % chosen: 80 % [MASK], 10 % random, 10 % unchanged; loss only there",
    explain=Words(
        "The note is right and leaves out the numbers: 15 % of the tokens are asked for, and of "
        "these only 80 % become [MASK], because later texts will contain none. The loss counts the "
        "chosen positions alone, so the output layer is applied only there; that is the same as "
        "torch's loss over all positions with the others ignored.",
        "노트는 맞지만 숫자가 빠져 있다. 토큰의 15%를 고르고, 그중 80%만 [MASK]로 바꾼다. 나중에 "
        "읽을 글에는 [MASK]가 없기 때문이다. 손실은 고른 자리에서만 계산하므로 출력층도 거기에만 "
        "적용한다. 이는 나머지를 무시한 torch의 손실과 같다.",
    ),
    code=(blank, BERT.fill),
)
def blanks_for_bert() -> Finding:
    """Measure the four shares on 40,000 tokens; then compare two ways to compute the loss."""
    ids, generator = torch.randint(4, 999, (400, 100)), torch.Generator().manual_seed(0)
    _, blanked, chosen = blank(ids, BERTS_SHARES, generator, mask=999, vocab=1000)
    masked, stays = (blanked == 999)[chosen], (blanked == ids)[chosen]
    shares = [part.float().mean() for part in (chosen, masked, ~masked & ~stays, stays)]
    found = close(expected=[0.15, 0.8, 0.1, 0.1], got=torch.stack(shares), within=0.01)
    model, (ids, blanked, chosen) = BERT(BERTConfig(1000, 100, stack=bert_stack(1, 8, 2))).eval(), (
        ids[:4], blanked[:4], chosen[:4])  # fmt: skip
    everywhere = model(blanked).transpose(1, 2)
    theirs = F.cross_entropy(everywhere, ids.masked_fill(~chosen, -100), ignore_index=-100)
    loss = close(theirs, F.cross_entropy(model.fill(blanked, chosen), ids[chosen]), within=1e-5)
    return found if loss.holds else loss


@check(
    "K4",
    claim=Words(
        "GPT predicts the next word from the words to its left alone",
        "GPT는 왼쪽 문맥만 보고 다음 단어를 예측한다",
    ),
    formula="p(x) = Π_t p(x_t | x_1 … x_{t-1})",
    explain=Words(
        "The t-th prediction may depend on the first t tokens and on nothing else; else training "
        "would read the answer. Every token is replaced in turn, and for each prediction it is "
        "counted how many tokens move it: one, two, three, four, five.",
        "t번째 예측은 처음 t개의 토큰에만 의존해야 한다. 그렇지 않으면 학습할 때 정답을 미리 보게 "
        "된다. 토큰을 하나씩 바꾸어 보면서 각 예측을 움직이는 토큰이 몇 개인지 센다. 하나, 둘, 셋, "
        "넷, 다섯이다.",
    ),
    code=(GPT.hidden, GPT.forward),
)
def only_the_left() -> Finding:
    """For each prediction, how many tokens it depends on."""
    stack = StackConfig(2, 16, 2, 32, norm="pre", activation="gelu_tanh")
    model, ids = GPT(GPTConfig(9, 5, stack=stack)).eval(), torch.randint(1, 8, (1, 5))
    depends = torch.zeros(5, dtype=torch.long)
    for position in range(5):
        other = ids.clone()
        other[0, position] = 8
        depends += (model(ids) != model(other)).any(-1)[0]
    return same(expected=[1, 2, 3, 4, 5], got=depends.tolist())
