"""Token stores: what is written is read again, also by a reader written from Megatron's layout."""

import pickle
import struct
import zlib

import numpy as np
import pytest
from expected_errors import raises

from polyhead.data import token_store
from polyhead.data.token_store import TokenSequences, TokenWriter, id_type
from polyhead.errors import DataError

SEQUENCES = [[1, 2, 3], [], [7] * 5, [60_000]]


def write(name, sequences, n_ids):
    writer = TokenWriter(name, id_type(n_ids))
    for sequence in sequences:
        writer.add(np.array(sequence), np.array([len(sequence)]))
    writer.close()
    return TokenSequences.open(name)


def lists(sequences):
    return [sequence.tolist() for sequence in sequences]


@pytest.mark.parametrize(("n_ids", "size"), [(60_001, 2), (65_500, 4), (300_000, 4)])
def test_sequences_are_equal_in_memory_and_in_files(tmp_path, n_ids, size):
    sequences = [*SEQUENCES, [n_ids - 1]]
    assert lists(TokenSequences.of(sequences, n_ids)) == sequences
    mapped = write(tmp_path / "x", sequences, n_ids)
    assert lists(mapped) == sequences
    assert (tmp_path / "x.bin").stat().st_size == size * sum(map(len, sequences))


def test_the_files_have_megatrons_layout(tmp_path):
    write(tmp_path / "x", SEQUENCES, 60_001)
    content = (tmp_path / "x.idx").read_bytes()
    assert content[:9] == b"MMIDIDX\x00\x00"
    assert struct.unpack("<QBQQ", content[9:34]) == (1, 8, 4, 2)
    assert struct.unpack("<4i", content[34:50]) == (3, 0, 5, 1)
    assert struct.unpack("<4q", content[50:82]) == (0, 6, 6, 16)
    assert struct.unpack("<2q", content[82:]) == (0, 4)
    ids = np.fromfile(tmp_path / "x.bin", dtype="<u2")
    assert ids.tolist() == [1, 2, 3, 7, 7, 7, 7, 7, 60_000]


def test_mapped_sequences_are_sent_to_other_processes_by_name(tmp_path):
    mapped = write(tmp_path / "x", [[1] * 10_000] * 10, 100)
    sent = pickle.dumps(mapped)
    assert len(sent) < 500
    assert lists(pickle.loads(sent)) == lists(mapped)  # noqa: S301 (our own bytes)


def test_what_is_read_can_be_written_to(tmp_path):
    mapped = write(tmp_path / "x", SEQUENCES, 60_001)
    mapped[0][:] = 9
    assert mapped[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["x.idx", "x.bin"])
@pytest.mark.parametrize("change", [b"", b"MMIDIDX", None])
def test_damaged_files_are_refused(tmp_path, name, change):
    write(tmp_path / "x", SEQUENCES, 60_001)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[:-2] if change is None else change)
    with raises(DataError, "damaged_store"):
        TokenSequences.open(tmp_path / "x")


def test_documents_are_ranges_of_sequences(tmp_path):
    writer = TokenWriter(tmp_path / "x", id_type(10))
    for n in (2, 3):
        writer.add(np.arange(n), np.ones(n, np.int32))
        writer.end_document()
    writer.close()
    assert TokenSequences.open(tmp_path / "x").documents.tolist() == [0, 2, 5]


def test_each_block_is_checked_when_it_is_first_read(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "BLOCK", 8)
    sequences = [[7] * length for length in (3, 2, 9, 0, 1, 20)]
    write(tmp_path / "x", sequences, 100)
    for damaged in (2, 4, 5):  # which have the ids 12 to 15
        token_store.write_block_sums(tmp_path / "x.bin")
        sums = np.fromfile(tmp_path / "x.crc", "<u4")
        sums[3] ^= 1
        sums.tofile(tmp_path / "x.crc")
        store = TokenSequences.open(tmp_path / "x")
        assert lists(store[n] for n in (0, 1)) == sequences[:2]
        with raises(DataError, "damaged_store", "block 3"):
            store[damaged]
        assert not (tmp_path / "x.crc").exists()


@pytest.mark.parametrize("n_checked", [64, 3])
def test_changed_bytes_and_sizes_are_found_by_the_sums_of_blocks(tmp_path, n_checked, monkeypatch):
    monkeypatch.setattr(token_store, "BLOCK", 8)
    monkeypatch.setattr(token_store, "MAX_CHECKED", n_checked)
    path = tmp_path / "x.bin"
    content = bytes(range(100))
    path.write_bytes(content)
    token_store.write_block_sums(path)
    assert np.fromfile(tmp_path / "x.crc", "<u4")[12] == zlib.crc32(content[96:])
    token_store.check_blocks(path)
    for wrong in (content[:-1], content + b"x", content[:96], content + bytes(8)):
        path.write_bytes(wrong)
        with raises(DataError, "damaged_store"):
            token_store.check_blocks(path)
    path.write_bytes(content[:40] + b"?" + content[41:])
    found = 0
    for _ in range(99):  # of few blocks, others are drawn every time
        try:
            token_store.check_blocks(path)
        except DataError:
            found += 1
    assert found == 99 if n_checked == 64 else 0 < found < 99
