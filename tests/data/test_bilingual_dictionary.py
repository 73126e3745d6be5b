"""Dictionaries: IBM Model 1 against a computation by hand, and their files."""

from expected_errors import raises

from polyhead.data.bilingual_dictionary import learn_dictionary, read_dictionary, write_dictionary
from polyhead.errors import DataError

SOURCES = ["das haus", "das buch", "ein buch", "das kleine haus", "ein haus"]
TARGETS = ["the house", "the book", "a book", "the small house", "a house"]


def test_words_that_occur_together_are_translations():
    assert learn_dictionary(SOURCES * 3, TARGETS * 3, rounds=20) == {
        "das": "the", "haus": "house", "buch": "book", "ein": "a", "kleine": "small"
    }  # fmt: skip


def test_one_round_by_hand():
    """With the empty word, each of n source words explains 1 / (n + 1) of a target word."""
    of_haus = {"the": 1 / 3 + 1 / 4, "house": 1 / 3 + 1 / 4 + 1 / 3, "small": 1 / 4, "a": 1 / 3}
    assert of_haus["house"] / sum(of_haus.values()) > 0.3  # the minimum
    of_das = {"the": 1 / 3 + 1 / 3 + 1 / 4, "house": 1 / 3 + 1 / 4, "book": 1 / 3, "small": 1 / 4}
    assert of_das["the"] / sum(of_das.values()) > 0.3
    dictionary = learn_dictionary(SOURCES, TARGETS, rounds=1)
    assert (dictionary["haus"], dictionary["das"]) == ("house", "the")


def test_improbable_translations_are_left_out():
    words = [f"w{i}" for i in range(6)]
    assert learn_dictionary([" ".join(words)], [" ".join(reversed(words))]) == {}
    assert learn_dictionary([], []) == {}
    assert learn_dictionary([""], [""]) == {}


def test_a_written_dictionary_is_read_back(tmp_path):
    entries = {"haus": "house", "büro": "office", "a": "b c"}
    write_dictionary(entries, tmp_path / "d.tsv")
    assert read_dictionary(tmp_path / "d.tsv") == entries


def test_unusable_files_are_errors(tmp_path):
    (tmp_path / "d.tsv").write_text("haus\thouse\n\nbuch\n", encoding="utf-8")
    with raises(DataError, "bad_line", ":3", "'buch'"):
        read_dictionary(tmp_path / "d.tsv")
    with raises(DataError, "cannot_read"):
        read_dictionary(tmp_path / "none.tsv")
