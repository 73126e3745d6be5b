"""The block around attention (rows G1 to G14): residuals, norms and the feed-forward network.

    x → LayerNorm(x + MultiHead(x)) → LayerNorm(x + FFN(x))                  (post-norm, the paper)

G10 is about words.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.attention import FullAttention, MultiHeadAttention
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.masks import NO_MASK
from polyhead.layers.norms import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    NotesLayerNorm,
)
from polyhead.layers.transformer_stack import Residual, StackConfig, TransformerBlock
from polyhead.notes.claims import ClaimResult, claim, close, same, shown


@claim("G1", Residual)
def the_sum() -> ClaimResult:
    """The word 'I' and what attention found, through the library's residual connection."""
    add = Residual(StackConfig(d_model=2, n_heads=1, dropout=0.0, norm="pre"))
    total = add(torch.tensor([1.0, -4.0]), lambda _: torch.tensor([2.0, 3.0]))
    return same(expected=[3.0, -1.0], got=total.tolist())


@claim("G2", Residual, TransformerBlock)
def the_road_back() -> ClaimResult:
    """The gradient through twelve blocks, with their residual connections and around them."""
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
    holds = 0.5 < ratios[0] < 2.0 and ratios[1] < 1e-6
    return ClaimResult("with: about 1, without: below 1e-6",
                   f"with: {ratios[0]:.3g}, without: {ratios[1]:.1g}", holds)  # fmt: skip


@claim("G3", MultiHeadAttention, Residual)
def equal_widths() -> ClaimResult:
    """Attention of width 12 added to 12 features, and a layer that gives only 8."""
    add = Residual(StackConfig(d_model=12, n_heads=3, dropout=0.0))
    layer, narrow, x = (
        MultiHeadAttention(12, 3, FullAttention()),
        nn.Linear(12, 8),
        torch.randn(1, 5, 12),
    )
    try:
        refused = shown(list(add(x, narrow).shape))
    except RuntimeError:
        refused = "12 + 8 refused"
    got = [*add(x, lambda h: layer(h, layer.project(h))).shape, refused]
    return same(expected=[1, 5, 12, "12 + 8 refused"], got=got)


def torchs_layer(block: TransformerBlock, *, norm_first: bool) -> nn.TransformerEncoderLayer:
    """PyTorch's own block with the weights of ours."""
    theirs = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=norm_first)
    ours = block.self_attention
    assert ours.w_q is not None, "queries share their matrix with keys"
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.self_attn.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.self_attn.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.self_attn.out_proj.load_state_dict(ours.w_o.state_dict())
    theirs.linear1.load_state_dict(block.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(block.feed_forward.w_2.state_dict())
    return theirs


@claim("G4", TransformerBlock, Residual)
def order_of_the_parts() -> ClaimResult:
    """The default block and a pre-norm block against PyTorch's."""
    x, ours, theirs = torch.randn(2, 5, 16), [], []
    post = StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0)
    pre = StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0, norm="pre")
    for config in (post, pre):
        block = TransformerBlock(config, cross=False)
        ours.append(block(x))
        theirs.append(torchs_layer(block, norm_first=config is pre)(x))
    return close(expected=torch.stack(theirs), got=torch.stack(ours), within=1e-5)


@claim("G5", LayerNorm)
def one_token_at_a_time() -> ClaimResult:
    """Mean and variance of one row: after layer norm, and if samples are normalised."""
    x = torch.arange(1, 11)[:, None] * (torch.randn(10, 64) + 1)  # the tenth is the largest
    row, noted = LayerNorm(64)(x)[0], F.batch_norm(x, None, None, training=True)[0]
    got = [round(v.item(), 4) + 0.0 for v in (row.mean(), row.var(unbiased=False))]
    others = [round(v.item(), 4) for v in (noted.mean(), noted.var(unbiased=False))]
    return same(expected=[0.0, 1.0], got=got).with_note(others, differs=others != got)


@claim("G6", LayerNorm)
def stretched() -> ClaimResult:
    """Weight 3 and bias 5 on a row of 512."""
    norm = LayerNorm(512)
    nn.init.constant_(norm.weight, 3.0)
    nn.init.constant_(norm.bias, 5.0)
    row = norm(torch.randn(512))
    got = [round(value.item(), 3) for value in (row.mean(), row.var(unbiased=False))]
    return same(expected=[5.0, 9.0], got=got)


@claim("G7", LayerNorm, NotesLayerNorm)
def biased_variance() -> ClaimResult:
    """Four features: PyTorch, ours, and the note's listing."""
    x = torch.tensor([1.0, 0.0, 0.0, 0.0])
    right, noted = F.layer_norm(x, (4,)), NotesLayerNorm(4)(x)
    result = close(expected=right, got=LayerNorm(4)(x), within=1e-6)
    return result.with_note(noted, differs=not torch.allclose(noted, right, atol=0.1))


