import pytest

from polyhead.special_tokens import EOS, UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.char_word import UnitTokenizer, collect_units

CORPUS = ["b a b", "c a b", "한 b"]


def test_the_most_frequent_words_get_the_first_ids():
    words = collect_units(CORPUS, TextConfig(kind="words"))
    assert words.units == ("b", "a", "c", "한")
    assert words.encode("a b c d") == [5, 4, 6, UNK, EOS]


def test_equally_frequent_units_stand_in_the_order_of_their_characters():
    assert collect_units(["z y x"], TextConfig(kind="words")).units == ("x", "y", "z")


def test_characters_include_the_space():
    characters = collect_units(CORPUS, TextConfig(kind="characters"))
    assert characters.units == (" ", "b", "a", "c", "한")
    assert characters.encode("a  b") == [6, 4, 5, EOS]
    assert characters.symbol(4) == "▁"


def test_rare_units_are_unknown_when_there_is_no_room():
    words = collect_units(CORPUS, TextConfig(kind="words", vocab=6))
    assert len(words) == 6
    assert words.encode("a b c") == [5, 4, UNK, EOS]
    assert words.decode(words.encode("a c b")) == "a ⁇ b"
    assert [piece.text for piece in words.pieces("a c b")] == ["a", " c", " b"]


def test_a_special_name_is_a_word_like_any_other():
    words = collect_units(["<s> </s> <s>"], TextConfig(kind="words"))
    assert words.encode("<s> </s>") == [4, 5, EOS]
    assert words.decode([4, 5, EOS]) == "<s> </s>"
    assert len({words.symbol(id) for id in range(len(words))}) == 4  # … and looks like one


def test_a_monstrous_word_gets_no_id():
    words = collect_units(["a " + "b" * 1001], TextConfig(kind="words"))
    assert words.units == ("a",)


@pytest.mark.parametrize(
    ("kind", "units", "message"),
    [
        ("words", ("a", "b", "a"), "a unit stands in the vocabulary twice"),
        ("words", ("a b",), "'a b' cannot be one of the words of a text"),
        ("words", ("",), "'' cannot be one of the words"),
        ("words", ("e\u0301",), "cannot be one of the words"),
        ("words", ("x" * 5000,), "'xxxxxxxxxxxxxxxxxxxx' cannot be one"),
        ("characters", ("ab",), "'ab' cannot be one of the characters of a text"),
        ("characters", ("\n",), "cannot be one of the characters"),
        ("characters", ("\ud800",), "cannot be one of the characters"),
    ],
)
def test_units_that_no_text_can_hold_are_refused(kind, units, message):
    with pytest.raises(ValueError, match=message):
        UnitTokenizer(units, TextConfig(kind=kind))
