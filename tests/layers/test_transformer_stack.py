"""Output of chosen positions only. `tests/models/test_transformer.py` compares with PyTorch."""

from dataclasses import replace

import pytest
import torch

from polyhead.layers.attention import Mask
from polyhead.layers.embeddings import Rotary
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import (
    StackConfig,
    TransformerStack,
    first_positions,
)


def config(norm):
    return StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0, norm=norm)


CHOICES = {
    "pre": {"norm": "pre"},
    "post": {"norm": "post"},
    "local": {"norm": "pre", "attention": "local", "window": 2},
    "reversible": {"norm": "pre", "reversible": True},
    "pieces": {"norm": "post", "feed_chunk": 2},
    "experts": {"norm": "pre", "experts": ExpertsConfig(n=3, k=2)},
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_chosen_positions_get_the_same_output(choice):
    stack = TransformerStack(replace(config("pre"), n_layers=3, **choice), rotation=Rotary).eval()
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    x, only = torch.randn(2, 5, 16), torch.tensor([7, 0, 3, 5])
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    some = stack(ours, Mask(keys=real), only=only)
    expected = stack(theirs, Mask(keys=real)).flatten(0, 1)[only]
    torch.testing.assert_close(some, expected)
    for said in (some, expected):  # gradients too
        (said * torch.arange(1.0, 5.0)[:, None]).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_only_chosen_positions_enter_the_last_feed_forward_network():
    stack, seen = TransformerStack(replace(config("pre"), n_layers=2)), []
    for block in stack.blocks:
        block.feed_forward.register_forward_pre_hook(lambda _, x: seen.append(x[0].shape[:2]))
    x = torch.randn(3, 5, 16)
    stack(x, only=first_positions(x))
    assert first_positions(x).tolist() == [0, 5, 10]
    assert seen == [(3, 5), (1, 3)]
