"""Claims about attention fail when a part of it is broken."""

import math

import torch
from claims import ClaimBreaks
from torch.nn import functional as F

from polyhead.layers.attention import KV, NO_MASK, FullAttention, MultiHeadAttention
from polyhead.layers.attention_scores import Dot, General, ScaledDot
from polyhead.layers.kv_cache import BlockCache
from polyhead.layers.recurrent import LookBack
from polyhead.layers.transformer_stack import TransformerBlock
from polyhead.notes.chapters import attention_claims as attention

breaks = ClaimBreaks("attention")
kernel, layer, project = (
    FullAttention.forward,
    MultiHeadAttention.forward,
    MultiHeadAttention.project,
)


@breaks(FullAttention, "forward", exactly="B1 B4 B15")
def kernel_without_scale(_self, q, k, v, mask=NO_MASK):
    allowed = mask.dense(q.size(-2), k.size(-2), q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=1.0)


@breaks(FullAttention, "forward", at_least="B1 B4")
def scale_of_the_whole_model(_self, q, k, v, mask=NO_MASK):
    allowed = mask.dense(q.size(-2), k.size(-2), q.device)
    scale = 1 / math.sqrt(q.size(1) * q.size(-1))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale)


@breaks(FullAttention, "forward", exactly="B1")
def mask_not_applied(_self, q, k, v, *_):
    return F.scaled_dot_product_attention(q, k, v)


@breaks(FullAttention, "forward", at_least="B1 B18")
def window_instead_of_all_keys(_self, q, k, v, *_):
    band = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril(2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=band)


@breaks(attention, "attention_weights", exactly="B2 B8")
def softmax_over_queries(q, k):
    return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-2)


@breaks(attention, "attention", at_least="B1 B9")
def formula_without_softmax(q, k, v, *_):
    return (q @ k.mT) @ v


@breaks(MultiHeadAttention, "project", at_least="B10")
def keys_swapped_with_values(self, y):
    return KV(*reversed(project(self, y)))


@breaks(General, "prepare", exactly="B6")
def transposed_matrix(self, q, _d_key):
    return torch.einsum("bhqi,hji->bhqj", q, self.w)


@breaks(TransformerBlock, "forward", exactly="B7")
def self_attention_to_the_memory(self, x, memory):
    x = x + self.self_attention(x, self.self_attention.project(memory.states))
    return self.recall(x, memory, BlockCache())


@breaks(LookBack, "forward", exactly="B11")
def values_that_are_not_h(self, states, memory):
    h = memory.states[:, None]
    return self.kernel(states[:, None], h, 2 * h, memory.mask)[:, 0]


def detached_layer(self, x, kv, mask=NO_MASK):
    return layer(self, x.detach(), kv, mask)


def detached_kernel(self, q, k, v, mask=NO_MASK):
    return kernel(self, q.detach(), k, v, mask)


breaks.add("score_without_scale", (ScaledDot, "prepare", Dot.prepare), exactly="B3 B8 B16")
breaks.add("queries_without_gradient", (MultiHeadAttention, "forward", detached_layer),
           (FullAttention, "forward", detached_kernel), at_least="B17")  # fmt: skip
test_breaks_are_detected = breaks.test()
