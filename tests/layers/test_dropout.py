"""Our dropout against what dropout is."""

import pytest
import torch

from polyhead.layers.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_the_right_share_is_silenced_and_the_rest_made_louder(p):
    x = torch.randn(400, 501) + 5  # no zeros of its own; not a multiple of four
    y = Dropout(p).train()(x)
    silent = y == 0
    assert silent.float().mean().item() == pytest.approx(p, abs=0.005)
    torch.testing.assert_close(y[~silent], x[~silent] / (1 - p))


def test_neighbours_are_independent():
    silent = Dropout(0.5).train()(torch.ones(1_000_000)) == 0
    for distance in (1, 2, 3, 4, 5):
        both = (silent[distance:] & silent[:-distance]).float().mean().item()
        assert both == pytest.approx(0.25, abs=0.003)


def test_the_gradient_goes_where_the_signal_went():
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.4).train()(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach() / x.detach())


def test_the_same_seed_gives_the_same_mask():
    x, layer = torch.ones(100), Dropout(0.5).train()
    torch.manual_seed(7)
    first = layer(x)
    second = layer(x)
    torch.manual_seed(7)
    assert torch.equal(layer(x), first)
    assert not torch.equal(second, first)


def test_nothing_happens_outside_training():
    x = torch.randn(9)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


def test_all_cannot_be_silenced():
    with pytest.raises(ValueError, match=r"at least 0 and less than 1, got 1\.0"):
        Dropout(1.0)


def test_dropout_and_sum_in_one_equal_dropout_then_sum():
    skip, x = torch.randn(2, 6, 7, 5, dtype=torch.float64).requires_grad_().unbind()
    layer = Dropout(0.4).train()
    torch.manual_seed(3)
    at_once = layer.onto(skip, x)
    torch.manual_seed(3)
    apart = skip + layer(x)
    torch.testing.assert_close(at_once, apart)
    upstream = torch.randn_like(apart)
    for one, other in zip(
        torch.autograd.grad(at_once, (skip, x), upstream),
        torch.autograd.grad(apart, (skip, x), upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_dropout_and_sum_in_one_silence_nothing_outside_training():
    skip, x = torch.randn(2, 6, 7)
    assert torch.equal(Dropout(0.4).eval().onto(skip, x), skip + x)
