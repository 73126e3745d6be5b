"""Hangul letter by letter, for lists of words."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyhead.special_tokens import UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.char_word import collect_units
from polyhead.tokenizers.storage import check_config, load, save, train_tokenizers

CONFIG = TextConfig("words", vocab=200, joint=False, jamo=True)
hangul = st.text(st.characters(min_codepoint=ord("가"), max_codepoint=ord("힣")), min_size=1)


@given(hangul)
def test_letters_are_those_of_unicodes_decomposition(word):
    tokenizer = collect_units([word], CONFIG)
    assert "".join(piece.text.strip() for piece in tokenizer.pieces(word)) == unicodedata.normalize(
        "NFD", word
    )
    assert tokenizer.normalise(tokenizer.normalise(word)) == tokenizer.normalise(word)
    assert tokenizer.decode(tokenizer.encode(word)) == tokenizer.normalise(word)


def test_an_unseen_syllable_is_made_of_seen_letters():
    tokenizer = collect_units(["가", "난"], CONFIG)
    assert UNK not in tokenizer.encode("간")
    assert UNK in tokenizer.encode("곤")


def test_letters_that_stand_alone_are_letters_too():
    assert collect_units(["가"], CONFIG).normalise("ㄱㄴ 순") == "ㄱ ㄴ ᄉ ᅮ ᆫ"


def test_phonemes_are_left_as_they_are(tmp_path):
    two = train_tokenizers(["각"], ["k a̠ k̚"], CONFIG)
    save(two, tmp_path)
    again = load(tmp_path)
    assert again.target.decode(again.target.encode("k a̠ k̚")) == "k a̠ k̚"
    assert again.source.encode("각") == two.source.encode("각")
    assert len(again.source.encode("각")) == 4  # three letters and the end


def test_a_tokenizer_of_an_earlier_version_has_none():
    before = {
        "kind": "words", "vocab": 50, "joint": True, "lowercase": False, "sampling": 0.0,
        "character_coverage": 1.0, "byte_fallback": True,
    }  # fmt: skip
    assert check_config(before) == TextConfig("words", vocab=50)


def test_letters_need_words():
    with pytest.raises(ValueError, match='kind must be "words", not bpe'):
        TextConfig(jamo=True)
