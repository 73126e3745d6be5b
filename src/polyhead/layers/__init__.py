"""Layers for any PyTorch model; they need nothing else of this package.

    from polyhead.layers import LocalAttention, MultiHeadAttention
    attention = MultiHeadAttention(d_model=64, n_heads=4, kernel=LocalAttention(window=16))
    y = attention(x)            # (batch, length, 64) → (batch, length, 64)

A kernel computes the attention of every head: `FullAttention`, `LocalAttention`, or `LSHAttention`,
whose queries and keys are one projection (`shared=True`).
"""

from polyhead.layers.attention import (
    CAUSAL,
    KV,
    NO_MASK,
    FullAttention,
    Mask,
    MultiHeadAttention,
    not_padding,
)
from polyhead.layers.embeddings import (
    LearnedPositions,
    Rotary,
    SinusoidalPositions,
    TokenEmbedding,
)
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention, LSHConfig
from polyhead.layers.transformer_stack import StackConfig, TransformerBlock, TransformerStack

__all__ = [
    "CAUSAL", "KV", "NO_MASK", "FeedForward", "FullAttention", "LSHAttention", "LSHConfig",
    "LearnedPositions", "LocalAttention", "Mask", "MultiHeadAttention", "Rotary",
    "SinusoidalPositions", "StackConfig", "TokenEmbedding", "TransformerBlock", "TransformerStack",
    "not_padding",
]  # fmt: skip
