"""Gradients by word against Jacobians computed sentence by sentence."""

import pytest
import torch
from torch import nn
from torch.autograd.functional import jacobian

from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.viz.gradient_reach import gradient_by_word


def test_gradients_are_the_norms_of_the_jacobian_of_every_sentence():
    torch.manual_seed(0)
    embedding, rnn = nn.Embedding(9, 4), nn.RNN(4, 5, batch_first=True)
    source = torch.randint(0, 9, (3, 6))
    norms = gradient_by_word(embedding, lambda: rnn(embedding(source))[0][:, -1])
    for row, words in enumerate(embedding(source).detach()):
        by_torch = jacobian(lambda x: rnn(x[None])[0][0, -1], words)  # (5, 6, 4)
        torch.testing.assert_close(norms[row], by_torch.square().sum((0, 2)).sqrt())


@pytest.mark.parametrize(
    ("family", "config"),
    [(Ladder, LadderConfig(9, 9, d_model=8)),
     (Transformer, TransformerConfig(9, 9, stack=StackConfig(1, 8, 2, 16)))],
)  # fmt: skip
def test_model_is_not_changed(family, config):
    torch.manual_seed(0)
    model = family(config).eval()
    source, target = torch.randint(1, 9, (2, 5)), torch.randint(1, 9, (2, 3))
    before = model(source, target)
    norms = gradient_by_word(model.embed_source, lambda: model.hidden(source, target)[:, 0])
    assert norms.shape == (2, 5)
    assert (norms > 0).all()
    assert torch.equal(model(source, target), before)
    assert all(p.grad is None for p in model.parameters())
    assert not model.embed_source._forward_hooks
