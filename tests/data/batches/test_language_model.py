"""Windows of running text: every token is read and predicted, without padding."""

from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from expected_errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st

from polyhead.data.batches import language_model
from polyhead.data.batches.base import mix
from polyhead.data.batches.language_model import WindowBatches, consecutive_windows
from polyhead.data.token_store import TokenSequences, TokenWriter
from polyhead.errors import DataError

LENGTHS = st.integers(2, 60)


def count_from_100(n):
    return np.arange(100, 100 + n, dtype=np.uint16)


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


def starts(windows, epoch):
    """Return where the windows of an epoch start, in their order."""
    return [int(i) - 100 for batch in windows.of_epoch(epoch) for i in batch.ids[:, 0]]


def test_epochs_differ_in_offset_and_order():
    windows = WindowBatches(count_from_100(1000), 10, 100, 1)
    firsts = {min(starts(windows, epoch)) for epoch in range(40)}
    assert firsts <= set(range(10))
    assert len(firsts) > 5
    assert starts(windows, 0) != sorted(starts(windows, 0))
    assert starts(windows, 3) == starts(WindowBatches(count_from_100(1000), 10, 100, 1), 3)
    assert starts(windows, 3) != starts(WindowBatches(count_from_100(1000), 10, 100, 2), 3)


@settings(max_examples=60, deadline=None)
@given(n=LENGTHS, length=st.integers(1, 70), seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_windows_of_one_block_are_a_permutation_by_the_seed_of_the_epoch(n, length, seed, epoch):
    rng = np.random.default_rng(mix(seed, epoch))
    width = min(length, n - 1)
    first = int(rng.integers(min(width, n - width)))
    expected = rng.permutation(np.arange(first, n - width, width))
    windows = WindowBatches(count_from_100(n), length, 3 * length, seed)
    assert starts(windows, epoch) == expected.tolist()


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_long_streams_are_shuffled_in_blocks(monkeypatch, rows):
    monkeypatch.setattr(language_model, "BLOCK", 12)
    windows = WindowBatches(count_from_100(1000), 10, 10 * rows, 1)
    size = windows.block
    assert 12 <= size < 12 + rows
    for epoch in range(3):
        read = np.array(starts(windows, epoch))
        assert len(read) in (98, 99)
        assert np.array_equal(np.sort(read), read.min() + 10 * np.arange(len(read)))
        blocks = (read - read.min()) // 10 // size
        changes = np.flatnonzero(np.diff(blocks)) + 1
        assert len(changes) == blocks.max()  # each block in one piece
        assert blocks[[0, *changes]].tolist() != sorted(set(blocks))
    assert windows.n_batches(0) == len(windows.of_epoch(0))


def test_a_mapped_stream_is_copied_by_name(tmp_path):
    stream = count_from_100(60_000)
    writer = TokenWriter(tmp_path / "x", stream.dtype)
    writer.add(stream, np.array([len(stream)]))
    writer.close()
    windows = WindowBatches(TokenSequences.open(tmp_path / "x"), 10, 100, 1)
    windows[0, 5]
    content = ForkingPickler.dumps(windows)
    assert len(content) < 10_000
    again = ForkingPickler.loads(content)
    assert isinstance(again.stream, np.memmap)
    for batches in (again, WindowBatches(stream, 10, 100, 1)):
        assert torch.equal(batches[2, 17].ids, windows[2, 17].ids)


@settings(max_examples=60, deadline=None)
@given(n=LENGTHS, length=st.integers(1, 70), max_tokens=st.integers(1, 100))
def test_consecutive_windows_predict_all_tokens_but_the_first(n, length, max_tokens):
    stream = torch.arange(n)
    batches = consecutive_windows(stream, length, max_tokens)
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert torch.equal(labels, stream[1:])
    for batch in batches:
        assert torch.equal(batch.ids + 1, batch.labels)
        assert batch.ids.size(1) <= length
        assert batch.ids.numel() <= max(max_tokens, length)


def test_a_text_of_one_token_is_an_error():
    with raises(DataError, "too_short"):
        WindowBatches(count_from_100(1), 5, 25, 1)
