"""Forgetting the activations must not change a single gradient, only what is kept for them."""

from dataclasses import replace

import pytest
import torch

from polyhead.layers.attention import CAUSAL, NO_MASK, Mask
from polyhead.layers.kv_cache import Memory
from polyhead.layers.lsh import attention as lsh
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.transformer_stack import StackConfig, TransformerStack

CONFIG = StackConfig(
    n_layers=3,
    d_model=16,
    n_heads=2,
    d_ff=32,
    dropout=0.2,
    attention_dropout=0.1,
    activation_dropout=0.1,
    norm="pre",
    attention=("lsh", "full"),
    lsh=LSHConfig(chunk=4, rounds=2),
    reversible=True,
)


def remembering(stack, x, mask=NO_MASK, memory=None):
    """The two columns of the paper written out, for autograd to remember everything."""
    x_1 = x_2 = x
    for block in stack.blocks:
        roads = [lambda h, b=block: b.self_residual.branch(h, lambda y: attend(b, y, mask))]
        if block.cross_residual is not None:
            roads.append(
                lambda h, b=block: b.cross_residual.branch(h, lambda y: recall(b, y, memory))
            )
        roads.append(lambda h, b=block: b.feed_residual.branch(h, b.feed_forward))
        for road in roads:
            x_1, x_2 = x_2, x_1 + road(x_2)
    return stack.norm((x_1 + x_2) / 2)


def attend(block, h, mask):
    return block.self_attention(h, block.self_attention.project(h), mask)


def recall(block, h, memory):
    return block.cross_attention(h, block.cross_attention.project(memory.states), memory.mask)


def loss(out):
    """Not the sum of all squares, which a norm makes constant."""
    return out[..., ::3].square().sum()


def gradients(stack, run, *inputs, times=1):
    """The output and all gradients of `times` calls with the same random numbers."""
    stack.zero_grad()
    inputs = [x.clone().requires_grad_() for x in inputs]
    torch.manual_seed(7)
    outs = [run(*inputs) for _ in range(times)]
    for out in outs:  # all forwards come before the first way back
        loss(out).backward()
    found = [*(x.grad for x in inputs), *(p.grad for p in stack.parameters())]
    return [outs[-1].detach(), *(g.clone() for g in found)]


def assert_same(actual, expected, within):
    largest = max(e.abs().max().item() for e in expected[1:])
    for a, e in zip(actual, expected, strict=True):
        scale = max(e.abs().max().item(), 1e-3 * largest)  # the key's bias has no slope at all
        assert (a - e).abs().max().item() <= within * scale


@pytest.mark.parametrize("times", [1, 2])
def test_gradients_are_those_of_ordinary_back_propagation(times):
    stack, x = TransformerStack(CONFIG).double(), torch.randn(2, 21, 16, dtype=torch.float64)
    expected = gradients(stack, lambda x: remembering(stack, x, CAUSAL), x, times=times)
    actual = gradients(stack, lambda x: stack(x, CAUSAL), x, times=times)
    assert_same(actual, expected, within=1e-9)


def test_gradients_hold_at_depth_twelve_in_single_precision():
    stack = TransformerStack(replace(CONFIG, n_layers=12))
    x = torch.randn(2, 40, 16)
    expected = gradients(stack, lambda x: remembering(stack, x, CAUSAL), x)
    assert_same(gradients(stack, lambda x: stack(x, CAUSAL), x), expected, within=1e-4)


def test_a_decoder_that_recalls_a_memory_gives_the_memory_its_gradient_too():
    stack = TransformerStack(CONFIG, cross=True).double()
    x, states = torch.randn(2, 5, 16).double(), torch.randn(2, 7, 16).double()
    mask = Mask(keys=torch.arange(7) < torch.tensor([[7], [4]]))
    expected = gradients(
        stack, lambda x, s: remembering(stack, x, CAUSAL, Memory(s, mask)), x, states
    )
    actual = gradients(stack, lambda x, s: stack(x, CAUSAL, Memory(s, mask)), x, states)
    assert_same(actual, expected, within=1e-9)


def test_weights_are_trained_even_if_the_input_is_not():
    stack, x = TransformerStack(CONFIG), torch.randn(2, 5, 16)
    stack.blocks[1].requires_grad_(requires_grad=False)
    stack(x).sum().backward()
    assert all((p.grad is None) == (not p.requires_grad) for p in stack.parameters())


def test_autograd_grad_stores_no_gradients():
    stack, x = TransformerStack(CONFIG).eval(), torch.randn(2, 4, 16, requires_grad=True)
    weight = stack.blocks[0].feed_forward.w_1.weight
    found = torch.autograd.grad(loss(stack(x)), [x, weight])
    expected = torch.autograd.grad(loss(remembering(stack, x)), [x, weight])
    assert weight.grad is None
    for a, e in zip(found, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inside", [True, False])
def test_recomputation_uses_the_same_precision(inside):
    config = replace(CONFIG, attention="full")
    stack, x = TransformerStack(config), torch.randn(2, 6, 16)

    def found(run):
        stack.zero_grad()
        torch.manual_seed(7)
        # without oneDNN, whose 16-bit products crash on machines that promise AMX and lack it
        with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
            out = loss(run(x))
            if inside:
                out.backward()
        if not inside:
            with torch.backends.mkldnn.flags(enabled=False):
                out.backward()
        return [p.grad.clone() for p in stack.parameters()]

    expected = found(lambda x: remembering(stack, x))
    assert_same([x, *found(stack)], [x, *expected], within=0.03)


def test_backward_does_not_change_the_random_state():
    stack, x = TransformerStack(CONFIG), torch.randn(2, 5, 16)
    out = stack(x).sum()
    before = torch.get_rng_state()
    out.backward()
    assert torch.equal(torch.get_rng_state(), before)


def test_recomputation_uses_the_same_buckets(monkeypatch):
    hashed = []
    found = lsh.hash_vectors
    monkeypatch.setattr(lsh, "hash_vectors", lambda *a: hashed.append(1) or found(*a))
    out = TransformerStack(CONFIG)(torch.randn(2, 21, 16)).sum()
    assert len(hashed) == 2  # of three layers the first and the last hash
    out.backward()
    assert len(hashed) == 2


def test_weights_have_the_same_names_as_in_an_ordinary_stack():
    ordinary = TransformerStack(replace(CONFIG, reversible=False))
    TransformerStack(CONFIG).load_state_dict(ordinary.state_dict())


def test_a_graph_that_is_kept_can_be_gone_through_twice():
    stack, x = TransformerStack(CONFIG), torch.randn(2, 12, 16, requires_grad=True)
    out = loss(stack(x, CAUSAL))
    first = torch.autograd.grad(out, [x, *stack.parameters()], retain_graph=True)
    second = torch.autograd.grad(out, [x, *stack.parameters()])
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_backward_does_not_change_output_and_gradient():
    stack, x = TransformerStack(CONFIG), torch.randn(2, 12, 16, requires_grad=True)
    out, gradient = stack(x, CAUSAL), torch.randn(2, 12, 16)
    before = out.detach().clone(), gradient.clone(), x.detach().clone()
    out.backward(gradient)
    for now, then in zip((out, gradient, x), before, strict=True):
        assert torch.equal(now, then)
