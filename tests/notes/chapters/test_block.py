"""Claims about blocks and norms fail when a part is broken."""

import torch
from claims import ClaimBreaks
from torch import nn

from polyhead.layers import norms
from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, NotesLayerNorm
from polyhead.layers.transformer_stack import Residual

breaks = ClaimBreaks("block")
build_residual, build_network = Residual.__init__, FeedForward.__init__
feed, attend = FeedForward.forward, MultiHeadAttention.forward


@breaks(Residual, "forward", exactly="G1 G2 G3 G4 G11 G15")
def block_without_skip(self, x, sublayer):
    return sublayer(self.norm(x))


@breaks(Residual, "__init__", exactly="G4 G11 G15")
def norm_always_before_the_sublayer(self, config):
    build_residual(self, config)
    self.pre = True


@breaks(LayerNorm, "forward", exactly="G5 G8 G9")
def layer_norm_over_samples(self, x):
    axis = 0 if x.dim() > 1 else -1
    return norms.standardise(x, (axis,), self.eps) * self.weight + self.bias


@breaks(LayerNorm, "forward", exactly="G6")
def bias_and_weight_swapped(self, x):
    return norms.standardise(x, (-1,), self.eps) * (1 + self.bias) + self.weight - 1


@breaks(BatchNorm, "forward", exactly="G8 G9")
def batch_norm_without_batch(_self, x):
    return x


@breaks(FeedForward, "forward", exactly="G4 G12")
def feed_forward_that_mixes_positions(self, x):
    return feed(self, x + x.mean(1, keepdim=True))


@breaks(FeedForward, "__init__", exactly="G4 G12")
def another_activation(self, d_model, d_ff, activation, dropout, *, chunk=0):
    build_network(self, d_model, d_ff, activation, dropout, chunk=chunk)
    self.activation = nn.Tanh()


@breaks(MultiHeadAttention, "forward", at_least="G2 G3 G4 G13")
def attention_of_another_width(self, x, kv, mask, places=None):
    return attend(self, x, kv, mask, places)[..., :-1]


@breaks(NotesLayerNorm, "forward", exactly="G7")
def corrected_norm_of_the_note(_self, x):
    return torch.layer_norm(x, (x.size(-1),))


def scaled(kind):
    """Return the forward of a norm with outputs 0.1 % too large."""
    forward = kind.forward
    return lambda self, x: 1.001 * forward(self, x)


for norm in (BatchNorm, InstanceNorm, GroupNorm):
    breaks.add(f"scaled_{norm.__name__}", (norm, "forward", scaled(norm)), exactly="G8")
breaks.add("unbiased_variance", (LayerNorm, "forward", NotesLayerNorm.forward),
           exactly="G5 G6 G7 G8 G11 G14")  # fmt: skip
test_breaks_are_detected = breaks.test()
