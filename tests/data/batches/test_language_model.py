"""Windows of running text: every token is read and predicted, without padding."""

import torch
from expected_errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.data.batches.language_model import WindowBatches, consecutive_windows, join_lines
from polyhead.errors import DataError

LENGTHS = st.integers(2, 60)


def count_from_100(n):
    return torch.arange(100, 100 + n)


def test_lines_are_joined_in_their_order():
    assert join_lines([[5, 2], [2], [6, 7, 2]]).tolist() == [5, 2, 2, 6, 7, 2]


@settings(max_examples=60, deadline=None)
@given(n=LENGTHS, length=st.integers(1, 70), max_tokens=st.integers(1, 100), seed=st.integers(0, 9))
def test_windows_cover_the_stream_except_its_ends(n, length, max_tokens, seed):
    windows = WindowBatches(count_from_100(n), length, max_tokens, seed)
    width = min(length, n - 1)
    for epoch in range(3):
        batches = [windows[(epoch, step)] for step in range(windows.n_batches(epoch))]
        ids = torch.cat([batch.ids for batch in batches])
        for batch in batches:
            assert torch.equal(batch.labels, batch.ids + 1)  # the ids count upwards
            assert batch.ids.size(1) == width
            assert batch.ids.numel() <= max(max_tokens, width)
        read = sorted(ids.flatten().tolist())
        assert read == list(range(read[0], read[0] + len(read)))  # each once, without gaps
        assert read[0] - 100 < width
        assert (100 + n - 1) - (read[-1] + 1) < width


def test_epochs_differ_in_offset_and_order():
    windows = WindowBatches(count_from_100(1000), 10, 100, 1)
    firsts = {int(windows.starts(epoch).min()) for epoch in range(40)}
    assert firsts <= set(range(10))
    assert len(firsts) > 5
    assert windows.starts(0).tolist() != sorted(windows.starts(0).tolist())
    assert torch.equal(windows.starts(3), WindowBatches(count_from_100(1000), 10, 100, 1).starts(3))
    assert not torch.equal(
        windows.starts(3), WindowBatches(count_from_100(1000), 10, 100, 2).starts(3)
    )


@settings(max_examples=60, deadline=None)
@given(n=LENGTHS, length=st.integers(1, 70), max_tokens=st.integers(1, 100))
def test_consecutive_windows_predict_all_tokens_but_the_first(n, length, max_tokens):
    batches = consecutive_windows(count_from_100(n), length, max_tokens)
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert torch.equal(labels, count_from_100(n)[1:])
    for batch in batches:
        assert torch.equal(batch.ids + 1, batch.labels)
        assert batch.ids.size(1) <= length
        assert batch.ids.numel() <= max(max_tokens, length)


def test_a_text_of_one_token_is_an_error():
    with raises(DataError, "too_short"):
        WindowBatches(count_from_100(1), 5, 25, 1)
