"""The claims about recurrent networks hold, and stop to hold when a part is broken."""

from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing
from torch import nn

from polyhead.layers import attention_scores as scores
from polyhead.layers.attention import FullAttention
from polyhead.layers.attention_scores import ScoredAttention
from polyhead.layers.recurrent import LookBack, Recurrence, RNNCell
from polyhead.models.baselines import seq2seq
from polyhead.models.baselines.attention_ladder import ByContent, ByPosition, Ladder
from polyhead.notes.chapters import recurrent

MINE = claims_of("recurrent")
broken = partial(failing, MINE)


def by_weights(monkeypatch):
    """Let no score take the fused kernel, which cannot be broken from here."""

    def explicit(self, q, k, v, mask):
        return self.weights(q, k, mask) @ v

    monkeypatch.setattr(ScoredAttention, "forward", explicit)


def test_every_row_but_the_demonstration_has_one_check():
    assert recurrent.__doc__ is not None
    assert "A11" in recurrent.__doc__
    assert [check.id for check in MINE] == [f"A{i}" for i in range(1, 17) if i != 11]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_holds_by_more_than_chance(seed, monkeypatch):
    """The runner begins with seed 0; another one must find the same."""
    start = torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda _: start(seed))
    assert broken() == set()


def test_a_cell_without_its_matrix_is_noticed(monkeypatch):
    monkeypatch.setattr(RNNCell, "forward", lambda self, x, h: torch.tanh(self.w_x(x) + h))
    assert {"A1", "A2", "A3"} <= broken()


def test_a_cell_without_tanh_is_noticed(monkeypatch):
    monkeypatch.setattr(RNNCell, "forward", lambda self, x, h: self.w_x(x) + self.w_h(h))
    assert {"A1", "A2"} <= broken()


def test_a_softmax_over_the_steps_is_noticed(monkeypatch):
    def over_steps(given, _mask):
        return given.softmax(-2)

    by_weights(monkeypatch)
    monkeypatch.setattr(scores, "softmax_of_visible", over_steps)
    assert {"A6", "A7", "A8", "A9", "A10", "A13", "A16"} <= broken()


def test_padding_that_counts_is_noticed(monkeypatch):
    by_weights(monkeypatch)
    monkeypatch.setattr(scores, "softmax_of_visible", lambda given, _mask: given.softmax(-1))
    assert broken() == {"A6"}


def test_reading_the_right_words_in_secret_is_noticed(monkeypatch):
    monkeypatch.setattr(Ladder, "_right_or_own", lambda _self, right, _h: right)
    assert broken() == {"A5"}


def test_states_that_ask_for_themselves_are_noticed(monkeypatch):
    """Keys and queries swapped: the source asks, the target answers."""

    def swapped(self, states, memory):
        s, h = states[:, None], memory.states[:, None]
        return self.kernel(h, s, s)[:, 0, : states.size(1)]

    monkeypatch.setattr(LookBack, "forward", swapped)
    assert {"A9", "A10", "A13"} <= broken()


def test_scores_that_do_not_see_the_words_are_noticed(monkeypatch):
    def blind(self, q, k):
        return self.v.weight.new_zeros(*q.shape[:-1], k.size(-2))

    monkeypatch.setattr(ByContent, "forward", blind)
    assert broken() == {"A8"}


def test_places_that_are_counted_from_the_end_are_noticed(monkeypatch):
    def from_the_end(self, q, k):
        return self.b[: k.size(-2)].flip(0).expand(*q.shape[:-1], k.size(-2))

    monkeypatch.setattr(ByPosition, "forward", from_the_end)
    assert broken() == {"A7"}


def test_a_source_that_is_not_turned_is_noticed(monkeypatch):
    monkeypatch.setattr(seq2seq, "turned", lambda x, _lengths: x)
    assert broken() == {"A4"}


def test_a_reader_that_forgets_is_noticed(monkeypatch):
    """Every word read from nothing: no order, and no way from one word to the next."""

    def forgets(self, x, _lengths):
        batch, length, width = x.shape
        states, last = self.cells(x.reshape(batch * length, 1, width))
        return states.view(batch, length, -1), (last.view(1, batch, length, -1)[:, :, 0],)

    monkeypatch.setattr(Recurrence, "read", forgets)
    assert {"A4", "A14", "A15"} <= broken()


def test_an_attention_that_sees_only_neighbours_is_noticed(monkeypatch):
    def near(_self, q, k, v, *_):
        n = q.size(-2)
        allowed = torch.ones(n, n).tril(1).triu(-1).bool()
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)

    monkeypatch.setattr(FullAttention, "forward", near)
    assert {"A12", "A15"} <= broken()


def test_a_kernel_that_looks_at_one_word_only_is_noticed(monkeypatch):
    def hard(self, q, k, *_):
        best = self.score(q, k).argmax(-1)
        return nn.functional.one_hot(best, k.size(-2)).to(q.dtype)

    by_weights(monkeypatch)
    monkeypatch.setattr(ScoredAttention, "weights", hard)
    assert {"A6", "A7", "A8", "A9", "A10", "A13", "A16"} <= broken()
