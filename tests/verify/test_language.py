"""The claims about BERT, GPT and the pictures hold, and stop to hold when something is broken."""

import pytest

from polyhead.data.masking import MaskingConfig
from polyhead.inspect import drawing
from polyhead.layers.attention import FullAttention, attention_weights
from polyhead.layers.masks import EVERYTHING
from polyhead.models import bert, gpt
from polyhead.verify.chapters import language
from polyhead.verify.check import CHECKS
from polyhead.verify.run import run

MINE = [check for check in CHECKS.values() if check.chapter == "language"]


def broken():
    return {row.check.id for row in run(MINE) if not row.finding.holds}


def test_every_row_has_one_check():
    assert [check.id for check in MINE] == [f"K{i}" for i in range(1, 5)]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    (row,) = run([check])
    assert row.finding.holds, row
    assert bool(row.finding.noted) == (check.note != "right")
    assert max(map(len, check.claim)) <= 70


def test_other_shares_of_blanks_are_noticed(monkeypatch):
    monkeypatch.setattr(language, "BERTS_SHARES", MaskingConfig(masked=1.0, random=0.0))
    assert broken() == {"K3"}


def test_a_head_at_the_wrong_positions_is_noticed(monkeypatch):
    def shifted(self, ids, chosen, segments=None):
        return self.to_logits(self.transform(self.hidden(ids, segments)[chosen.roll(1, 1)]))

    monkeypatch.setattr(bert.BERT, "fill", shifted)
    assert broken() == {"K3"}


def test_a_gpt_that_sees_the_future_is_noticed(monkeypatch):
    monkeypatch.setattr(gpt, "THE_PAST", EVERYTHING)
    assert broken() == {"K4"}


def test_recorded_weights_over_the_wrong_axis_are_noticed(monkeypatch):
    def transposed(q, k, mask=EVERYTHING):
        return attention_weights(k, q, mask).mT

    monkeypatch.setattr(FullAttention, "weights", staticmethod(transposed))
    assert broken() == {"K1"}


def test_a_picture_in_one_colour_is_noticed(monkeypatch):
    monkeypatch.setattr(drawing, "HEADS", ("#0060c4",))
    assert "K1" in broken()
