"""Masks in a text: one id each, with unchanged ids around them."""

import pytest
from expected_errors import raises

from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, MASK, UNK
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.mask_tokens import PRIVATE_USE, candidates, encode_masked, word_of
from polyhead.tokenizers.storage import train_tokenizers

LINES = [
    "서울은 대한민국의 수도이다", "부산은 대한민국의 도시이다", "수도는 서울이다", "도시는 크다",
    "the city is large", "a large city",
] * 8  # fmt: skip


def trained(kind="bpe", **options):
    vocab = {"bpe": 420, "unigram": 330, "words": 60, "characters": 60}[kind]
    if kind in ("bpe", "unigram") and not options.get("byte_fallback", True):
        vocab = 90 if kind == "unigram" else 140
    return train_tokenizers(LINES, (), TextConfig(kind=kind, vocab=vocab, **options)).source


@pytest.mark.parametrize("options", [{}, {"byte_fallback": False}])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_mask_replaces_exactly_one_piece(kind, options):
    tokenizer = trained(kind, **options)
    for text in ("서울은 대한민국의 도시이다", "the city is large", "수도는 서울이다"):
        pieces = tokenizer.pieces(text)
        for number, piece in enumerate(pieces):
            lone_space = number and tokenizer.symbol(pieces[number - 1].id) == "▁"
            if not piece.text.strip() or lone_space:
                continue
            start = piece.start + piece.text.startswith(" ")
            masked = encode_masked(tokenizer, text[:start] + MASK + text[piece.end :], 999)
            assert len(masked.places) == 1
            begins = piece.text.startswith(" ") or piece.start == 0
            assert masked.begins == [begins]
            (place,) = masked.places
            assert masked.ids[0] == BOS
            assert masked.ids[-1] == EOS
            assert masked.ids.count(999) == 1
            assert masked.ids[place] == 999
            before = tokenizer.decode(masked.ids[:place])
            assert before == text[:start].rstrip()
            if tokenizer.encode(text[:start])[:-1] == [p.id for p in pieces[:number]]:
                assert masked.ids[1:place] == [p.id for p in pieces[:number]]
            word = word_of(tokenizer, piece.id)
            assert text[:start] + word + text[piece.end :] == text


def test_text_after_a_mask_without_space_continues_the_word():
    tokenizer = trained()
    glued = encode_masked(tokenizer, f"대한민국의 {MASK}이다", 999)
    apart = encode_masked(tokenizer, f"대한민국의 {MASK} 이다", 999)
    after = [[tokenizer.symbol(i) for i in b.ids[b.places[0] + 1 : -1]] for b in (glued, apart)]
    assert not after[0][0].startswith("▁")
    assert after[1][0].startswith("▁")
    assert "".join(after[0]) == "이다"
    assert "".join(after[1]) == "▁이다"


def test_only_the_first_of_adjacent_masks_starts_a_word():
    for options in ({}, {"byte_fallback": False}):
        masked = encode_masked(trained(**options), f"서울은 {MASK}{MASK} {MASK}", 999)
        assert masked.begins == [True, False, True]
        assert [masked.ids[i] for i in masked.places] == [999] * 3


def test_unknown_characters_beside_a_mask_stay_unknown():
    masked = encode_masked(trained(byte_fallback=False), f"서울은 {MASK}☃", 999)
    assert masked.ids[masked.places[0] : -1] == [999, UNK]
    assert 999 not in masked.ids[: masked.places[0]]


def test_candidates_start_words_or_continue_them():
    tokenizer = trained()
    for begins in (True, False):
        ids = candidates(tokenizer, begins)
        assert ids
        for id in ids:
            assert tokenizer.symbol(id).startswith("▁") == begins
            assert word_of(tokenizer, id).strip()
            assert not tokenizer.symbol(id).startswith("<0x")


def test_characters_and_words_can_be_masked():
    characters = trained("characters")
    masked = encode_masked(characters, f"서{MASK}은 크다", 999)
    assert masked.ids == [BOS, *characters.encode("서")[:-1], 999, *characters.encode("은 크다")]
    words = trained("words")
    masked = encode_masked(words, f"서울은 {MASK} 수도이다", 999)
    assert masked.ids == [BOS, *words.encode("서울은")[:-1], 999, *words.encode("수도이다")]
    with raises(DataError, "mask_in_word"):
        encode_masked(words, f"{MASK}이다", 999)


def test_a_text_without_a_mask_is_an_error():
    with raises(DataError, "no_mask", "서울은 크다"):
        encode_masked(trained(), "서울은 크다", 999)
    with raises(DataError, "no_free_character"):
        encode_masked(trained(), MASK + "".join(map(chr, PRIVATE_USE)), 999)
