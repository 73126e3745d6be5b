"""The claims about BERT, GPT and the pictures hold, and stop to hold when something is broken."""

from functools import partial

import pytest
from claims import assert_it_holds, claims_of, failing

from polyhead.data.batches.masked import MaskingConfig
from polyhead.layers.attention import FullAttention, attention_weights
from polyhead.layers.masks import NO_MASK
from polyhead.models import bert, gpt
from polyhead.notes.chapters import language
from polyhead.viz import draw_text as drawing

MINE = claims_of("language")
broken = partial(failing, MINE)


def test_every_row_has_one_check():
    assert [check.id for check in MINE] == [f"K{i}" for i in range(1, 5)]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_other_shares_of_blanks_are_noticed(monkeypatch):
    monkeypatch.setattr(language, "BERTS_SHARES", MaskingConfig(masked=1.0, random=0.0))
    assert broken() == {"K3"}


def test_a_head_at_the_wrong_positions_is_noticed(monkeypatch):
    def shifted(self, ids, chosen, segments=None):
        return self.to_logits(self.transform(self.hidden(ids, segments)[chosen.roll(1, 1)]))

    monkeypatch.setattr(bert.BERT, "fill", shifted)
    assert broken() == {"K3"}


def test_a_gpt_that_sees_the_future_is_noticed(monkeypatch):
    monkeypatch.setattr(gpt, "CAUSAL", NO_MASK)
    assert broken() == {"K4"}


def test_recorded_weights_over_the_wrong_axis_are_noticed(monkeypatch):
    def transposed(q, k, mask=NO_MASK):
        return attention_weights(k, q, mask).mT

    monkeypatch.setattr(FullAttention, "weights", staticmethod(transposed))
    assert broken() == {"K1"}


def test_a_picture_in_one_colour_is_noticed(monkeypatch):
    monkeypatch.setattr(drawing, "PALETTE", ("#0060c4",))
    assert "K1" in broken()
