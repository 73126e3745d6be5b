"""Cross-attention (rows E1 to E4): the decoder asks, the encoder answers.

self    Attention(X W_q, X W_k, X W_v)        one sentence looks at itself
cross   Attention(X W_q, Y W_k, Y W_v)        X the decoder's states, Y the encoder's output
"""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.layers.attention import FullAttention, MultiHeadAttention
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.kv_cache import Memory
from polyhead.layers.masks import NO_MASK
from polyhead.layers.transformer_stack import Residual, StackConfig, TransformerBlock
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import ClaimResult, claim, close, same


@claim("E1", TransformerBlock.recall, TransformerBlock.forward, Residual)
def the_decoder_asks() -> ClaimResult:
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
    return close(expected=expected, got=block(x, memory=Memory(memory, NO_MASK)), within=1e-5)


@claim("E2", TransformerBlock.recall, record_attention)
def who_asks_whom() -> ClaimResult:
    """The table of a model with five source and three target words, and the note's."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 5, 6, 2]]), torch.tensor([[1, 5, 6]])
    with record_attention(model) as maps:
        model(source, target)
    layer = MultiHeadAttention(16, 2, FullAttention())
    encoded, decoded = torch.randn(1, 5, 16), torch.randn(1, 3, 16)
    noted = layer(encoded, layer.project(decoded)).size(1)  # as many as there are source words
    result = same(expected=[3, 5], got=list(maps["decoder.blocks.0.cross_attention"].shape[-2:]))
    return result.with_note([noted, decoded.size(1)], differs=noted != decoded.size(1))


@claim("E3", MultiHeadAttention)
def one_layer_for_both() -> ClaimResult:
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


@claim("E4", record_attention, Transformer)
def three_kinds_of_tables() -> ClaimResult:
    """The sizes of all three tables, and whether a new source reaches each of them."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 5, 6, 2]]), torch.tensor([[1, 5, 6]])
    with record_attention(model) as before:
        model(source, target)
    with record_attention(model) as after:
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
