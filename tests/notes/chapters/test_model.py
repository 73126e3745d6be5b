"""Claims about the whole model fail when it is assembled wrongly."""

import torch
from claims import ClaimBreaks
from torch import nn

from polyhead.layers.embeddings import SinusoidalPositions, TokenEmbedding
from polyhead.layers.transformer_stack import TransformerStack
from polyhead.models import transformer
from polyhead.models.transformer import Transformer

breaks = ClaimBreaks("model")
build, hidden, step = Transformer.__init__, Transformer.hidden, Transformer.step
unregistered = torch.ones(1, requires_grad=True)


@breaks(TransformerStack, "forward", at_least="H1")
def parallel_blocks(self, x, *rest):
    return torch.stack([block(x, *rest) for block in self.blocks]).mean(0)


@breaks(transformer, "xavier", at_least="H5")
def layers_initialized_equally(whole):
    for parameter in whole.parameters():
        nn.init.constant_(parameter, 0.1)


@breaks(SinusoidalPositions, "register_buffer", at_least="H6")
def sinusoids_as_parameters(self, name, tensor, **_):
    self.register_parameter(name, nn.Parameter(tensor))


@breaks(Transformer, "hidden", exactly="H6")
def unregistered_tensor_with_gradient(self, *ids):
    return unregistered * hidden(self, *ids)


@breaks(TokenEmbedding, "forward", exactly="H7")
def embedding_without_scale(self, ids, offset=0):
    return self.tokens(ids) + self.positions(ids.size(1), offset)


@breaks(Transformer, "step", exactly="H14")
def last_choice_instead_of_first(self, last, state):
    return -step(self, last, state)


@breaks(Transformer, "step", exactly="H14")
def decoder_that_ignores_its_output(self, last, state):
    return step(self, torch.ones_like(last), state)


@breaks(Transformer, "__init__", at_least="H11")
def model_without_a_norm(self, config):
    build(self, config)
    for block in self.decoder.blocks:
        block.cross_residual.norm = nn.Identity()


test_breaks_are_detected = breaks.test()
