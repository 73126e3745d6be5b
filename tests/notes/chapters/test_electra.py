"""The claims about ELECTRA hold, and stop to hold when something is broken."""

from functools import partial

import pytest
from claims import assert_it_holds, claims_of, failing
from torch import nn
from torch.nn import functional as F

from polyhead.models import electra as model
from polyhead.models.electra import Electra, ElectraOutput
from polyhead.notes.chapters import electra

MINE = claims_of("electra")
broken = partial(failing, MINE)


def test_every_row_that_can_be_computed_has_one_check():
    assert [check.id for check in MINE] == ["M1", "M2", "M3", "M4", "M5", "M6", "M7", "M9"]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_labels_that_say_where_a_mask_was_are_noticed(monkeypatch):
    honest = Electra.forward

    def masked_is_replaced(self, ids, blanked, chosen):
        return honest(self, ids, blanked, chosen)._replace(replaced=chosen)

    monkeypatch.setattr(Electra, "forward", masked_is_replaced)
    assert {"M1", "M5"} <= broken()


def test_a_gradient_through_the_draw_is_noticed(monkeypatch):
    def leaking(self, ids, blanked, chosen):
        generated = self.generator.fill(blanked, chosen)
        forged = ids.masked_scatter(chosen, model.draw(generated, never=[0]))
        drawn = F.gumbel_softmax(generated, hard=True)  # the draw, but differentiable
        suspicion = self.suspect(forged) + (drawn * generated).mean()
        return ElectraOutput(suspicion, generated, forged, forged != ids)

    monkeypatch.setattr(Electra, "forward", leaking)
    assert broken() == {"M4", "M7"}


def test_the_likeliest_token_instead_of_a_draw_is_noticed(monkeypatch):
    monkeypatch.setattr(model, "draw", lambda logits: logits.argmax(-1) * 0 + 5)
    assert "M1" in broken()


def test_players_that_share_nothing_are_noticed(monkeypatch):
    honest = Electra.__init__

    def apart(self, config):
        honest(self, config)
        self.discriminator = model.BERTEncoder(config.discriminator)

    monkeypatch.setattr(Electra, "__init__", apart)
    assert {"M3", "M4"} & broken() >= {"M3"}


def test_an_untied_softmax_is_noticed(monkeypatch):
    honest = Electra.__init__

    def untied(self, config):
        honest(self, config)
        weight = self.generator.to_logits.weight
        self.generator.to_logits.weight = nn.Parameter(weight.detach().clone())

    monkeypatch.setattr(Electra, "__init__", untied)
    assert "M4" in broken()


def test_other_sizes_and_weights_than_the_papers_are_noticed(monkeypatch):
    monkeypatch.setattr(electra, "SPOTTING_WEIGHT", 1.0)
    assert broken() == {"M9"}
    monkeypatch.undo()
    monkeypatch.setattr(model, "narrowed", lambda stack, _: stack)
    assert {"M5", "M6"} <= broken()
