"""The claims about training hold, and stop to hold when loss, labels or rates are wrong."""

from functools import partial

import pytest
import torch
from claims import assert_it_holds, claims_of, failing

from polyhead.data.batches.translation import TranslationBatch
from polyhead.models.transformer import Transformer
from polyhead.notes.chapters import training
from polyhead.training import losses as objectives
from polyhead.training import optim as schedule

MINE = claims_of("training")
broken = partial(failing, MINE)


def test_every_row_has_one_check():
    assert [check.id for check in MINE] == ["H3", "H4", "H8", "H9"]


@pytest.mark.parametrize("check", MINE, ids=lambda check: check.id)
def test_it_holds(check):
    assert_it_holds(check)


def test_a_mean_is_not_a_sum(monkeypatch):
    summed = objectives.linear_cross_entropy

    def mean(h, *rest):
        return summed(h, *rest) / len(h)

    monkeypatch.setattr(objectives, "linear_cross_entropy", mean)
    assert broken() == {"H3"}


def test_a_decoder_that_reads_the_answer_is_noticed(monkeypatch):
    collate = training.collate

    def unshifted(pairs):
        batch = collate(pairs)
        return TranslationBatch(batch.source, batch.labels, batch.labels)

    monkeypatch.setattr(training, "collate", unshifted)
    assert broken() == {"H4"}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda step, d, warmup, *_: d**-0.5 * max(step**-0.5, step * warmup**-1.5),
        lambda step, _, warmup, *__: min(step**-0.5, step * warmup**-1.5),
        lambda step, d, warmup, *_: d**-0.5 * min((step + 1) ** -0.5, step * warmup**-1.5),
    ],
)
def test_a_wrong_rate_is_noticed(monkeypatch, wrong):
    monkeypatch.setattr(schedule, "noam", wrong)
    assert broken() == {"H8"}


def test_training_word_by_word_is_noticed(monkeypatch):
    def slowly(self, source, target):
        state = self.begin(source, max_length=target.size(1))
        return torch.cat([self.step(word, state) for word in target.split(1, dim=1)], dim=1)

    monkeypatch.setattr(Transformer, "forward", slowly)
    assert "H9" in broken()
