"""Chunks change only the memory of the feed-forward network; the faster GELU equals PyTorch's."""

import pytest
import torch
from torch.nn import functional as F

from polyhead.layers.feed_forward import FeedForward, TanhGELU

WIDE = torch.cat([torch.linspace(-40, 40, 4001), torch.tensor([0.0, -1e-30, 1e-30, -1e6, 1e6])])


def pair(dropout=0.0, chunk=5, activation="relu"):
    whole = FeedForward(8, 32, activation, dropout)
    pieces = FeedForward(8, 32, activation, dropout, chunk=chunk)
    pieces.load_state_dict(whole.state_dict())
    return whole, pieces


def run(layer, x):
    x = x.clone().requires_grad_()
    torch.manual_seed(3)
    out = layer(x)
    torch.rand(7)  # random numbers drawn before the backward pass
    out.square().sum().backward()
    return [out.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("chunk", [1, 5, 21, 100])
def test_pieces_are_exact(chunk, activation):
    whole, pieces = pair(chunk=chunk, activation=activation)
    x = torch.randn(3, 7, 8)
    for a, e in zip(run(pieces, x), run(whole, x), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-6, atol=1e-6)


def test_recomputation_uses_the_same_dropout():
    layer = FeedForward(4, 16, "gelu", 0.4, chunk=3).double()
    x = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)

    def feed(x):
        torch.manual_seed(3)
        return layer(x)

    assert torch.autograd.gradcheck(feed, (x,), fast_mode=True)
    assert not torch.allclose(feed(x), layer.eval()(x))


def test_the_inner_layer_is_not_kept():
    def kept(layer):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.numel()) or x, lambda x: x
        ):
            layer(torch.randn(3, 7, 8, requires_grad=True)).sum()
        return max(sizes, default=0)

    whole, pieces = pair()
    assert kept(whole) >= 3 * 7 * 32
    assert kept(pieces) < 3 * 7 * 32


def test_only_one_piece_of_the_inner_layer_exists_at_once():
    widest = []
    layer = pair(chunk=5)[1]
    layer.w_1.register_forward_hook(lambda _, __, out: widest.append(out.numel()))
    x = torch.randn(3, 7, 8, requires_grad=True)
    layer(x).sum().backward()
    with torch.no_grad():
        layer(x)
    assert max(widest) == 5 * 32


def test_a_negative_chunk_is_refused():
    with pytest.raises(ValueError, match="must be at least 1, or 0 for all positions, got -1"):
        FeedForward(8, 32, "relu", 0.0, chunk=-1)


def there_and_back(activation, x, dtype):
    x = x.to(dtype).requires_grad_()
    y = activation(x)
    (slope,) = torch.autograd.grad(
        y, x, torch.linspace(-2, 2, x.numel(), dtype=dtype).view(x.shape)
    )
    return y.detach(), slope


def theirs(x):
    return F.gelu(x, approximate="tanh")


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_values_and_slopes_are_pytorchs(dtype, within):
    ours, expected = (there_and_back(f, WIDE, dtype) for f in (TanhGELU(), theirs))
    torch.testing.assert_close(ours, expected, rtol=within, atol=within)


def test_what_comes_in_is_left_alone():
    x = torch.randn(7, requires_grad=True)
    before = x.detach().clone()
    TanhGELU()(x).sum().backward()
    assert torch.equal(x, before)


def test_it_keeps_no_more_than_its_input():
    x, kept = torch.randn(64, 32, requires_grad=True), []

    def keep(t):
        kept.append(t.numel())
        return t

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        TanhGELU()(x)
    assert kept == [x.numel()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_left_to_pytorch(dtype):
    x = torch.linspace(-4, 4, 101)
    ours, expected = (there_and_back(f, x, dtype) for f in (TanhGELU(), theirs))
    assert all(torch.equal(a, e) for a, e in zip(ours, expected, strict=True))


def test_a_large_one_is_computed_in_pieces(monkeypatch):
    monkeypatch.setattr("polyhead.layers.feed_forward.PIECE", 7)
    x = torch.linspace(-3, 3, 24, dtype=torch.float64).view(2, 3, 4)
    for case in (x, x.transpose(0, 2)):
        ours, expected = (there_and_back(f, case, x.dtype) for f in (TanhGELU(), theirs))
        torch.testing.assert_close(ours, expected)
