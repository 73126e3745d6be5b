"""Characters, words and Hangul letters as units."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhead.special_tokens import EOS, UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.char_word import CharWordTokenizer, build_vocab
from polyhead.tokenizers.storage import load_tokenizers, save_tokenizers, train_tokenizers

CORPUS = ["b a b", "c a b", "한 b"]


def test_frequent_words_have_the_first_ids():
    words = build_vocab(CORPUS, TextConfig(kind="words"))
    assert words.units == ("b", "a", "c", "한")
    assert words.encode("a b c d") == [5, 4, 6, UNK, EOS]
    assert build_vocab(["z y x"], TextConfig(kind="words")).units == ("x", "y", "z")


def test_characters_include_the_space():
    characters = build_vocab(CORPUS, TextConfig(kind="characters"))
    assert characters.units == (" ", "b", "a", "c", "한")
    assert characters.encode("a  b") == [6, 4, 5, EOS]
    assert characters.symbol(4) == "▁"


def test_units_beyond_the_vocabulary_are_unknown():
    words = build_vocab(CORPUS, TextConfig(kind="words", vocab=6))
    assert len(words) == 6
    assert words.encode("a b c") == [5, 4, UNK, EOS]
    assert words.decode(words.encode("a c b")) == "a ⁇ b"
    assert [piece.text for piece in words.pieces("a c b")] == ["a", " c", " b"]


def test_an_overlong_word_has_no_id():
    words = build_vocab(["a " + "b" * 1001], TextConfig(kind="words"))
    assert words.units == ("a",)


@pytest.mark.parametrize(
    ("kind", "units", "message"),
    [
        ("words", ("a", "b", "a"), "twice"),
        ("words", ("a b",), "'a b' cannot be one of the words of a text"),
        ("words", ("",), "'' cannot be one of the words"),
        ("words", ("e\u0301",), "cannot be one of the words"),
        ("words", ("x" * 5000,), "'xxxxxxxxxxxxxxxxxxxx' cannot be one"),
        ("characters", ("ab",), "'ab' cannot be one of the characters of a text"),
        ("characters", ("\n",), "cannot be one of the characters"),
        ("characters", ("\ud800",), "cannot be one of the characters"),
    ],
)
def test_impossible_units_are_errors(kind, units, message):
    with pytest.raises(ValueError, match=message):
        CharWordTokenizer(units, TextConfig(kind=kind))


JAMO = TextConfig("words", vocab=200, joint=False, jamo=True)
hangul = st.text(st.characters(min_codepoint=ord("가"), max_codepoint=ord("힣")), min_size=1)


@given(hangul)
def test_jamo_match_the_unicode_decomposition(word):
    tokenizer = build_vocab([word], JAMO)
    assert "".join(piece.text.strip() for piece in tokenizer.pieces(word)) == unicodedata.normalize(
        "NFD", word
    )
    assert tokenizer.normalise(tokenizer.normalise(word)) == tokenizer.normalise(word)
    assert tokenizer.decode(tokenizer.encode(word)) == tokenizer.normalise(word)


def test_unseen_syllables_consist_of_known_letters():
    tokenizer = build_vocab(["가", "난"], JAMO)
    assert UNK not in tokenizer.encode("간")
    assert UNK in tokenizer.encode("곤")


def test_single_letters_are_kept():
    assert build_vocab(["가"], JAMO).normalise("ㄱㄴ 순") == "ㄱ ㄴ ᄉ ᅮ ᆫ"


def test_phonemes_are_kept(tmp_path):
    pair = train_tokenizers(["각"], ["k a̠ k̚"], JAMO)
    save_tokenizers(pair, tmp_path)
    again = load_tokenizers(tmp_path)
    assert again.target.decode(again.target.encode("k a̠ k̚")) == "k a̠ k̚"
    assert again.source.encode("각") == pair.source.encode("각")
    assert len(again.source.encode("각")) == 4  # three letters and the end


def test_jamo_is_off_in_older_files(tmp_path):
    config = TextConfig("words", vocab=50)
    save_tokenizers(train_tokenizers(CORPUS, [], config), tmp_path)
    index = json.loads((tmp_path / "tokenizer.json").read_text())
    del index["config"]["jamo"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(index))
    assert load_tokenizers(tmp_path).config == config
