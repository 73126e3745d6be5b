"""Our readable norms against torch's: values, gradients and running statistics."""

import pytest
import torch
from torch import nn

from polyhead.layers.norms import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
)

PAIRS = {
    "layer": (LayerNorm(6), nn.LayerNorm(6), (4, 5, 6)),
    "layer without a length": (LayerNorm(6), nn.LayerNorm(6), (4, 6)),
    "another eps": (LayerNorm(6, eps=0.1), nn.LayerNorm(6, eps=0.1), (4, 6)),
    "batch": (BatchNorm(6), nn.BatchNorm1d(6), (4, 6, 5)),
    "batch without a length": (BatchNorm(6), nn.BatchNorm1d(6), (4, 6)),
    "batch without affine": (
        BatchNorm(6, affine=False), nn.BatchNorm1d(6, affine=False), (4, 6, 5)
    ),
    "instance": (InstanceNorm(6), nn.InstanceNorm1d(6, affine=True), (4, 6, 5)),
    "instance without affine": (InstanceNorm(6, affine=False), nn.InstanceNorm1d(6), (4, 6, 5)),
    "group": (GroupNorm(3, 6), nn.GroupNorm(3, 6), (4, 6, 5)),
    "one group": (GroupNorm(1, 6), nn.GroupNorm(1, 6), (4, 6, 5)),
    "group without a length": (GroupNorm(3, 6), nn.GroupNorm(3, 6), (4, 6)),
    "group of images": (GroupNorm(2, 6), nn.GroupNorm(2, 6), (4, 6, 5, 3)),
}  # fmt: skip


def of_the_same_weights(ours, theirs):
    torch.manual_seed(0)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def gradients(norm, x, direction):
    return torch.autograd.grad((norm(x) * direction).sum(), [x, *norm.parameters()])


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients_are_torchs(name):
    *norms, shape = PAIRS[name]
    ours, theirs = of_the_same_weights(*norms)
    x, direction = (3 * torch.randn(shape) + 1).requires_grad_(), torch.randn(shape)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-6, rtol=1e-5)
    for mine, right in zip(
        gradients(ours, x, direction), gradients(theirs, x, direction), strict=True
    ):
        torch.testing.assert_close(mine, right, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", [(4, 6, 5), (7, 6)])
def test_batch_norm_remembers_what_torch_remembers_and_evaluates_with_it(shape):
    ours, theirs = of_the_same_weights(BatchNorm(6), nn.BatchNorm1d(6))
    for _ in range(3):
        x = 2 * torch.randn(shape) - 1
        ours(x), theirs(x)
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], value)
    alone = torch.randn(1, *shape[1:])
    torch.testing.assert_close(ours.eval()(alone), theirs.eval()(alone))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)


def test_batch_norm_cannot_train_on_one_value():
    with pytest.raises(ValueError, match=r"needs two values a feature .* shape \[1, 6\]"):
        BatchNorm(6)(torch.randn(1, 6))


def test_features_must_divide_into_groups():
    with pytest.raises(ValueError, match=r"n_features \(6\) must be a multiple of n_groups \(4\)"):
        GroupNorm(4, 6)
