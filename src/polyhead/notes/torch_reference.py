"""Layers of PyTorch with the weights of the library's layers, to compare their outputs."""

import torch
from torch import nn

from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.transformer_stack import TransformerBlock


def torch_attention(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """Return torch's multi-head attention with the same weights, batch first."""
    theirs = nn.MultiheadAttention(ours.w_o.in_features, ours.n_heads, batch_first=True)
    copy_attention(ours, theirs)
    return theirs


def torch_block(
    block: TransformerBlock, *, norm_first: bool, activation: str = "relu", eps: float = 1e-5
) -> nn.TransformerEncoderLayer:
    """Return torch's encoder layer with the same weights; its norms keep their initial ones."""
    d_ff, d_model = block.feed_forward.w_1.weight.shape
    theirs = nn.TransformerEncoderLayer(
        d_model, block.self_attention.n_heads, d_ff, 0.0, activation, eps,
        batch_first=True, norm_first=norm_first,
    )  # fmt: skip
    copy_attention(block.self_attention, theirs.self_attn)
    theirs.linear1.load_state_dict(block.feed_forward.w_1.state_dict())
    theirs.linear2.load_state_dict(block.feed_forward.w_2.state_dict())
    return theirs


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    """Copy the four projections of an attention layer whose queries have their own matrix."""
    assert ours.w_q is not None, "queries share their matrix with keys"
    parts = ours.w_q, ours.w_k, ours.w_v
    theirs.in_proj_weight.data = torch.cat([part.weight.data for part in parts])
    theirs.in_proj_bias.data = torch.cat([part.bias.data for part in parts])
    theirs.out_proj.load_state_dict(ours.w_o.state_dict())
