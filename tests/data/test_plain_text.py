"""Plain text: all lines in their order, and the end held out if nothing else is given."""

import gzip

import pytest

from polyhead.data.config import DataConfig, load_plain
from polyhead.data.plain_text import read_plain
from polyhead.errors import ConfigError, DataError


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_last_tenth_is_held_out(tmp_path):
    path = write(tmp_path / "a.txt", "".join(f"{n}\n" for n in range(25)))
    found = read_plain([path], [])
    assert found.train == [str(n) for n in range(23)]
    assert found.valid == ["23", "24"]
    assert found.notices == (
        "no validation file given: the last 2 of 25 lines are held out for validation and not "
        "trained on",
    )


def test_files_are_joined_and_a_validation_file_is_taken(tmp_path):
    one = write(tmp_path / "a.txt", "가\n\n나")
    other = tmp_path / "b.txt.gz"
    other.write_bytes(gzip.compress("다\r\n".encode()))
    valid = write(tmp_path / "v.txt", "라\n")
    found = read_plain([one, other], [valid])
    assert (found.train, found.valid, found.notices) == (["가", "", "나", "다"], ["라"], ())


def test_bad_lines_are_left_out_and_told_or_refused(tmp_path):
    path = write(tmp_path / "a.txt", b"one\n\xff\xfe\ntwo\nthree\nfour\n")
    found = read_plain([path], [path])
    assert found.train == ["one", "two", "three", "four"]
    assert found.notices[0].startswith(f"1 bad line skipped: {path}:2: ")
    with pytest.raises(DataError, match=r"a\.txt:2: .*; correct or remove the line"):
        read_plain([path], [path], on_bad_line="fail")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n", "holds no text"),
        ("one\n", "1 lines are not enough to train on and to hold some out"),
        ("one\n\n", "2 lines are not enough to train on and to hold some out"),
    ],
)
def test_too_little_text_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_plain([write(tmp_path / "a.txt", text)], [])


def test_a_file_without_one_good_line_says_what_is_wrong_with_the_first(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("x" * 1_000_001)
    with pytest.raises(DataError) as caught:
        read_plain([path], [])
    assert str(caught.value) == (
        f"{path} holds no text ({path}:1: longer than 1,000,000 bytes (1,000,001))"
    )


def test_a_configuration_without_text_says_which_option_is_missing():
    with pytest.raises(ConfigError, match=r"data\.text: give at least one file .* --text FILE"):
        load_plain(DataConfig())


def test_the_embedded_corpus_is_made_when_it_is_wanted(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("POLYHEAD_DATA", raising=False)
    config = DataConfig(
        corpus="schedules", text=("schedules/train.ko",), valid_text=("schedules/valid.ko",)
    )
    found = load_plain(config)
    assert (len(found.train), len(found.valid)) == (12_000, 500)
    assert not set(found.train) & set(found.valid)
