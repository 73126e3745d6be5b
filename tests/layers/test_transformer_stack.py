"""Our blocks against PyTorch's own: an oracle written by others."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from polyhead.layers.attention import CAUSAL, Mask
from polyhead.layers.kv_cache import Memory
from polyhead.layers.mixture_of_experts import ExpertsConfig
from polyhead.layers.transformer_stack import (
    StackConfig,
    TransformerBlock,
    TransformerStack,
    first_positions,
)


def config(norm):
    return StackConfig(d_model=16, n_heads=4, d_ff=32, dropout=0.0, norm=norm)


def copy_attention(theirs, ours):
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())


def copy_feed_forward(theirs, ours):
    theirs.linear1.load_state_dict(ours.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.w_2.state_dict())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_block_is_pytorchs(norm):
    ours = TransformerBlock(config(norm), cross=False).eval()
    theirs = nn.TransformerEncoderLayer(
        16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    ).eval()
    copy_attention(theirs.self_attn, ours.self_attention)
    copy_feed_forward(theirs, ours)
    x, real = torch.randn(2, 5, 16), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()
    with torch.no_grad():
        expected = theirs(x, src_key_padding_mask=~real)
        torch.testing.assert_close(ours(x, Mask(keys=real))[real], expected[real])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_block_is_pytorchs(norm):
    ours = TransformerBlock(config(norm), cross=True).eval()
    theirs = nn.TransformerDecoderLayer(
        16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm == "pre"
    ).eval()
    copy_attention(theirs.self_attn, ours.self_attention)
    copy_attention(theirs.multihead_attn, ours.cross_attention)
    copy_feed_forward(theirs, ours)
    x, states, real = torch.randn(2, 4, 16), torch.randn(2, 5, 16), torch.ones(2, 5).bool()
    real[1, 3:] = False
    future = torch.ones(4, 4).triu(1).bool()
    with torch.no_grad():
        expected = theirs(x, states, tgt_mask=future, memory_key_padding_mask=~real)
        actual = ours(x, CAUSAL, Memory(states, Mask(keys=real)))
    torch.testing.assert_close(actual, expected)


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
    stack = TransformerStack(replace(config("pre"), n_layers=3, **choice), rotary=True).eval()
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