@claim("G8", BatchNorm, LayerNorm, InstanceNorm, GroupNorm)
def four_norms() -> ClaimResult:
    """How far each is from PyTorch's, on six features at six positions."""
    x = 2 * torch.randn(4, 6, 6) + 1
    pairs: dict[str, tuple[Tensor, Tensor]] = {
        "batch": (BatchNorm(6)(x), nn.BatchNorm1d(6)(x)),
        "layer": (LayerNorm(6)(x), nn.LayerNorm(6)(x)),
        "instance": (InstanceNorm(6)(x), nn.InstanceNorm1d(6)(x)),
        "group": (GroupNorm(3, 6)(x), nn.GroupNorm(3, 6)(x)),
        "group(1)": (GroupNorm(1, 6)(x), F.layer_norm(x, (6, 6))),
        "group(C)": (GroupNorm(6, 6)(x), F.instance_norm(x)),
    }
    return same(
        list(pairs), got=[n for n, (a, b) in pairs.items() if torch.allclose(a, b, atol=1e-5)]
    )


@claim("G9", LayerNorm, BatchNorm)
def other_company() -> ClaimResult:
    """How much the first sample changes when the others are replaced."""
    x, other = torch.randn(2, 8, 6)
    other[0] = x[0]
    changes = []
    for norm in (LayerNorm(6), BatchNorm(6)):
        changes.append((norm(x) - norm(other))[0].abs().max().item())
    return same(expected=0.0, got=changes[0]).with_note(changes[1], differs=changes[1] > 0.01)


@claim("G11", LayerNorm, Residual)
def a_layer_not_a_length() -> ClaimResult:
    """Both for [3, 4]; the block's own norm gives what ours does."""
    x, config = torch.tensor([3.0, 4.0]), StackConfig(d_model=2, n_heads=1, dropout=0.0)
    through = Residual(config)(torch.zeros(2), lambda _: x)
    both = torch.stack([LayerNorm(2)(x), through])
    result = close(expected=torch.tensor([[-1.0, 1.0]] * 2), got=both, within=1e-4)
    return result.with_note(torch.norm(x), differs=torch.norm(x).dim() == 0)


@claim("G12", FeedForward)
def position_by_position() -> ClaimResult:
    """What position 0 gives, by hand; and how much it feels a change at position 1."""
    ffn, x = FeedForward(512, 2048, "relu", 0.0), torch.randn(1, 2, 512)
    other = torch.cat([x[:, :1], torch.randn(1, 1, 512)], dim=1)
    hidden = (x[0, 0] @ ffn.w_1.weight.T + ffn.w_1.bias).clamp(min=0)
    right = torch.allclose(ffn(x)[0, 0], hidden @ ffn.w_2.weight.T + ffn.w_2.bias, atol=1e-5)
    felt = (ffn(x) - ffn(other))[0, 0].abs().max().item()
    mixing = nn.Linear(1024, 1024)  # fully connected over both positions
    noted = (mixing(x.flatten()) - mixing(other.flatten()))[:512].abs().max().item()
    result = same(["right", 0.0], got=["right" if right else "wrong", round(felt, 6)])
    return result.with_note(noted, differs=noted > 0.01)


@claim("G13", FeedForward, StackConfig)
def wide_or_narrow() -> ClaimResult:
    """Parameters of both, and the width of what comes out."""
    got = []
    for d_ff in (128, 8):
        block = TransformerBlock(StackConfig(d_model=32, n_heads=4, d_ff=d_ff), cross=False)
        parameters = sum(weight.numel() for weight in block.feed_forward.parameters())
        got += [parameters, block(torch.randn(1, 5, 32)).size(-1)]
    return same(expected=[8352, 32, 552, 32], got=got)


@claim("G14", LayerNorm)
def mean_and_deviation() -> ClaimResult:
    """The textbook's eight numbers."""
    x = torch.tensor([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    got = [round(value, 4) + 0.0 for value in LayerNorm(8)(x).tolist()]
    return same(expected=[-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0], got=got)


@claim("G15", Residual)
def two_helpers() -> ClaimResult:
    """A word a thousand times too large through a silent sub-layer: its direction, its size."""
    add, x = Residual(StackConfig(d_model=64, n_heads=1, dropout=0.0)), 1000 * torch.randn(64)
    y = add(x, torch.zeros_like)
    alike = torch.corrcoef(torch.stack([x, y]))[0, 1].item()
    got = [round(alike, 4), round(y.std(unbiased=False).item(), 4)]
    return same(expected=[1.0, 1.0], got=got)
