"""Attention and its scores (rows B1 to B20): softmax(Q Kᵀ / √d_k) V."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from polyhead.layers.attention import (
    NO_MASK,
    FullAttention,
    Mask,
    MultiHeadAttention,
    attention,
    attention_weights,
)
from polyhead.layers.attention_hooks import record_attention
from polyhead.layers.attention_scores import (
    BUILT_IN,
    Additive,
    Dot,
    General,
    ScaledDot,
    ScoredAttention,
)
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import LookBack
from polyhead.layers.transformer_stack import Residual, StackConfig, TransformerBlock
from polyhead.notes.claims import ClaimResult, claim, close, gap, near, refusal, same, shown


@claim("B1", attention, FullAttention)
def attention_formula() -> ClaimResult:
    """Compare formula and kernel with PyTorch, without a mask and with padding hidden."""
    q, k, v = torch.randn(3, 2, 4, 6, 8)
    keys = torch.tensor([[True] * 4 + [False] * 2, [True] * 6])
    kernels, masks = (attention, FullAttention()), (NO_MASK, Mask(keys=keys))
    ours = [kernel(q, k, v, mask) for kernel in kernels for mask in masks]
    allowed = None, keys[:, None, None]
    theirs = [F.scaled_dot_product_attention(q, k, v, attn_mask=m) for m in allowed]
    return close(expected=torch.stack(theirs * 2), got=torch.stack(ours), within=1e-6)


@claim("B2", attention_weights)
def softmax_over_keys() -> ClaimResult:
    """Sum the weights of four queries, with the softmax over keys and over dimension 1."""
    q, k = torch.randn(2, 2, 3, 4, 8)
    rows = attention_weights(q, k)[0, 0].sum(-1)
    noted = (q @ k.mT / math.sqrt(8)).softmax(dim=1)[0, 0].sum(-1)
    result = close(expected=torch.ones(4), got=rows, within=1e-6)
    return result.with_note(noted, differs=bool((noted - 1).abs().max() > 0.1))


@claim("B3", Dot, ScaledDot)
def variance_of_scores() -> ClaimResult:
    """Measure the variance for d_k = 4, 64, 512, unscaled and scaled, and the slope at 512."""
    variances, slopes = [], []
    for score in (Dot(), ScaledDot()):
        for d_k in (4, 64, 512):
            scores = score(*torch.randn(2, 1, 1, 2000, d_k))
            variances.append(scores.var().item())
        slopes.append(1 - scores[0, 0, :, :50].softmax(-1).square().sum(-1).mean().item())
    right = close([4.0, 64.0, 512.0, 1.0, 1.0, 1.0], variances, within=0.05)
    result = ClaimResult(right.expected, shown([f"{v:.3g}" for v in variances]), right.holds)
    return result.if_also(slopes[0] < 0.2 < 0.8 < slopes[1])


@claim("B4", FullAttention, MultiHeadAttention.project)
def scale_factor() -> ClaimResult:
    """Recover the scale from the logarithms of the weights (values are unit vectors)."""
    layer, x = MultiHeadAttention(512, 8, FullAttention()), torch.randn(1, 3, 512)
    k = layer.project(x).keys
    weights = layer.kernel(k, k, torch.eye(3).expand(1, 8, 3, 3))  # keys ask each other
    factor = weights.log().diff().norm() / torch.einsum("bhqd,bhkd->bhqk", k, k).diff().norm()
    result = close(expected=1 / math.sqrt(64), got=factor.item(), within=1e-5)
    return result.with_note(1 / math.sqrt(512), differs=True)


@claim("B6", General)
def general_score() -> ClaimResult:
    """Compute the general score with the identity, with keys of another width, and as noted."""
    q, k = torch.tensor([[[[1.0, 2.0]]]]), torch.tensor([[[[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]]])
    general, wide = General(1, 2, 2), General(1, 2, 5)
    nn.init.eye_(general.w.data[0])
    more = f"width 5: {wide(q, torch.randn(1, 1, 3, 5)).numel()} scores"
    got = [*general(q, k).flatten().tolist(), more]
    result = same(expected=[11.0, 17.0, 23.0, "width 5: 3 scores"], got=got)
    impossible = refusal(lambda: q @ k.mT @ general.w)
    return result.with_note("1x3 times 2x2: impossible", differs=bool(impossible))


@claim("B7", TransformerBlock.attend, TransformerBlock.recall)
def self_attention_ignores_memory() -> ClaimResult:
    """Measure how both attentions of a block change with another memory."""
    block = TransformerBlock(StackConfig(d_model=16, n_heads=2, d_ff=32, dropout=0.0), cross=True)
    x, *memories = torch.randn(3, 1, 4, 16)
    outputs: list[torch.Tensor] = []
    for part in block.children():
        if isinstance(part, MultiHeadAttention):
            part.register_forward_hook(lambda _part, _inputs, output: outputs.append(output))
    for states in memories:
        block(x, memory=Memory(states, NO_MASK))
    moved = [gap(outputs[i + 2], outputs[i]) for i in (0, 1)]
    return same(expected=0.0, got=moved[0]).with_note(moved[1], differs=moved[1] > 0.01)


@claim("B8", ScaledDot, attention_weights, attention)
def scores_weights_output() -> ClaimResult:
    """Compute scores 1, 0, 0 by hand, their weights, and the output for values 1, 2, 3."""
    q, k = torch.ones(1, 1, 1, 4), torch.tensor([[[[0.5] * 4, [0.0] * 4, [0.0] * 4]]])
    v, e = torch.tensor([[[[1.0], [2.0], [3.0]]]]), math.e
    expected = torch.tensor([1, 0, 0, e / (e + 2), 1 / (e + 2), 1 / (e + 2), (e + 5) / (e + 2)])
    parts = [ScaledDot()(q, k), attention_weights(q, k), attention(q, k, v)]
    result = close(expected, torch.cat([part.flatten() for part in parts]), within=1e-6)
    return result.with_note(f"score {shown(parts[2].item())}", differs=parts[2].numel() != 3)


@claim("B9", attention)
def softmax_of_scaled_scores() -> ClaimResult:
    """Compare attention over two keys (d_k = 4) with the sum without a softmax."""
    q, k = torch.ones(1, 1, 1, 4), torch.tensor([[[[0.5] * 4, [0.0] * 4]]])
    v = torch.tensor([[[[10.0], [20.0]]]])
    noted = ((q @ k.mT) @ v).item()
    result = close((10 * math.e + 20) / (math.e + 1), attention(q, k, v).item(), within=1e-6)
    return result.with_note(noted, differs=abs(noted - attention(q, k, v).item()) > 1)


@claim("B10", MultiHeadAttention.project)
def projections_of_rows() -> ClaimResult:
    """Compare keys and values with the product written out, head by head."""
    layer, x = MultiHeadAttention(8, 2, FullAttention()), torch.randn(1, 5, 8)
    products = [x[0] @ part.weight.T + part.bias for part in (layer.w_k, layer.w_v)]
    expected = torch.stack([torch.stack([p[:, :4], p[:, 4:]]) for p in products])
    return close(expected, got=torch.cat(layer.project(x)), within=1e-6)


@claim("B11", LookBack, Additive)
def values_of_bahdanau() -> ClaimResult:
    """Compute Bahdanau's context by hand, with h as keys and values."""
    s, h, score = torch.randn(1, 1, 4), torch.randn(1, 3, 4), Additive(1, 4, 4)
    energy = torch.tanh(s[0] @ score.w_q[0] + h[0] @ score.w_k[0]) @ score.v[0]
    alpha = energy.exp() / energy.exp().sum()
    expected = alpha[0] * h[0, 0] + alpha[1] * h[0, 1] + alpha[2] * h[0, 2]
    got = LookBack(ScoredAttention(score))(s, Memory(h, NO_MASK))[0, 0]
    result = close(expected, got, within=1e-5)
    return result.with_note(f"{len(alpha)} weights, no vector", differs=len(alpha) != len(expected))


