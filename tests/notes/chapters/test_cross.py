"""Claims about cross-attention fail when queries and keys come from the wrong side."""

from claims import ClaimBreaks

from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.transformer_stack import Residual, TransformerBlock

breaks = ClaimBreaks("cross")
forward = MultiHeadAttention.forward


@breaks(TransformerBlock, "recall", exactly="E1 E2 E4")
def queries_from_the_encoder(self, h, memory, _):
    layer = self.cross_attention
    return layer(memory.states, layer.project(h))[:, : h.size(1)]


@breaks(TransformerBlock, "recall", exactly="E1 E2 E4")
def keys_from_the_decoder(self, h, *_):
    return self.cross_attention(h, self.cross_attention.project(h))


@breaks(Residual, "forward", exactly="E1")
def sum_without_the_query(self, x, sublayer):
    return sublayer(self.norm(x))


@breaks(MultiHeadAttention, "forward", exactly="E1 E3")
def last_projection_applied_twice(self, x, kv, *rest):
    return self.w_o(forward(self, x, kv, *rest))


test_breaks_are_detected = breaks.test()
