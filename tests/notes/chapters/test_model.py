"""The claims about the whole model hold, and stop to hold when it is put together wrongly."""

from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing
from torch import nn

from polyhead.layers.embeddings import TokenEmbedding
from polyhead.layers.positions import SinusoidalPositions
from polyhead.layers.transformer_stack import TransformerStack
from polyhead.models import transformer
from polyhead.models.transformer import Transformer

MINE = claims_of("model")
broken = partial(failing, MINE)


def test_every_row_has_one_check():
    ids = ["H1", "H2", "H5", "H6", "H7", "H10", "H11", "H13", "H14"]
    assert [check.id for check in MINE] == ids


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_blocks_side_by_side_are_noticed(monkeypatch):
    def parallel(self, x, *rest):
        return torch.stack([block(x, *rest) for block in self.blocks]).mean(0)

    monkeypatch.setattr(TransformerStack, "forward", parallel)
    assert "H1" in broken()


def test_layers_that_begin_alike_are_noticed(monkeypatch):
    def alike(whole):
        for parameter in whole.parameters():
            nn.init.constant_(parameter, 0.1)

    monkeypatch.setattr(transformer, "xavier", alike)
    assert "H5" in broken()


def test_waves_that_learn_are_noticed(monkeypatch):
    def register(self, name, tensor, **_):
        self.register_parameter(name, nn.Parameter(tensor))

    monkeypatch.setattr(SinusoidalPositions, "register_buffer", register)
    assert "H6" in broken()


def test_a_plain_tensor_that_learns_is_noticed(monkeypatch):
    hidden, loose = Transformer.hidden, torch.ones(1, requires_grad=True)
    monkeypatch.setattr(Transformer, "hidden", lambda self, *ids: loose * hidden(self, *ids))
    assert broken() == {"H6"}


def test_words_without_their_scale_are_noticed(monkeypatch):
    def unscaled(self, ids, offset=0):
        return self.tokens(ids) + self.positions(ids.size(1), offset)

    monkeypatch.setattr(TokenEmbedding, "forward", unscaled)
    assert broken() == {"H7"}


def test_a_last_choice_is_not_a_first(monkeypatch):
    step = Transformer.step
    monkeypatch.setattr(Transformer, "step", lambda self, last, state: -step(self, last, state))
    assert broken() == {"H14"}


def test_a_model_that_does_not_read_what_it_wrote_is_noticed(monkeypatch):
    step = Transformer.step

    def deaf(self, last, state):
        return step(self, torch.ones_like(last), state)

    monkeypatch.setattr(Transformer, "step", deaf)
    assert broken() == {"H14"}


def test_a_forgotten_norm_is_missing_from_the_published_sizes(monkeypatch):
    build = Transformer.__init__

    def without(self, config):
        build(self, config)
        for block in self.decoder.blocks:
            block.cross_residual.norm = nn.Identity()

    monkeypatch.setattr(Transformer, "__init__", without)
    assert "H11" in broken()