@claim("B12", attention_weights, attention)
def importance_is_the_weight() -> ClaimResult:
    """Add to one value, and compare the output's change with the weights of four queries."""
    q, k, v = torch.randn(3, 1, 1, 4, 8)
    more = F.pad(torch.ones(1, 1, 1, 8), (0, 0, 0, 3))  # 1 more in all features of the first value
    importance = F.scaled_dot_product_attention(q, k, torch.eye(4)[None, None])[0, 0, :, 0]
    moved = (attention(q, k, v + more) - attention(q, k, v))[0, 0]
    result = close(expected=importance, got=moved.mean(-1), within=1e-5)
    unequal = bool(importance.max() - importance.min() > 0.01)
    return result.with_note("one importance for all queries", differs=unequal)


@claim("B13", FullAttention, MultiHeadAttention)
def shape_of_output() -> ClaimResult:
    """Compute the output shape of narrower values, and of a whole layer."""
    q, k, v = torch.randn(1, 1, 3, 8), torch.randn(1, 1, 5, 8), torch.randn(1, 1, 5, 6)
    layer, x = MultiHeadAttention(12, 3, FullAttention()), torch.randn(1, 3, 12)
    shapes = [*FullAttention()(q, k, v).shape[2:], *layer(x, layer.project(x)).shape[1:]]
    result = same(expected=[3, 6, 3, 12], got=shapes)
    return result.with_note([*q.shape[2:]], differs=shapes[1] != q.size(-1))


