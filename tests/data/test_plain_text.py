"""Plain text: all lines in order, and the end held out without a validation file."""

import gzip

import pytest
from expected_errors import raises
from loading import load_texts

from polyhead.data import plain_text
from polyhead.data.config import DataConfig
from polyhead.data.plain_text import load_plain
from polyhead.errors import ConfigError, DataError


def config_of(*texts, valid=(), **options):
    return DataConfig(text=tuple(map(str, texts)), valid_text=tuple(map(str, valid)), **options)


@pytest.mark.parametrize(("most", "n_held_out"), [(None, 2), (1, 1), (9, 2)])
def test_the_last_tenth_is_held_out(write, most, n_held_out):
    path = write("".join(f"{n}\n" for n in range(25)), "a.txt")
    texts, valid, notices = load_texts(load_plain, config_of(path), most=most)
    assert texts + valid == [str(n) for n in range(25)]
    assert len(valid) == n_held_out
    assert f"{n_held_out} of 25 lines" in notices[1]


def test_no_more_characters_are_held_out_than_are_of_use(write, monkeypatch):
    path = write("".join(f"line {n:03}\n" for n in range(50)), "a.txt")
    for most, n_held_out in ((5, 1), (16, 2), (17, 2), (10_000, 5)):
        monkeypatch.setattr(plain_text, "MAX_HELD_OUT", most)
        assert len(load_texts(load_plain, config_of(path))[1]) == n_held_out


def test_files_are_joined_and_a_validation_file_is_used(write):
    first = write("가\n\n나", "a.txt")
    second = write(gzip.compress("다\r\n".encode()), "b.txt.gz")
    valid = write("라\n", "v.txt")
    texts, held_out, notices = load_texts(load_plain, config_of(first, second, valid=[valid]))
    assert (texts, held_out) == (["가", "", "나", "다"], ["라"])
    assert [notice.rpartition(": ")[2] for notice in notices] == ["'가'; '나'", "'라'"]


def test_bad_lines_are_skipped_or_an_error(write):
    path = write(b"one\n\xff\xfe\ntwo\nthree\nfour\n", "a.txt")
    texts, _, notices = load_texts(load_plain, config_of(path, valid=[path]))
    assert texts == ["one", "two", "three", "four"]
    assert notices[0].startswith(f"1 bad line skipped: {path}:2: ")
    with raises(DataError, "bad_line", "a.txt:2"):
        load_texts(load_plain, config_of(path, valid=[path], on_bad_line="fail"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("\n\n", "no_text"),
        ("x" * 1_000_001, "no_text"),
        ("one\n", "too_few_examples"),
        ("one\n\n", "too_few_examples"),
    ],
    ids=["empty lines", "overlong line", "one line", "empty end"],
)
def test_too_little_text_is_an_error(write, text, code):
    path = write(text, "a.txt")
    with raises(DataError, code, "a.txt"):
        load_texts(load_plain, config_of(path))
    with raises(ConfigError, "no_data", "--text"):
        load_texts(load_plain, DataConfig())


def test_a_column_of_a_table_is_read_as_text(write):
    rows = ["id\tdocument\tlabel", "1\t가\t0", "2", "3\t\t1", "4\t나\t1"]
    path = write("\n".join(rows), "ratings_train.txt")
    config = DataConfig(text=(str(path),), valid_text=(str(path),), text_key="document")
    texts, _, notices = load_texts(load_plain, config)
    assert texts == ["가", "", "나"]
    assert ":3: 1 column, expected 2" in notices[0]
    assert "'가'; '나'" in notices[1]
    with raises(DataError, "unknown_column", "'text'", "'document'"):
        load_texts(load_plain, DataConfig(text=(str(path),), text_key="text"))
