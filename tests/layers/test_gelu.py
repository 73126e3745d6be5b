"""The faster GELU must be PyTorch's, there and back, wherever it is used."""

import pytest
import torch
from torch.nn import functional as F

from polyhead.layers.gelu import TanhGELU

WIDE = torch.cat([torch.linspace(-40, 40, 4001), torch.tensor([0.0, -1e-30, 1e-30, -1e6, 1e6])])


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


def test_the_slope_is_that_of_the_values():
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(TanhGELU(), (x,))


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
    monkeypatch.setattr("polyhead.layers.gelu.PIECE", 7)
    x = torch.linspace(-3, 3, 24, dtype=torch.float64).view(2, 3, 4)
    for case in (x, x.transpose(0, 2)):
        ours, expected = (there_and_back(f, case, x.dtype) for f in (TanhGELU(), theirs))
        torch.testing.assert_close(ours, expected)
