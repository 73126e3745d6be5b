"""Windows of running text: every token is read and predicted, and none is padding."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.data.batches.language_model import Windows, joined, whole
from polyhead.data.batches.translation import DataPosition
from polyhead.errors import DataError

LENGTHS = st.integers(2, 60)


def counted(n):
    return torch.arange(100, 100 + n)


def test_lines_are_joined_in_their_order():
    assert joined([[5, 2], [2], [6, 7, 2]]).tolist() == [5, 2, 2, 6, 7, 2]


@settings(max_examples=60, deadline=None)
@given(n=LENGTHS, length=st.integers(1, 70), max_tokens=st.integers(1, 100), seed=st.integers(0, 9))
def test_windows_cover_the_stream_but_for_a_rest_at_both_ends(n, length, max_tokens, seed):
    windows = Windows(counted(n), length, max_tokens, seed)
    width = min(length, n - 1)
    for epoch in range(3):
        batches = [windows[(epoch, step)] for step in range(windows.n_batches(epoch))]
        ids = torch.cat([batch.ids for batch in batches])
        for batch in batches:
            assert torch.equal(batch.labels, batch.ids + 1)  # what follows, since the ids count
            assert batch.ids.size(1) == width
            assert batch.ids.numel() <= max(max_tokens, width)
        read = sorted(ids.flatten().tolist())
        assert read == list(range(read[0], read[0] + len(read)))  # each once, none left out between
        assert read[0] - 100 < width
        assert (100 + n - 1) - (read[-1] + 1) < width


def test_epochs_begin_at_different_places_and_in_different_orders():
    windows = Windows(counted(1000), 10, 100, 1)
    firsts = {int(windows.starts(epoch).min()) for epoch in range(40)}
    assert firsts <= set(range(10))
    assert len(firsts) > 5
    assert windows.starts(0).tolist() != sorted(windows.starts(0).tolist())
    assert torch.equal(windows.starts(3), Windows(counted(1000), 10, 100, 1).starts(3))
    assert not torch.equal(windows.starts(3), Windows(counted(1000), 10, 100, 2).starts(3))


def test_a_run_finds_its_place_again():
    windows = Windows(counted(100), 7, 21, 1)
    stream = windows.batches(DataPosition())
    for _ in range(7):
        place, _ = next(stream)
    again = windows.batches(place)
    for _ in range(5):
        (here, one), (there, other) = next(stream), next(again)
        assert here == there
        assert torch.equal(one.ids, other.ids)


@settings(max_examples=60, deadline=None)
@given(n=LENGTHS, length=st.integers(1, 70), max_tokens=st.integers(1, 100))
def test_the_whole_pass_predicts_all_but_the_first_in_order(n, length, max_tokens):
    batches = whole(counted(n), length, max_tokens)
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert torch.equal(labels, counted(n)[1:])
    for batch in batches:
        assert torch.equal(batch.ids + 1, batch.labels)
        assert batch.ids.size(1) <= length
        assert batch.ids.numel() <= max(max_tokens, length)


def test_halves_are_the_whole():
    batch = Windows(counted(50), 5, 25, 1)[(0, 0)]
    one, other = batch.halves()
    assert torch.equal(torch.cat([one.ids, other.ids]), batch.ids)
    assert torch.equal(torch.cat([one.labels, other.labels]), batch.labels)
    assert batch.n_tokens == 25


def test_one_token_is_not_enough():
    with pytest.raises(DataError, match="1 tokens are not enough to predict one from another"):
        Windows(counted(1), 5, 25, 1)
