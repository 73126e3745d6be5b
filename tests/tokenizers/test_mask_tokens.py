"""Blanks in a text: one id each, and the words around them cut as they always are."""

import pytest

from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, MASK, UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.mask_tokens import candidates, encode_blanks, word_of
from polyhead.tokenizers.storage import train_tokenizers

LINES = [
    "서울은 대한민국의 수도이다", "부산은 대한민국의 도시이다", "수도는 서울이다", "도시는 크다",
    "the city is large", "a large city",
] * 8  # fmt: skip


def made(kind="bpe", **options):
    vocab = {"bpe": 420, "unigram": 330, "words": 60, "characters": 60}[kind]
    if kind in ("bpe", "unigram") and not options.get("byte_fallback", True):
        vocab = 90 if kind == "unigram" else 140
    return train_tokenizers(LINES, (), TextConfig(kind=kind, vocab=vocab, **options)).source


@pytest.mark.parametrize("options", [{}, {"byte_fallback": False}])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_blank_stands_exactly_where_the_piece_stood(kind, options):
    """Take out a piece that is a whole word; all the other ids must be those of the full text."""
    tokenizer = made(kind, **options)
    for text in ("서울은 대한민국의 도시이다", "the city is large", "수도는 서울이다"):
        pieces = tokenizer.pieces(text)
        for number, piece in enumerate(pieces):
            lone_space = number and tokenizer.symbol(pieces[number - 1].id) == "▁"
            if not piece.text.strip() or lone_space:
                continue
            start = piece.start + piece.text.startswith(" ")
            blanked = encode_blanks(tokenizer, text[:start] + MASK + text[piece.end :], 999)
            assert len(blanked.places) == 1
            begins = piece.text.startswith(" ") or piece.start == 0
            assert blanked.begins == [begins]
            (place,) = blanked.places
            assert blanked.ids[0] == BOS
            assert blanked.ids[-1] == EOS
            assert blanked.ids.count(999) == 1
            assert blanked.ids[place] == 999
            before = tokenizer.decode(blanked.ids[:place])
            assert before == text[:start].rstrip()
            if tokenizer.encode(text[:start])[:-1] == [p.id for p in pieces[:number]]:
                assert blanked.ids[1:place] == [p.id for p in pieces[:number]]
            word = word_of(tokenizer, piece.id)
            assert text[:start] + word + text[piece.end :] == text


def test_after_a_blank_without_a_space_no_word_begins():
    tokenizer = made()
    glued = encode_blanks(tokenizer, f"대한민국의 {MASK}이다", 999)
    apart = encode_blanks(tokenizer, f"대한민국의 {MASK} 이다", 999)
    after = [[tokenizer.symbol(i) for i in b.ids[b.places[0] + 1 : -1]] for b in (glued, apart)]
    assert not after[0][0].startswith("▁")
    assert after[1][0].startswith("▁")
    assert "".join(after[0]) == "이다"
    assert "".join(after[1]) == "▁이다"


def test_blanks_side_by_side_are_several_and_only_the_first_begins():
    for options in ({}, {"byte_fallback": False}):
        blanked = encode_blanks(made(**options), f"서울은 {MASK}{MASK} {MASK}", 999)
        assert blanked.begins == [True, False, True]
        assert [blanked.ids[i] for i in blanked.places] == [999] * 3


def test_unknown_characters_beside_a_blank_stay_unknown():
    blanked = encode_blanks(made(byte_fallback=False), f"서울은 {MASK}☃", 999)
    assert blanked.ids[blanked.places[0] : -1] == [999, UNK]
    assert 999 not in blanked.ids[: blanked.places[0]]


def test_candidates_begin_words_or_do_not():
    tokenizer = made()
    for begins in (True, False):
        ids = candidates(tokenizer, begins)
        assert ids
        for id in ids:
            assert tokenizer.symbol(id).startswith("▁") == begins
            assert word_of(tokenizer, id).strip()
            assert not tokenizer.symbol(id).startswith("<0x")


def test_characters_and_words_have_blanks_too():
    characters = made("characters")
    blanked = encode_blanks(characters, f"서{MASK}은 크다", 999)
    assert blanked.ids == [BOS, *characters.encode("서")[:-1], 999, *characters.encode("은 크다")]
    words = made("words")
    blanked = encode_blanks(words, f"서울은 {MASK} 수도이다", 999)
    assert blanked.ids == [BOS, *words.encode("서울은")[:-1], 999, *words.encode("수도이다")]
    with pytest.raises(DataError, match="knows whole words"):
        encode_blanks(words, f"{MASK}이다", 999)


def test_a_text_without_a_blank_is_an_error_that_repeats_it():
    with pytest.raises(DataError, match=r"'서울은 크다': nothing to fill in; write \[MASK\]"):
        encode_blanks(made(), "서울은 크다", 999)
