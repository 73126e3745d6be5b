import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polyhead.tokenizers.base import Piece
from polyhead.tokenizers.normalize import normalise, printable, tile, words_of

ANYTHING = st.text(st.characters(codec=None, exclude_categories=()))  # surrogates included


@given(ANYTHING, st.booleans())
@example("İ\u0307Σ ΑΣ", True)
@example("H\u0331", True)  # only the small letter has a composed form
def test_normalisation_is_idempotent(text, lowercase):
    once = normalise(text, lowercase=lowercase)
    assert normalise(once, lowercase=lowercase) == once


@given(ANYTHING)
def test_normalised_text_is_one_clean_line_of_nfc(text):
    normal = normalise(text)
    normal.encode("utf-8")
    assert unicodedata.is_normalized("NFC", normal)
    assert normal == " ".join(normal.split())
    assert not any(unicodedata.category(character) == "Cc" for character in normal)


@given(st.text(), st.booleans())
def test_decomposed_text_is_normalised_equally(text, lowercase):
    decomposed = unicodedata.normalize("NFD", text)
    assert normalise(decomposed, lowercase=lowercase) == normalise(text, lowercase=lowercase)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1))
def test_other_text_is_only_composed(text):
    kept = "".join(c for c in text if not 0xFDD0 <= ord(c) <= 0xFDEF)
    assert normalise(kept) == unicodedata.normalize("NFC", kept)


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ("  two\twords\r\n", "two words"),
        ("a\u00a0b\u3000c\u2028d\x00e\x85f", "a b c d e f"),
        ("half \ud800 a pair", "half \ufffd a pair"),
        ("\ufdd0\ufdef", "\ufffd\ufffd"),
        ("한국어", "한국어"),
        ("Ａ１ ﬁ ² 👩‍🚀", "Ａ１ ﬁ ² 👩‍🚀"),
        ("\u200b", "\u200b"),
        ("\n \t", ""),
    ],
)
def test_examples(given_, expected):
    assert normalise(unicodedata.normalize("NFD", given_)) == expected
    assert normalise(given_) == expected


def test_case_is_kept_by_default():
    assert normalise("ÉCOLE Straße") == "ÉCOLE Straße"
    assert normalise("ÉCOLE Straße H\u0331", lowercase=True) == "école straße ẖ"


@given(st.lists(st.text("ab \n")))
def test_tiles_are_contiguous_without_extra_spaces(surfaces):
    pieces = tile(list(range(len(surfaces))), surfaces)
    text = "".join(piece.text for piece in pieces)
    assert text == " ".join("".join(surfaces).split())
    assert [piece.id for piece in pieces] == list(range(len(surfaces)))
    assert all(text[piece.start : piece.end] == piece.text for piece in pieces)
    assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces)][:-1]


def test_a_space_alone_belongs_to_the_next_word():
    pieces = [Piece("a", 9, 0, 1), Piece(" ", 8, 1, 2), Piece("", 7, 2, 2), Piece("b", 6, 2, 3)]
    assert words_of(pieces) == [0, 1, 1, 1]


def test_unprintable_characters_are_replaced():
    assert printable("한\u200d\u202ea") == "한<U+200D><U+202E>a"
