"""The chapter on complexity holds, and falls with the parts that it is about."""

import pytest
import torch
from torch.nn import functional as F

from polyhead.cost import complexity as formulas
from polyhead.layers import local_attention as local
from polyhead.notes.chapters import complexity
from polyhead.notes.claims import CLAIMS

IDS = [id for id, check in CLAIMS.items() if check.chapter == "complexity"]


def found(id):
    torch.manual_seed(0)
    return CLAIMS[id].check()


def test_every_row_has_a_check():
    assert sorted(IDS) == [f"I{n}" for n in range(1, 7)]


@pytest.mark.parametrize("id", IDS)
def test_the_claim_holds(id):
    finding = found(id)
    assert finding.holds, finding


@pytest.mark.parametrize("id", ["I3", "I5"])
def test_imprecise_notes_show_what_they_would_give(id):
    assert CLAIMS[id].note == "imprecise"
    assert found(id).noted


def test_attention_that_computes_twice_is_noticed(monkeypatch):
    once = complexity.attention
    monkeypatch.setattr(complexity, "attention", lambda q, k, v: once(q, k, v) + once(q, k, v))
    assert not found("I1").holds
    assert not found("I6").holds


def test_a_formula_that_forgets_the_weighted_sum_is_noticed(monkeypatch):
    monkeypatch.setattr(complexity, "self_attention_work", lambda n, d: 2 * n * n * d)
    assert not found("I1").holds


def test_a_recurrence_that_waits_for_nobody_is_noticed(monkeypatch):
    class Parallel(torch.nn.Linear):
        def __init__(self, *_):
            super().__init__(8, 8)

        def forward(self, x, _):
            return (super().forward(x),)

    monkeypatch.setattr(complexity, "Recurrence", Parallel)
    with pytest.raises(ZeroDivisionError):
        found("I2")


def test_convolutions_that_forget_to_dilate_are_noticed(monkeypatch):
    straight = formulas.Convolution
    monkeypatch.setattr(complexity, "Convolution", lambda d, k, *_: straight(d, k))
    assert not found("I3").holds


def test_a_window_that_is_one_too_wide_is_noticed(monkeypatch):
    monkeypatch.setattr(
        local.LocalAttention,
        "_visible",
        lambda self, distance, *, causal: distance.abs() <= self.window + 1,  # noqa: ARG005
    )
    assert not found("I4").holds


def test_a_kernel_that_keeps_all_weights_is_noticed(monkeypatch):
    def printed(_, q, k, v):
        return complexity.attention(q, k, v)

    monkeypatch.setattr(complexity.FullAttention, "forward", printed)
    assert not found("I6").holds


def test_steps_that_grow_with_the_input_are_noticed(monkeypatch):
    def one_by_one(q, k, v):
        rows = [q[:, :, :1]]
        for n in range(q.size(2)):
            rows.append(F.softmax(rows[-1] @ k.mT, -1) @ v + q[:, :, n : n + 1])
        return torch.cat(rows[1:], 2)

    monkeypatch.setattr(complexity, "attention", one_by_one)
    assert not found("I5").holds
