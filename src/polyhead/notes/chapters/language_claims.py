"""BERT, GPT and the attention pictures (rows K1 to K4)."""

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from torch.nn import functional as F

from polyhead.data.batches.masked import BERT_MASKING as BERTS_SHARES
from polyhead.data.batches.masked import mask_tokens
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.transformer_stack import StackConfig, TransformerStack
from polyhead.models.bert import BERT, BERTConfig, bert_stack
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.notes.claims import ClaimResult, claim, close, same
from polyhead.notes.torch_reference import torch_attention
from polyhead.render.svg import PALETTE
from polyhead.viz.draw_text import draw_text
from polyhead.viz.select import ViewOptions
from polyhead.viz.tokens import Token
from polyhead.viz.views import AttentionMap, AttentionView, TokenizedText


@claim("K1", record_attention, draw_text)
def figure_3() -> ClaimResult:
    """Compare the weights of layer 5 with torch's, and count the colours of the figure."""
    words = ["making", "it", "more", "difficult"]
    stack = TransformerStack(StackConfig(6, 32, 8, 64)).eval()
    before = torch.randn(1, len(words), 32)
    ours: Any = stack.blocks[4].self_attention
    with record_attention(stack) as maps:
        stack(before)
    for block in stack.blocks[:4]:
        before = block(before)
    weights = torch_attention(ours)(before, before, before, average_attn_weights=False)[1]
    result = close(expected=weights, got=maps["blocks.4.self_attention"], within=1e-5)
    tokens = tuple(Token(word, number) for number, word in enumerate(words))
    drawn = AttentionMap("encoder", 5, weights[0].detach().numpy(), "source", "source")
    view = AttentionView("", "", TokenizedText(" ".join(words), tokens), None, (), (drawn,))
    picture = draw_text(view, ViewOptions("encoder", 5, word="making", style="lines"))
    colours = same(expected=8, got=len({colour for colour in PALETTE if colour in picture}))
    return colours.if_also(result)


@claim("K2", draw_text, AttentionView)
def heat_maps() -> ClaimResult:
    """Count the cells of the figure."""
    weights = torch.randn(2, 8, 3, 4).softmax(-1).numpy().astype(np.float32)
    maps = tuple(AttentionMap("cross", i + 1, w, "target", "source") for i, w in enumerate(weights))
    source, target = (
        TokenizedText(text, tuple(Token(word, number) for number, word in enumerate(text.split())))
        for text in ("저는 학교에 갑니다 .", "I go there")
    )
    view = AttentionView("", "", source, target, (), maps)
    picture = draw_text(view, ViewOptions("cross", 1))
    squares = [e for e in ElementTree.fromstring(picture).iter() if e.get("width") == "1"]
    names = re.findall("학교에", picture)
    return same(expected="96 cells, 학교에", got=f"{len(squares)} cells, {'/'.join(set(names))}")


@claim("K3", mask_tokens, BERT.fill)
def masking_of_bert() -> ClaimResult:
    """Measure the four shares on 40,000 tokens, and compute the loss in two ways."""
    ids, generator = torch.randint(4, 999, (400, 100)), torch.Generator().manual_seed(0)
    _, blanked, chosen = mask_tokens(ids, BERTS_SHARES, generator, mask=999, vocab=1000)
    masked, stays = (blanked == 999)[chosen], (blanked == ids)[chosen]
    shares = [part.float().mean() for part in (chosen, masked, ~masked & ~stays, stays)]
    result = close(expected=[0.15, 0.8, 0.1, 0.1], got=torch.stack(shares), within=0.01)
    model = BERT(BERTConfig(1000, 100, stack=bert_stack(1, 8, 2))).eval()
    ids, blanked, chosen = ids[:4], blanked[:4], chosen[:4]
    everywhere = model(blanked).transpose(1, 2)
    theirs = F.cross_entropy(everywhere, ids.masked_fill(~chosen, -100), ignore_index=-100)
    loss = close(theirs, F.cross_entropy(model.fill(blanked, chosen), ids[chosen]), within=1e-5)
    return result.if_also(loss)


@claim("K4", GPT.hidden, GPT.forward)
def context_of_gpt() -> ClaimResult:
    """Count the tokens that each prediction depends on."""
    stack = StackConfig(2, 16, 2, 32, norm="pre", activation="gelu_tanh")
    model, ids = GPT(GPTConfig(9, 5, stack=stack)).eval(), torch.randint(1, 8, (1, 5))
    depends = torch.zeros(5, dtype=torch.long)
    for position in range(5):
        other = ids.clone()
        other[0, position] = 8
        depends += (model(ids) != model(other)).any(-1)[0]
    return same(expected=[1, 2, 3, 4, 5], got=depends.tolist())