@claim("B15", MultiHeadAttention)
def shapes_of_queries_and_keys() -> ClaimResult:
    """Check the shapes in self-attention; attend from three tokens to five as PyTorch does."""
    layer, (x, y) = MultiHeadAttention(4, 1, FullAttention()), torch.randn(1, 8, 4).split([3, 5], 1)
    shapes = {tuple(part.shape[2:]) for part in (layer.w_q(x)[:, None], *layer.project(x))}
    q, (k, v) = layer.project(x).keys, layer.project(y)
    output = layer.kernel(q, k, v)
    right = torch.allclose(output, F.scaled_dot_product_attention(q, k, v), atol=1e-6)
    across = "across: 3 queries, 5 keys" if right else "across: wrong"
    return same(expected=[(3, 4), "across: 3 queries, 5 keys"], got=[*shapes, across])


@claim("B16", ScaledDot)
def scores_of_all_pairs() -> ClaimResult:
    """Compare the scores of two sentences of five tokens with a batched product."""
    q, k = torch.randn(2, 2, 5, 64)
    expected = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(64)
    return close(expected, got=ScaledDot()(q[:, None], k[:, None])[:, 0], within=1e-6)


@claim("B17", MultiHeadAttention)
def learned_matrices() -> ClaimResult:
    """List the matrices of a layer that receive a gradient."""
    layer, x = MultiHeadAttention(8, 2, FullAttention()), torch.randn(1, 5, 8)
    weights = {name: weight for name, weight in layer.named_parameters() if weight.dim() > 1}
    slopes = torch.autograd.grad(layer(x, layer.project(x)).square().sum(), [*weights.values()])
    moved = [name for name, slope in zip(weights, slopes, strict=True) if slope.norm() > 1e-6]
    result = same(expected=["w_q.weight", "w_k.weight", "w_v.weight", "w_o.weight"], got=moved)
    return result.with_note(["q", "k", "v"], differs=not {"q", "k", "v"} & set(moved))


@claim("B18", MultiHeadAttention, FullAttention)
def all_pairs_interact() -> ClaimResult:
    """Count the pairs with a gradient, and measure the effect of shuffled keys."""
    layer, x = MultiHeadAttention(16, 2, FullAttention()), torch.randn(1, 8, 16)
    slopes = torch.autograd.functional.jacobian(lambda x: layer(x, layer.project(x))[0].sum(-1), x)
    (k, v), shuffled = layer.project(x), torch.randperm(8)
    q, kernel = torch.randn(1, 2, 8, 8), layer.kernel
    change = gap(kernel(q, k, v), kernel(q, k[:, :, shuffled], v[:, :, shuffled]))
    pairs = int((slopes[:, 0].norm(dim=-1) > 0).sum())
    return same(expected=[64, 0.0], got=[pairs, round(change, 5)])


@claim("B19", MultiHeadAttention, Residual)
def own_word_is_not_favoured() -> ClaimResult:
    """Measure the mean weight of a word on itself in new layers; the residual adds the word."""
    x, own = torch.randn(100, 8, 64), []
    for _ in range(4):
        layer = MultiHeadAttention(64, 8, FullAttention())
        with record_attention(layer) as maps:
            layer(x, layer.project(x))
        own.append(maps[""].diagonal(dim1=-2, dim2=-1).mean().item())
    residual = Residual(StackConfig(d_model=64, dropout=0.0, norm="pre"))
    kept = torch.equal(residual(x, torch.zeros_like), x)
    result = near(expected=1 / 8, got=sum(own) / 4, within=0.01)
    return result.if_also(kept).with_note("more than 1/2", differs=max(own) < 1 / 2)


@claim("B20", ScaledDot, Additive)
def reason_for_the_scale() -> ClaimResult:
    """Count the scores; measure the slope of the softmax at d_k = 512, unscaled and scaled."""
    kinds = tuple(BUILT_IN)
    q, k = torch.randn(2, 1, 1, 50, 512)
    flat, steep = (
        1 - score(q, k).softmax(-1).square().sum(-1).mean() for score in (Dot(), ScaledDot())
    )
    additive = Additive(1, 3, 5)
    s, h = torch.randn(1, 1, 1, 3), torch.randn(1, 1, 4, 5)
    energy = torch.tanh(s[0, 0] @ additive.w_q[0] + h[0, 0] @ additive.w_k[0]) @ additive.v[0]
    works = torch.allclose(additive(s, h)[0, 0, 0], energy, atol=1e-6)
    got = f"{len(kinds)} scores, slope {flat:.2f} without √d_k, {steep:.2f} with"
    holds = len(kinds) == 4 and works and bool(flat < 0.2 < 0.8 < steep)
    result = ClaimResult("4 scores, slope below 0.2 without √d_k, above 0.8 with", got, holds)
    return result.with_note("3 scores, no reason", differs=len(kinds) != 3)
