"""Entities as conlleval finds them, and their scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.tasks.tagging import entities, entity_report, score_tags

TAGS = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XY")]
sentences = st.lists(st.sampled_from(TAGS), max_size=8)


def ends(before, tag, kind_before, kind):
    """Return whether an entity ends between two tags, as conlleval.pl's endOfChunk."""
    return (
        (before in "BI" and tag in "BSO")
        or before in "ES"
        or (before != "O" and kind_before != kind)
    )


def starts(before, tag, kind_before, kind):
    """Return whether an entity starts at the second tag, as conlleval.pl's startOfChunk."""
    return tag in "BS" or (before in "ESO" and tag in "EI") or (tag != "O" and kind_before != kind)


def conlleval(tags):
    found, open_at, before, kind_before = set(), None, "O", ""
    for place, full in enumerate([*tags, "O"]):
        tag, kind = full[0], full[2:]
        if open_at is not None and ends(before, tag, kind_before, kind):
            found.add((open_at, place, kind_before))
            open_at = None
        if tag != "O" and starts(before, tag, kind_before, kind):
            open_at = place
        before, kind_before = tag, kind
    return found


@settings(deadline=None)
@given(tags=sentences)
def test_entities_are_those_of_conlleval(tags):
    assert set(entities(tags)) == conlleval(tags)


@settings(deadline=None)
@given(pairs=st.lists(st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from(TAGS), min_size=n, max_size=n)] * 2)),
    min_size=1, max_size=4))  # fmt: skip
def test_scores_are_those_of_all_pairs_of_entities(pairs):
    expected, predicted = zip(*pairs, strict=True)
    result = entity_report(expected, predicted)
    right = [(n, *e) for n, tags in enumerate(expected) for e in conlleval(tags)]
    given = [(n, *e) for n, tags in enumerate(predicted) for e in conlleval(tags)]
    hits = sum(entity in right for entity in given)
    assert result.scores["precision"] == (hits / len(given) if given else 0)
    assert result.scores["recall"] == (hits / len(right) if right else 0)
    assert result.scores["f1"] == (2 * hits / (len(given) + len(right)) if hits else 0)
    for score in result.classes:
        mine = [entity for entity in right if entity[-1] == score.name]
        assert score.count == len(mine)
        assert score.recall == (sum(e in given for e in mine) / len(mine) if mine else 0)


def test_intervals_are_those_of_a_bootstrap_by_sentence():
    rng = np.random.default_rng(1)
    parts = rng.integers(0, 5, 200)
    predicted = [["B-X"] * n + ["O"] * (4 - n) for n in parts]
    low, high = entity_report([["B-X"] * 4] * 200, predicted).intervals["recall"]
    drawn = [rng.choice(parts, 200).sum() / 800 for _ in range(4000)]
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.01)


def test_accuracy_loss_and_f1_of_tags():
    rows = np.log([[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]], [[0.2, 0.2, 0.6]]][0]).tolist()
    scores = score_tags([rows, [rows[0]]], ["B-X\tI-X", "O"], ["B-X", "I-X", "O"], "here")
    assert scores.report.accuracy == pytest.approx(2 / 3)
    assert scores.loss == pytest.approx(-np.log([0.7, 0.8, 0.1]).mean())
    assert scores.f1 == scores.entities.scores["f1"] == pytest.approx(2 / 3)
    plain = score_tags([rows], ["a\tb"], ["a", "b", "c"], "here")
    assert plain.entities is None
    assert "entities" not in str(plain)
    assert str(scores).endswith(f"entities:\n{scores.entities}")
    assert plain.f1 == plain.report.macro_f1
