"""Tensors freed early in the backward pass, and retain_graph."""

import torch

from polyhead.layers.attention_factory import LSHConfig
from polyhead.layers.masks import CAUSAL
from polyhead.layers.reversible import ReversibleStack
from polyhead.layers.transformer_stack import StackConfig

CONFIG = StackConfig(
    2, 16, 2, 32, dropout=0.1, norm="pre", attention=("lsh", "local"), lsh=LSHConfig(4, 2)
)


def test_a_graph_that_is_kept_can_be_gone_through_twice():
    torch.manual_seed(0)
    stack, x = ReversibleStack(CONFIG), torch.randn(2, 12, 16, requires_grad=True)
    out = stack(x, CAUSAL)[..., ::3].square().sum()
    first = torch.autograd.grad(out, [x, *stack.parameters()], retain_graph=True)
    second = torch.autograd.grad(out, [x, *stack.parameters()])
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_backward_does_not_change_output_and_gradient():
    torch.manual_seed(0)
    stack, x = ReversibleStack(CONFIG), torch.randn(2, 12, 16, requires_grad=True)
    out, gradient = stack(x, CAUSAL), torch.randn(2, 12, 16)
    before = out.detach().clone(), gradient.clone(), x.detach().clone()
    out.backward(gradient)
    for now, then in zip((out, gradient, x), before, strict=True):
        assert torch.equal(now, then)
