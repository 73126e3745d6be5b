"""A dictionary out of sentence pairs: Model 1 by hand, and files that come back as they were."""

import pytest

from polyhead.data.bilingual_dictionary import learn_dictionary, read_dictionary, write_dictionary
from polyhead.errors import DataError

SOURCES = ["das haus", "das buch", "ein buch", "das kleine haus", "ein haus"]
TARGETS = ["the house", "the book", "a book", "the small house", "a house"]


def test_words_that_come_together_translate_each_other():
    found = learn_dictionary(SOURCES * 3, TARGETS * 3, rounds=20)
    assert found == {"das": "the", "haus": "house", "buch": "book", "ein": "a", "kleine": "small"}


def test_one_round_by_hand():
    """The empty word stands in every sentence: one of n words explains each place by n + 1."""
    of_haus = {"the": 1 / 3 + 1 / 4, "house": 1 / 3 + 1 / 4 + 1 / 3, "small": 1 / 4, "a": 1 / 3}
    assert of_haus["house"] / sum(of_haus.values()) > 0.3  # sure enough to be written down
    of_das = {"the": 1 / 3 + 1 / 3 + 1 / 4, "house": 1 / 3 + 1 / 4, "book": 1 / 3, "small": 1 / 4}
    assert of_das["the"] / sum(of_das.values()) > 0.3
    found = learn_dictionary(SOURCES, TARGETS, rounds=1)
    assert (found["haus"], found["das"]) == ("house", "the")


def test_what_is_unsure_is_left_out():
    words = [f"w{i}" for i in range(6)]
    assert learn_dictionary([" ".join(words)], [" ".join(reversed(words))]) == {}
    assert learn_dictionary([], []) == {}
    assert learn_dictionary([""], [""]) == {}


def test_a_file_comes_back_as_it_was(tmp_path):
    entries = {"haus": "house", "büro": "office", "a": "b c"}
    write_dictionary(entries, tmp_path / "d.tsv")
    assert read_dictionary(tmp_path / "d.tsv") == entries


def test_a_line_without_two_words_is_an_error_that_says_which(tmp_path):
    (tmp_path / "d.tsv").write_text("haus\thouse\n\nbuch\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 3: 'buch' is no entry; expected a source word, a t"):
        read_dictionary(tmp_path / "d.tsv")
    with pytest.raises(DataError, match="cannot be read"):
        read_dictionary(tmp_path / "none.tsv")
