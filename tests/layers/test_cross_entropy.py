"""The fused loss against PyTorch's own, which keeps all logits and asks autograd."""

import pytest
import torch
from torch.nn import functional as F

from polyhead.layers import cross_entropy
from polyhead.layers.cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("chunk", [10, 40, 10**6])  # smaller than a row, several rows, everything
def test_value_and_gradients_are_pytorchs(smoothing, with_bias, chunk, monkeypatch):
    monkeypatch.setattr(cross_entropy, "CHUNK", chunk)
    torch.manual_seed(0)
    h = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(11, dtype=torch.float64, requires_grad=True) if with_bias else None
    labels = torch.randint(0, 11, (9,))
    leaves = [leaf for leaf in (h, weight, bias) if leaf is not None]

    expected = F.cross_entropy(
        F.linear(h, weight, bias), labels, label_smoothing=smoothing, reduction="sum"
    )
    wanted = torch.autograd.grad(3 * expected, leaves)
    actual = linear_cross_entropy(h, weight, bias, labels, smoothing)
    found = torch.autograd.grad(3 * actual, leaves)

    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_large_logits_do_not_overflow():
    h, weight = torch.full((2, 3), 100.0), torch.randn(5, 3) * 100
    labels = torch.tensor([0, 4])
    expected = F.cross_entropy(h @ weight.t(), labels, reduction="sum")
    torch.testing.assert_close(linear_cross_entropy(h, weight, None, labels), expected)


def test_without_gradients_nothing_is_computed_for_them():
    h, weight = torch.randn(3, 4), torch.randn(5, 4, requires_grad=True)
    with torch.no_grad():
        assert not linear_cross_entropy(h, weight, None, torch.tensor([0, 1, 2])).requires_grad


def test_mixed_precision_keeps_the_loss_and_nearly_the_gradients(monkeypatch):
    monkeypatch.setattr(cross_entropy, "CHUNK", 300)  # several chunks
    torch.manual_seed(0)
    h = torch.randn(40, 32, requires_grad=True)
    weight, bias = torch.randn(60, 32, requires_grad=True), torch.randn(60, requires_grad=True)
    labels, leaves = torch.randint(0, 60, (40,)), (h, weight, bias)
    whole = linear_cross_entropy(h, weight, bias, labels, 0.1)
    wanted = torch.autograd.grad(whole, leaves)
    # without oneDNN, whose 16-bit products crash on machines that promise AMX and lack it
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
        mixed = linear_cross_entropy(h, weight, bias, labels, 0.1)
    found = torch.autograd.grad(mixed, leaves)
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, whole)  # the sum of thousands has all its bits
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        assert (a - b).norm() < 0.01 * b.norm()
    assert not torch.equal(found[0], wanted[0])  # the products have fewer
