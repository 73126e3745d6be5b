"""Held-out texts: drawn with bounded memory, but as if all texts were sorted by their digests."""

import hashlib
import random
import tracemalloc

import pytest

from polyhead.data import holdout
from polyhead.data.holdout import Corpus, draw_texts, limit_training, normalized
from polyhead.data.labelled_text import LabelledExamples


def drawn_by_sorting(texts, count, seed, never):
    """Return the choice that needs all texts at once."""
    groups = {}
    for number, text in enumerate(texts):
        groups.setdefault(normalized(text), []).append(number)
    drawn = []
    for text in sorted(groups, key=lambda t: hashlib.sha256(f"{seed} {t}".encode()).digest()):
        if text not in never and len(drawn) + len(groups[text]) <= count:
            drawn += groups[text]
    return sorted(drawn)


@pytest.mark.parametrize("n_different", [3, 40, 100_000])
@pytest.mark.parametrize("candidates", [1, 1_000])
def test_the_choice_is_that_of_all_texts_sorted(n_different, candidates, monkeypatch):
    monkeypatch.setattr(holdout, "MIN_CANDIDATES", candidates)
    rng = random.Random(n_different)
    for seed in range(20):
        texts = [f"Text {rng.randrange(n_different)}" for _ in range(rng.randrange(1, 500))]
        count, never = rng.randrange(1, 30), {"text 1", "text 2"}
        assert draw_texts(texts, count, seed, never) == drawn_by_sorting(texts, count, seed, never)


def test_few_texts_are_kept():
    n_texts = 50_000
    tracemalloc.start()
    drawn = draw_texts((f"text {n}" for n in range(n_texts)), 10, seed=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(drawn) == 10
    assert peak < n_texts * 40  # a dictionary of all digests needs five times as much


def test_the_only_texts_that_occur_once_are_drawn(monkeypatch):
    monkeypatch.setattr(holdout, "MIN_CANDIDATES", 1)
    texts = [f"often {n % 100}" for n in range(500)] + ["once", "once more"]
    assert draw_texts(texts, 2, seed=1) == [500, 501]


@pytest.mark.parametrize("seed", [1, 2])
def test_more_training_examples_include_fewer(seed):
    labels = [str(n) for n in range(50)]
    corpus = Corpus(LabelledExamples(labels, labels), [], ())
    chosen = [set(limit_training(corpus, n, seed).train.texts) for n in (5, 20, 50)]
    assert [len(texts) for texts in chosen] == [5, 20, 50]
    assert chosen[0] < chosen[1] < chosen[2]
    assert limit_training(corpus, 5, seed).train == limit_training(corpus, 5, seed).train
    assert set(limit_training(corpus, 5, 3 - seed).train.texts) != chosen[0]
    lines = Corpus(labels, [], ())
    assert limit_training(lines, 3, seed).train == labels[:3]  # which belong together
