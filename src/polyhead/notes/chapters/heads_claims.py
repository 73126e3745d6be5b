"""Multi-head attention (rows C1 to C9): several small attentions instead of a large one."""

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.layers.attention import FullAttention, Mask, MultiHeadAttention, attention_weights
from polyhead.layers.attention_hooks import record_attention
from polyhead.notes.claims import ClaimResult, claim, close, gap, refusal, same, shown
from polyhead.notes.torch_reference import torch_attention


@claim("C1", MultiHeadAttention)
def concatenated_heads() -> ClaimResult:
    """Compare the input of W_o with the outputs of the heads side by side."""
    layer, x = MultiHeadAttention(12, 3, FullAttention()), torch.randn(1, 5, 12)
    nn.init.eye_(layer.w_o.weight)
    nn.init.zeros_(layer.w_o.bias)
    q, k, v = layer.w_q(x), layer.w_k(x), layer.w_v(x)
    heads = [
        F.scaled_dot_product_attention(q[..., i : i + 4], k[..., i : i + 4], v[..., i : i + 4])
        for i in (0, 4, 8)
    ]
    return close(expected=torch.cat(heads, dim=-1), got=layer(x, layer.project(x)), within=1e-6)


@claim("C2", MultiHeadAttention.project)
def heads_as_separate_layers() -> ClaimResult:
    """Compare the keys of all heads with eight separate layers of the same weights."""
    layer, x = MultiHeadAttention(512, 8, FullAttention()), torch.randn(1, 5, 512)
    small = []
    for weight, bias in zip(layer.w_k.weight.split(64), layer.w_k.bias.split(64), strict=True):
        head = nn.Linear(512, 64)
        head.load_state_dict({"weight": weight, "bias": bias})
        small.append(head(x))
    return close(expected=torch.stack(small, dim=1), got=layer.project(x).keys, within=1e-5)


@claim("C3", MultiHeadAttention, FullAttention)
def heads_equal_torch() -> ClaimResult:
    """Compare the layer with torch's multi-head attention of the same weights."""
    ours = MultiHeadAttention(12, 3, FullAttention())
    theirs = torch_attention(ours)
    x, y = 3 * torch.randn(2, 3, 12), 3 * torch.randn(2, 5, 12)
    return close(expected=theirs(x, y, y)[0], got=ours(x, ours.project(y)), within=1e-5)


@claim("C4", MultiHeadAttention)
def width_of_heads() -> ClaimResult:
    """Check the sizes inside the layer, and that seven heads are rejected."""
    layer, x = MultiHeadAttention(512, 8, FullAttention()), torch.randn(1, 3, 512)
    kv = layer.project(x)
    sizes = [x.size(-1), kv.keys.size(1), kv.keys.size(-1), layer(x, kv).size(-1)]
    message = refusal(lambda: MultiHeadAttention(512, 7, FullAttention()))
    seven = "7 heads refused" if "512" in message and "7" in message else message
    return same(expected=[512, 8, 64, 512, "7 heads refused"], got=[*sizes, seven])


@claim("C5", MultiHeadAttention, record_attention)
def heads_differ() -> ClaimResult:
    """Count the heads that differ from the first: as built, and with copied matrices."""
    layer, x = MultiHeadAttention(64, 8, FullAttention()), torch.randn(1, 5, 64)
    different = []
    for copied in (False, True):
        with torch.no_grad():
            for part in (layer.w_q, layer.w_k) if copied else ():
                part.weight.copy_(part.weight[:8].repeat(8, 1))
                part.bias.copy_(part.bias[:8].repeat(8))
        with record_attention(layer) as maps:
            layer(x, layer.project(x))
        first, *others = maps[""][0]
        different.append(sum(not torch.allclose(first, other, atol=1e-5) for other in others))
    return same(expected=[7, 0], got=different)


@claim("C6", MultiHeadAttention.project, FullAttention, MultiHeadAttention.forward)
def four_steps() -> ClaimResult:
    """Compare the four steps written out with the layer."""
    layer, x = MultiHeadAttention(12, 3, FullAttention()), torch.randn(2, 5, 12)
    parts = layer.w_q, layer.w_k, layer.w_v
    q, k, v = (F.linear(x, part.weight, part.bias).view(2, 5, 3, 4) for part in parts)  # 1
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / 2  # 2: √4 = 2
    heads = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)
    joined = heads.reshape(2, 5, 12)  # 3
    expected = F.linear(joined, layer.w_o.weight, layer.w_o.bias)  # 4
    return close(expected=expected, got=layer(x, layer.project(x)), within=1e-5)


@claim("C7", MultiHeadAttention, FullAttention, attention_weights)
def listing_of_the_note() -> ClaimResult:
    """Run the note's listing as printed and completed; compare with the layer, also in half."""
    layer, x = MultiHeadAttention(12, 3, FullAttention()), torch.randn(2, 5, 12)
    q, k, v = (part(x).view(2, -1, 3, 4).permute(0, 2, 1, 3)
               for part in (layer.w_q, layer.w_k, layer.w_v))  # fmt: skip
    printed = torch.softmax(q @ k.permute(0, 1, 3, 2) / 2, dim=-1) @ v  # the listing's last line
    completed = layer.w_o(printed.permute(0, 2, 1, 3).reshape(2, -1, 12))
    result = close(expected=completed, got=layer(x, layer.project(x)), within=1e-5)
    nothing = Mask(keys=torch.zeros(2, 5, dtype=torch.bool))
    half, x = layer.half(), x.half()
    hidden = half(x, half.project(x), nothing)  # only W_o's bias is left
    survives = torch.equal(hidden, half.w_o.bias.expand(2, 5, 12))
    result = result.if_also(survives and not attention_weights(q, k, nothing).any())
    noted = f"returns nothing, x: {shown(printed)}"
    return result.with_note(noted, differs=printed.shape != completed.shape)


@claim("C8", record_attention, attention_weights)
def axes_of_weights() -> ClaimResult:
    """Check the shape of the weights, and along which axis they sum to 1."""
    layer = MultiHeadAttention(32, 8, FullAttention())
    x, y = torch.randn(2, 3, 32), torch.randn(2, 5, 32)
    with record_attention(layer) as maps:
        layer(x, layer.project(y))
    weights = maps[""]
    axes = enumerate(["batch", "head", "query", "key"])
    sums = [name for axis, name in axes if (weights.sum(axis) - 1).abs().max() < 1e-5]
    got = [*weights.shape, f"sum over {'+'.join(sums)}"]
    return same(expected=[2, 8, 3, 5, "sum over key"], got=got)


@claim("C9", MultiHeadAttention)
def contiguous_memory() -> ClaimResult:
    """Check that view() fails on a transposed tensor, and that the layer accepts it."""
    layer, turned = MultiHeadAttention(12, 3, FullAttention()), torch.randn(2, 12, 5).mT
    view = "view refuses" if refusal(lambda: turned.view(2, 60)) else "view works"
    straight = turned.contiguous()
    merged = layer(turned, layer.project(turned))
    off = gap(merged, layer(straight, layer.project(straight)))
    alike = torch.equal(turned.reshape(2, 60), straight.view(2, 60)) and off < 1e-6
    heard = "layer: the same" if alike else f"layer: off by {off:.2g}"
    return same(expected=["view refuses", "layer: the same"], got=[view, heard])
