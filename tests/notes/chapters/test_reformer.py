"""The claims about the Reformer hold, and stop to hold when a part of it is broken."""

from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing

from polyhead.layers import reversible
from polyhead.layers.feed_forward import FeedForward
from polyhead.layers.lsh import attention as lsh
from polyhead.layers.lsh import chunked as sorted_attention
from polyhead.layers.lsh import hashing
from polyhead.notes.chapters import reformer

MINE = claims_of("reformer")
broken = partial(failing, MINE)


def test_every_row_has_one_check():
    assert reformer
    assert [check.id for check in MINE] == [f"N{i}" for i in range(1, 11)]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_keys_that_are_not_of_unit_length_are_noticed(monkeypatch):
    monkeypatch.setattr(lsh.F, "normalize", lambda x, **_: x)
    assert "N6" in broken()


def test_a_hash_without_the_other_end_of_the_axes_is_noticed(monkeypatch):
    monkeypatch.setattr(hashing, "farthest", lambda y: y.argmax(-1).to(y.dtype))
    assert "N4" in broken()


def test_a_hash_that_is_just_random_is_noticed(monkeypatch):
    def random(y):
        return torch.randint(2 * y.size(-1), y.shape[:-1]).to(y.dtype)

    monkeypatch.setattr(hashing, "farthest", random)
    assert {"N3", "N4"} <= broken()


def test_pairs_that_count_in_every_round_are_noticed(monkeypatch):
    monkeypatch.setattr(sorted_attention.LSHPlan, "_found", lambda *given: given[-1].zero_())
    assert "N5" in broken()


def test_other_dropout_on_the_way_back_is_noticed(monkeypatch):
    monkeypatch.setattr(reversible.torch, "set_rng_state", lambda _: None)
    assert "N9" in broken()


def test_pieces_that_are_not_cut_are_noticed(monkeypatch):
    monkeypatch.setattr(FeedForward, "forward", FeedForward._feed)
    assert "N10" in broken()
