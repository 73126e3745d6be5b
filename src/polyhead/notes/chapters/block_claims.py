"""The block around attention (rows G1 to G14): residuals, norms and the feed-forward network."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.attention import NO_MASK, FullAttention, MultiHeadAttention
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, NotesLayerNorm
from polyhead.layers.transformer_stack import Residual, StackConfig, TransformerBlock
from polyhead.notes.claims import ClaimResult, claim, close, gap, refusal, same
from polyhead.notes.torch_reference import torch_block


@claim("G1", Residual)
def residual_sum() -> ClaimResult:
    """Add the note's two vectors with the library's residual connection."""
    add = Residual(StackConfig(d_model=2, n_heads=1, dropout=0.0, norm="pre"))
    total = add(torch.tensor([1.0, -4.0]), lambda _: torch.tensor([2.0, 3.0]))
    return same(expected=[3.0, -1.0], got=total.tolist())


@claim("G2", Residual, TransformerBlock)
def residual_gradient() -> ClaimResult:
    """Measure the gradient through twelve blocks, with and without residual connections."""
    config = StackConfig(d_model=32, n_heads=4, d_ff=64, dropout=0.0, norm="pre")
    blocks = [TransformerBlock(config, cross=False) for _ in range(12)]
    x = torch.randn(1, 5, 32, requires_grad=True)
    around = with_skip = x
    for block in blocks:
        with_skip = block(with_skip)
        around = block.feed_forward(block.attend(around, NO_MASK, BlockCache()))
    direction = torch.randn_like(x)
    ratios = [
        (torch.autograd.grad(y, x, direction)[0].norm() / direction.norm()).item()
        for y in (with_skip, around)
    ]
    got = f"with: {ratios[0]:.3g}, without: {ratios[1]:.1g}"
    holds = 0.5 < ratios[0] < 2.0 and ratios[1] < 1e-6
    return ClaimResult("with: about 1, without: below 1e-6", got, holds)


@claim("G3", MultiHeadAttention, Residual)
def equal_widths() -> ClaimResult:
    """Add attention of width 12 to 12 features, and a layer of width 8."""
    add = Residual(StackConfig(d_model=12, n_heads=3, dropout=0.0))
    layer, narrow = MultiHeadAttention(12, 3, FullAttention()), nn.Linear(12, 8)
    x = torch.randn(1, 5, 12)
    refused = "12 + 8 refused" if refusal(lambda: add(x, narrow)) else "12 + 8 added"
    got = [*add(x, lambda h: layer(h, layer.project(h))).shape, refused]
    return same(expected=[1, 5, 12, "12 + 8 refused"], got=got)


@claim("G4", TransformerBlock, Residual)
def order_of_sublayers() -> ClaimResult:
    """Compare a post-norm and a pre-norm block with PyTorch's."""
    x, ours, theirs = torch.randn(2, 5, 16), [], []
    post = StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0)
    pre = StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0, norm="pre")
    for config in (post, pre):
        block = TransformerBlock(config, cross=False)
        ours.append(block(x))
        theirs.append(torch_block(block, norm_first=config is pre)(x))
    return close(expected=torch.stack(theirs), got=torch.stack(ours), within=1e-5)


@claim("G5", LayerNorm)
def norm_of_one_token() -> ClaimResult:
    """Compute mean and variance of a row after layer norm and after batch norm."""
    x = torch.arange(1, 11)[:, None] * (torch.randn(10, 64) + 1)  # the tenth is the largest
    row, noted = LayerNorm(64)(x)[0], F.batch_norm(x, None, None, training=True)[0]
    got = [round(v.item(), 4) + 0.0 for v in (row.mean(), row.var(unbiased=False))]
    others = [round(v.item(), 4) for v in (noted.mean(), noted.var(unbiased=False))]
    return same(expected=[0.0, 1.0], got=got).with_note(others, differs=others != got)


@claim("G6", LayerNorm)
def scaled_norm() -> ClaimResult:
    """Normalise a row of 512 with weight 3 and bias 5."""
    norm = LayerNorm(512)
    nn.init.constant_(norm.weight, 3.0)
    nn.init.constant_(norm.bias, 5.0)
    row = norm(torch.randn(512))
    got = [round(value.item(), 3) for value in (row.mean(), row.var(unbiased=False))]
    return same(expected=[5.0, 9.0], got=got)


@claim("G7", LayerNorm, NotesLayerNorm)
def biased_variance() -> ClaimResult:
    """Normalise four features with PyTorch, the library and the note's listing."""
    x = torch.tensor([1.0, 0.0, 0.0, 0.0])
    right, noted = F.layer_norm(x, (4,)), NotesLayerNorm(4)(x)
    result = close(expected=right, got=LayerNorm(4)(x), within=1e-6)
    return result.with_note(noted, differs=not torch.allclose(noted, right, atol=0.1))


