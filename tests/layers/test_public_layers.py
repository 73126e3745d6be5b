"""`polyhead.layers` in models of one's own."""

import sys
from inspect import unwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import polyhead.layers
from polyhead.layers import FullAttention, LocalAttention, LSHAttention, MultiHeadAttention

X = torch.randn(2, 7, 16)


def test_all_names_are_there():
    assert all(hasattr(polyhead.layers, name) for name in polyhead.layers.__all__)


def test_self_attention_with_one_argument_is_that_of_torch():
    ours = MultiHeadAttention(16, 4, FullAttention()).eval()
    theirs = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.w_q.weight, ours.w_k.weight, ours.w_v.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.w_q.bias, ours.w_k.bias, ours.w_v.bias]))
        theirs.out_proj.load_state_dict(ours.w_o.state_dict())
    assert torch.allclose(ours(X), theirs(X, X, X)[0], atol=1e-6)
    assert torch.equal(ours(X), ours(X, ours.project(X)))


def test_a_wrong_shape_says_which_is_expected():
    attention = MultiHeadAttention(16, 4, FullAttention())
    stack = polyhead.layers.TransformerStack(polyhead.layers.StackConfig(1, 16, 4, 32))
    for x in (torch.randn(2, 7, 12), torch.randn(7, 16)):
        for module in (attention, stack):
            with pytest.raises(ValueError, match=r"expected \(batch, length, 16\)"):
                unwrap(type(module).forward)(module, x)
    for kernel in (LocalAttention(2), LSHAttention(4)):
        with pytest.raises(ValueError, match=r"expected \(batch, head, length, d_head\)"):
            unwrap(type(kernel).forward)(kernel, X, X, X)


def test_the_example_learns(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    import long_text_classifier

    assert long_text_classifier.main(steps=40) > 0.9
    assert len(Path(sys.modules["long_text_classifier"].__file__).read_text().splitlines()) <= 80
