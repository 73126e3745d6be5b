"""Claims about heads fail when the layer is broken."""

import math

from claims import ClaimBreaks
from torch import nn

from polyhead.layers.attention import KV, FullAttention, MultiHeadAttention
from polyhead.notes.chapters import heads_claims as heads

breaks = ClaimBreaks("heads")
build, project = MultiHeadAttention.__init__, MultiHeadAttention.project


@breaks(FullAttention, "forward", at_least="C1 C3 C6")
def kernel_without_scale(_, q, k, v, *__):
    return (q @ k.mT).softmax(-1) @ v


@breaks(MultiHeadAttention, "project", at_least="C1 C2 C3 C6")
def keys_swapped_with_values(self, y):
    keys, values = project(self, y)
    return KV(values, keys)


@breaks(FullAttention, "weights", exactly="C8")
@staticmethod
def softmax_over_queries(q, k, *_):
    return (q @ k.mT / math.sqrt(q.size(-1))).softmax(-2)


@breaks(heads, "attention_weights", exactly="C7")
def uniform_weights_of_hidden_keys(q, k, mask):
    allowed = mask.dense(q.size(-2), k.size(-2), q.device)
    return (q @ k.mT).masked_fill(~allowed, -1e10).softmax(-1)


@breaks(MultiHeadAttention, "__init__", exactly="C4")
def indivisible_width_accepted(self, d_model, n_heads, kernel):
    build(self, d_model - d_model % n_heads, n_heads, kernel)


@breaks(MultiHeadAttention, "__init__", at_least="C5")
def heads_initialized_equally(self, d_model, n_heads, kernel):
    build(self, d_model, n_heads, kernel)
    for part in (self.w_q, self.w_k):
        nn.init.constant_(part.weight, 0.1)
        nn.init.zeros_(part.bias)


test_breaks_are_detected = breaks.test()
