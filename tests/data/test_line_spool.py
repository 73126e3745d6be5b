"""Spools: lines come back as they were written, without those held out, with bounded memory."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyhead.data import line_spool
from polyhead.data.config import DataConfig
from polyhead.data.line_spool import LineSpool
from polyhead.data.parallel import load_parallel
from polyhead.data.plain_text import load_plain

RELAXED = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=5)


@RELAXED
@given(
    pairs=st.lists(st.tuples(line, line), max_size=40),
    held_out=st.sets(st.integers(0, 39)),
    size=st.integers(1, 9),
)
def test_lines_are_returned_as_written(pairs, held_out, size, monkeypatch):
    monkeypatch.setattr(line_spool, "CHUNK", size)
    monkeypatch.setattr(line_spool, "MAX_CHUNK", 2 * size)
    spool = LineSpool(2)
    spool.write(pairs)
    assert list(spool.backwards(1)) == [second for _, second in reversed(pairs)]
    numbers = sorted(number for number in held_out if number < len(pairs))
    selected = [[pair[side] for pair in map(pairs.__getitem__, numbers)] for side in (0, 1)]
    assert list(spool.select(numbers).columns) == selected
    spool.left_out = numbers
    left = [pair for number, pair in enumerate(pairs) if number not in held_out]
    assert len(spool) == len(left)
    for side in (0, 1):
        assert list(spool.column(side)) == [pair[side] for pair in left]
        contents = b"".join(chunk[side] for chunk in spool.chunks())
        assert contents == "".join(f"{pair[side]}\n" for pair in left).encode()


def test_chunks_end_between_two_words(monkeypatch):
    monkeypatch.setattr(line_spool, "CHUNK", 2)
    spool = LineSpool(1)
    spool.write((text,) for text in ["a", "b", "", "", "c", "d ", "e", "f", " g", "h"])
    ends = [chunk[0].decode().split("\n")[:-1] for chunk in spool.chunks()]
    assert ends == [["a", "b", "", "", "c"], ["d ", "e"], ["f", " g"], ["h"]]


@pytest.fixture
def corpus(tmp_path):
    """Return a configuration of 30,000 pairs, 3 MB."""
    for side in ("ko", "en"):
        numbers = (n // 2 if side == "en" else n for n in range(30_000))  # targets occur twice
        lines = (f"line {n} of {side} with some more words in it\n" for n in numbers)
        (tmp_path / f"train.{side}").write_text("".join(lines))
    return DataConfig(
        source=(str(tmp_path / "train.ko"),),
        target=(str(tmp_path / "train.en"),),
        text=(str(tmp_path / "train.en"),),
    )


def peak_of(function):
    tracemalloc.start()
    result = function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return result, peak


@pytest.mark.parametrize("kind", ["pairs", "plain"])
def test_reading_into_a_spool_needs_little_memory(kind, corpus):
    reads = {
        "pairs": lambda: load_parallel(corpus, 1, LineSpool(2)),
        "plain": lambda: load_plain(corpus, LineSpool(1), 500),
    }
    reads[kind]()  # the first time, models of languages are loaded
    read, peak = peak_of(reads[kind])
    lines = [corpus.source, corpus.target] if kind == "pairs" else [corpus.text]
    files = [Path(name).read_text().splitlines() for (name,) in lines]
    held_out = set(read.valid)
    assert list(zip(*read.train.columns, strict=True)) == [
        row for row in zip(*files, strict=True) if row not in held_out
    ]
    assert len(read.train) + len(read.valid) == 30_000
    assert peak < 5_000_000  # as lists it is 15 MB and more


def test_a_spool_leaves_no_file(tmp_path):
    spool = LineSpool(2, tmp_path)
    spool.write([("a", "b")])
    assert list(tmp_path.iterdir()) == []
    assert list(spool.column(1)) == ["b"]
