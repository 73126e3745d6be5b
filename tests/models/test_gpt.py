"""GPT against the published sizes, its initialisation, and its own uncached self."""

import math

import pytest
import torch

from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig

SMALL = StackConfig(2, 16, 4, 32, dropout=0.0, norm="pre")


def test_residual_projections_begin_smaller_than_the_others_by_the_root_of_their_number():
    model = GPT(GPTConfig(50, 8, stack=StackConfig(8, 64, 4, 256, norm="pre")))
    for block in model.stack.blocks:
        assert block.self_attention.w_q.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert block.feed_forward.w_1.weight.std().item() == pytest.approx(0.02, rel=0.1)
        for layer in (block.self_attention.w_o, block.feed_forward.w_2):
            assert layer.weight.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.1)
            assert not layer.bias.any()
    assert model.embed.tokens.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_an_untrained_model_finds_every_token_about_equally_likely():
    model = GPT(GPTConfig(97, 16, stack=SMALL)).eval()
    ids, others = torch.randint(0, 97, (2, 4, 16))
    loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), others.flatten())
    assert loss.item() == pytest.approx(math.log(97), abs=0.05)


@pytest.mark.parametrize(("tie", "n_tables"), [(True, 1), (False, 2)])
def test_tied_tables_are_one_table(tie, n_tables):
    model = GPT(GPTConfig(9, 8, tie=tie, stack=SMALL))
    assert len({model.embed.tokens.weight.data_ptr(), model.to_logits.weight.data_ptr()}) == (
        n_tables
    )


def test_learned_positions_end_with_a_message_and_sinusoids_do_not_end():
    ids = torch.ones(1, 9, dtype=torch.long)
    with pytest.raises(ValueError, match="this model has 8 positions, but the input reaches posit"):
        GPT(GPTConfig(5, 8, stack=SMALL))(ids)
    GPT(GPTConfig(5, 8, positions="sinusoidal", stack=SMALL))(ids)
