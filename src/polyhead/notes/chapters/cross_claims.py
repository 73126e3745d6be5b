"""Cross-attention (rows E1 to E4): queries from the decoder, keys and values from the encoder."""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.layers.attention import NO_MASK, FullAttention, MultiHeadAttention
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.kv_cache import Memory
from polyhead.layers.transformer_stack import Residual, StackConfig, TransformerBlock
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.notes.claims import ClaimResult, claim, close, same
from polyhead.notes.torch_reference import torch_attention


@claim("E1", TransformerBlock.recall, TransformerBlock.forward, Residual)
def queries_from_decoder() -> ClaimResult:
    """Compare a block reduced to cross-attention with torch's layer plus the residual."""
    block = TransformerBlock(StackConfig(1, 8, 2, 16, dropout=0.0, norm="pre"), cross=True)
    for last in (block.self_attention.w_o, block.feed_forward.w_2):
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
    assert block.cross_attention is not None, "this block was built with cross-attention"
    theirs = torch_attention(block.cross_attention)
    x, memory = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    expected = x + theirs(F.layer_norm(x, (8,)), memory, memory)[0]
    return close(expected=expected, got=block(x, memory=Memory(memory, NO_MASK)), within=1e-5)


@claim("E2", TransformerBlock.recall, record_attention)
def rows_are_target_words() -> ClaimResult:
    """Compare the weights' shape for five source and three target words with the note's."""
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
    """Use a module for self-attention and for cross-attention; compare with torch's."""
    ours = MultiHeadAttention(8, 2, FullAttention())
    theirs = torch_attention(ours)
    x, y = torch.randn(3, 8), torch.randn(5, 8)  # torch takes one sentence without a batch, too
    expected = torch.stack([theirs(x, x, x)[0], theirs(x, y, y)[0]])
    got = torch.cat([ours(x[None], ours.project(x[None])), ours(x[None], ours.project(y[None]))])
    return close(expected=expected, got=got, within=1e-5)


@claim("E4", record_attention, Transformer)
def three_attention_tables() -> ClaimResult:
    """Check the sizes of the three tables, and whether a new source changes them."""
    model = Transformer(TransformerConfig(9, 9, stack=StackConfig(1, 16, 2, 32))).eval()
    source, target = torch.tensor([[3, 4, 5, 6, 2]]), torch.tensor([[1, 5, 6]])
    with record_attention(model) as before:
        model(source, target)
    with record_attention(model) as after:
        model(source.flip(1), target)
    tables = ("encoder", "self"), ("decoder", "self"), ("decoder", "cross")
    got = [
        f"{before[name].size(-2)} x {before[name].size(-1)}, "
        + ("same" if torch.equal(before[name], after[name]) else "new")
        for name in (f"{part}.blocks.0.{kind}_attention" for part, kind in tables)
    ]
    return same(expected=["5 x 5, new", "3 x 3, same", "3 x 5, new"], got=got)
