"""Held-out texts: drawn with bounded memory, but as if all texts were sorted by their digests."""

import hashlib
import random
import tracemalloc

import numpy as np
import pytest

from polyhead.data import holdout
from polyhead.data.holdout import (
    draw_groups,
    draw_per_class,
    drawn_for_training,
    normalized,
)


def drawn_by_sorting(columns, count, seed, never):
    """Return the choice that needs all examples at once, and how many of it have equals."""
    columns = [list(map(normalized, texts)) for texts in columns]
    groups = {number: {number} for number in range(len(columns[0]))}
    for texts in columns:
        seen = {}
        for number, text in enumerate(texts):
            other = groups[seen.setdefault(text, number)]
            if other is not groups[number]:
                other |= groups[number]
                groups |= dict.fromkeys(other, other)
    first = {
        min(hashlib.sha256(f"{seed} {columns[0][n]}".encode()).digest() for n in group): group
        for group in groups.values()
    }
    drawn, n_grouped = [], 0
    for _, group in sorted(first.items()):
        is_excluded = any(columns[0][number] in never for number in group)
        if not is_excluded and len(drawn) + len(group) <= count:
            drawn += group
            n_grouped += len(group) if len(group) > 1 else 0
    return sorted(drawn), n_grouped


@pytest.mark.parametrize("n_columns", [1, 2, 3])
@pytest.mark.parametrize("n_different", [3, 40, 300, 100_000])
@pytest.mark.parametrize(("candidates", "chunk"), [(1, 3), (1, 1 << 20), (1_000, 50)])
def test_the_choice_is_that_of_all_groups_sorted(
    n_columns, n_different, candidates, chunk, tmp_path, monkeypatch
):
    monkeypatch.setattr(holdout, "MIN_CANDIDATES", candidates)
    monkeypatch.setattr(holdout, "CHUNK", chunk)
    rng = random.Random(n_different)
    for seed in range(20):
        n = rng.randrange(1, 300)
        columns = [[f"Text {rng.randrange(n_different)}" for _ in range(n)]] * n_columns
        columns = [rng.sample(texts, n) for texts in columns]
        count, never = rng.randrange(1, 30), {"text 1", "text 2"}
        expected = drawn_by_sorting(columns, count, seed, never)
        assert draw_groups(columns, count, seed, never) == expected
        assert draw_groups(columns, count, seed, never, tmp_path) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("n_equal", [1, 50_000])
def test_memory_depends_on_the_number_of_examples_to_draw(n_equal, tmp_path, monkeypatch):
    monkeypatch.setattr(holdout, "CHUNK", 1_000)
    n_texts = 50_000
    columns = [(f"{side} {n // n_equal}" for n in range(n_texts)) for side in ("a", "b")]
    columns[0] = (f"source {n}" for n in range(n_texts))
    tracemalloc.start()
    drawn = draw_groups(columns, 10, seed=1, folder=tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(drawn.numbers) == (10 if n_equal == 1 else 0)
    assert peak < n_texts * 16  # digests in memory


def test_the_only_texts_that_occur_once_are_drawn(monkeypatch):
    monkeypatch.setattr(holdout, "MIN_CANDIDATES", 1)
    texts = [f"often {n % 100}" for n in range(500)] + ["once", "once more"]
    assert draw_groups([texts], 2, seed=1) == ([500, 501], 0)


def test_equal_contents_are_drawn_together_and_not_with_two_classes():
    rng = np.random.default_rng(1)
    for seed in range(20):
        contents = rng.integers(0, 300, 400).astype(np.uint64)
        labels = contents.astype(np.int64) % 3
        labels[rng.integers(0, 400, 20)] = 1
        drawn, n_grouped = draw_per_class(labels, 30, seed, contents)
        assert 20 < len(drawn) <= 31
        rest = np.setdiff1d(np.arange(400), drawn)
        assert not set(contents[drawn]) & set(contents[rest])
        assert n_grouped == sum((contents[drawn] == c).sum() > 1 for c in contents[drawn])
        assert all(len(set(labels[contents == c])) == 1 for c in contents[drawn])
        assert set(labels[rest]) == set(labels[drawn]) == {0, 1, 2}


@pytest.mark.parametrize("seed", [1, 2])
def test_more_training_examples_include_fewer(seed):
    chosen = [drawn_for_training(50, n, seed) for n in (5, 20, 50)]
    assert [None if numbers is None else len(numbers) for numbers in chosen] == [5, 20, None]
    assert set(chosen[0]) < set(chosen[1])
    assert set(drawn_for_training(50, 5, 3 - seed)) != set(chosen[0])
    assert drawn_for_training(50, 3, seed, in_order=True).tolist() == [0, 1, 2]
