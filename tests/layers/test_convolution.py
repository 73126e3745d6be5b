"""Convolutions: torch's own as the oracle, steps, receptive fields, weight normalisation."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from polyhead.layers.convolution import Convolution, ScaledGradient

shapes = pytest.mark.parametrize(
    ("kernel", "dilation"), [(1, 1), (2, 1), (3, 1), (3, 2), (3, 4), (3, 16), (5, 1), (4, 3)]
)


def torchs(ours, d_in):
    """A Conv1d with the same weights, and how much it has to be padded on the left."""
    theirs = nn.Conv1d(d_in, len(ours.bias), ours.kernel, dilation=ours.dilation)
    weight = ours.weight.detach().unflatten(1, (ours.kernel, d_in)).transpose(1, 2)
    theirs.weight.data, theirs.bias.data = weight.clone(), ours.bias.detach().clone()
    return theirs


@shapes
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("length", [1, 6, 20])
def test_it_is_torchs_convolution_forward_and_back(kernel, dilation, causal, length):
    if not causal and kernel % 2 == 0:
        return
    ours = Convolution(4, 6, kernel, dilation=dilation, causal=causal)
    nn.init.normal_(ours.bias)
    theirs = torchs(ours, 4)
    x = torch.randn(2, length, 4, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    reach = (kernel - 1) * dilation
    pads = (reach, 0) if causal else (reach // 2, reach // 2)
    expected = theirs(F.pad(y.transpose(1, 2), pads)).transpose(1, 2)
    found = ours(x)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)
    theirs_flat = theirs.weight.grad.transpose(1, 2).flatten(1)
    torch.testing.assert_close(ours.v.grad, theirs_flat, rtol=1e-4, atol=1e-5)


def test_weight_normalisation_is_torchs():
    ours = Convolution(4, 6, 3, causal=True, normed=True)
    with torch.no_grad():
        ours.g.copy_(torch.rand(6) + 0.5)
    theirs = weight_norm(nn.Conv1d(4, 6, 3), dim=0)
    g, v = theirs.parametrizations.weight.original0, theirs.parametrizations.weight.original1
    with torch.no_grad():
        g.copy_(ours.g[:, None, None])
        v.copy_(ours.v.unflatten(1, (3, 4)).transpose(1, 2))
        theirs.bias.copy_(ours.bias)
    x = torch.randn(2, 7, 4)
    found, expected = ours(x), theirs(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.g.grad, g.grad.flatten())
    torch.testing.assert_close(ours.v.grad, v.grad.transpose(1, 2).flatten(1))


def test_normalised_weights_begin_as_they_were_drawn():
    layer = Convolution(5, 7, 3, normed=True)
    torch.testing.assert_close(layer.weight, layer.v)


@pytest.mark.parametrize("gain", [1.0, 2.0, 3.2])
def test_the_output_begins_as_large_as_its_gain_says(gain):
    layer = Convolution(200, 300, 5, gain=gain)
    inner = layer(torch.randn(4, 60, 200))[:, 2:-2]  # away from the zeros at both ends
    assert inner.var().item() == pytest.approx(gain, rel=0.1)
    assert (layer.bias == 0).all()


@shapes
@pytest.mark.parametrize("normed", [True, False])
def test_step_by_step_equals_all_at_once(kernel, dilation, normed):
    layer = Convolution(4, 6, kernel, dilation=dilation, causal=True, normed=normed)
    x = torch.randn(2, 3, 40, 4)  # batch, beam, place
    at_once = layer(x.flatten(0, 1)).unflatten(0, (2, 3))
    past = layer.no_past(2, 3)
    assert past.shape == ((kernel - 1) * dilation, 2, 3, 4)
    for place in range(40):
        found = layer.step(x[:, :, place], past, place)
        torch.testing.assert_close(found, at_once[:, :, place])


def test_a_scaled_gradient_changes_only_the_backward_pass():
    x = torch.randn(3, 4, requires_grad=True)
    y = ScaledGradient.apply(x, 0.25)
    assert torch.equal(y, x)
    y.square().sum().backward()
    torch.testing.assert_close(x.grad, 0.25 * 2 * x.detach())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": 4}, "kernel = 4: expected an odd number.* write 3 or 5"),
        ({"kernel": 0}, "kernel = 0: expected at least 1"),
        ({"kernel": 3, "dilation": 0}, "dilation = 0: expected at least 1"),
    ],
)
def test_impossible_convolutions_are_errors_that_say_so(options, message):
    with pytest.raises(ValueError, match=message):
        Convolution(4, 4, **options)
