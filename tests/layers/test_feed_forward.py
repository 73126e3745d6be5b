"""Computing the feed-forward network in pieces must change its memory and nothing else."""

import pytest
import torch
from torch import nn

from polyhead.layers.feed_forward import FeedForward


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


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


def test_the_two_layers_are_pytorchs():
    layer, x = FeedForward(8, 32, "gelu", 0.0, chunk=4), torch.randn(3, 7, 8)
    theirs = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
    theirs[0].load_state_dict(layer.w_1.state_dict())
    theirs[2].load_state_dict(layer.w_2.state_dict())
    torch.testing.assert_close(layer(x), theirs(x))


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