@claim("G8", BatchNorm, LayerNorm, InstanceNorm, GroupNorm)
def four_norms() -> ClaimResult:
    """Compare four norms and two limits with PyTorch's, on six features at six positions."""
    x = 2 * torch.randn(4, 6, 6) + 1
    pairs: dict[str, tuple[Tensor, Tensor]] = {
        "batch": (BatchNorm(6)(x), nn.BatchNorm1d(6)(x)),
        "layer": (LayerNorm(6)(x), nn.LayerNorm(6)(x)),
        "instance": (InstanceNorm(6)(x), nn.InstanceNorm1d(6)(x)),
        "group": (GroupNorm(3, 6)(x), nn.GroupNorm(3, 6)(x)),
        "group(1)": (GroupNorm(1, 6)(x), F.layer_norm(x, (6, 6))),
        "group(C)": (GroupNorm(6, 6)(x), F.instance_norm(x)),
    }
    equal = [name for name, (a, b) in pairs.items() if torch.allclose(a, b, atol=1e-5)]
    return same(expected=list(pairs), got=equal)


@claim("G9", LayerNorm, BatchNorm)
def independence_of_the_batch() -> ClaimResult:
    """Measure how the first sample changes when the others are replaced."""
    x, other = torch.randn(2, 8, 6)
    other[0] = x[0]
    changes = [gap(norm(x)[0], norm(other)[0]) for norm in (LayerNorm(6), BatchNorm(6))]
    return same(expected=0.0, got=changes[0]).with_note(changes[1], differs=changes[1] > 0.01)


@claim("G11", LayerNorm, Residual)
def layer_norm_not_length() -> ClaimResult:
    """Compute layer norm, the block's norm and torch.norm of [3, 4]."""
    x, config = torch.tensor([3.0, 4.0]), StackConfig(d_model=2, n_heads=1, dropout=0.0)
    through = Residual(config)(torch.zeros(2), lambda _: x)
    both = torch.stack([LayerNorm(2)(x), through])
    result = close(expected=torch.tensor([[-1.0, 1.0]] * 2), got=both, within=1e-4)
    return result.with_note(torch.norm(x), differs=torch.norm(x).dim() == 0)


@claim("G12", FeedForward)
def position_wise_network() -> ClaimResult:
    """Compute position 0 by hand; measure the effect of a change at position 1."""
    ffn, x = FeedForward(512, 2048, "relu", 0.0), torch.randn(1, 2, 512)
    other = torch.cat([x[:, :1], torch.randn(1, 1, 512)], dim=1)
    hidden = (x[0, 0] @ ffn.w_1.weight.T + ffn.w_1.bias).clamp(min=0)
    right = torch.allclose(ffn(x)[0, 0], hidden @ ffn.w_2.weight.T + ffn.w_2.bias, atol=1e-5)
    felt = gap(ffn(x)[0, 0], ffn(other)[0, 0])
    mixing = nn.Linear(1024, 1024)  # fully connected over both positions
    noted = gap(mixing(x.flatten())[:512], mixing(other.flatten())[:512])
    result = same(["right", 0.0], got=["right" if right else "wrong", round(felt, 6)])
    return result.with_note(noted, differs=noted > 0.01)


@claim("G13", FeedForward, StackConfig)
def inner_width() -> ClaimResult:
    """Count the parameters of a wide and a narrow network, and check their outputs."""
    got = []
    for d_ff in (128, 8):
        block = TransformerBlock(StackConfig(d_model=32, n_heads=4, d_ff=d_ff), cross=False)
        parameters = sum(weight.numel() for weight in block.feed_forward.parameters())
        got += [parameters, block(torch.randn(1, 5, 32)).size(-1)]
    return same(expected=[8352, 32, 552, 32], got=got)


@claim("G14", LayerNorm)
def mean_and_deviation() -> ClaimResult:
    """Compute the textbook's example of eight numbers."""
    x = torch.tensor([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    got = [round(value, 4) + 0.0 for value in LayerNorm(8)(x).tolist()]
    return same(expected=[-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0], got=got)


@claim("G15", Residual)
def residual_and_norm() -> ClaimResult:
    """Pass a vector a thousand times too large through a sub-layer that returns zero."""
    add, x = Residual(StackConfig(d_model=64, n_heads=1, dropout=0.0)), 1000 * torch.randn(64)
    y = add(x, torch.zeros_like)
    alike = torch.corrcoef(torch.stack([x, y]))[0, 1].item()
    got = [round(alike, 4), round(y.std(unbiased=False).item(), 4)]
    return same(expected=[1.0, 1.0], got=got)
