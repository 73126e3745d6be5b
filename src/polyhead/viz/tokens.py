"""Tokens with their words, as they are shown to users."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from polyhead.special_tokens import EOS, SPECIALS
from polyhead.tokenizers.base import Piece, Tokenizer
from polyhead.tokenizers.normalize import words_of


@dataclass(frozen=True)
class Token:
    """A piece of text as the model reads or writes it.

    text: without surrounding spaces; empty for a part of a character.
    word: number of the word that it is a part of; a special token is a word of its own.
    special: True for <s>, </s> and the like.
    id: its number in the vocabulary, if known.
    """

    text: str
    word: int
    special: bool = False
    id: int | None = field(default=None, compare=False)


def to_tokens(
    pieces: Sequence[Piece],
    *,
    before: int | None = None,
    after: int | None = None,
    first_word: int = 0,
    newline: str = "↵",
) -> list[Token]:
    """Convert a tokenizer's pieces, between the special tokens with the ids `before` and `after`.

    Words are numbered from `first_word`; `newline` is the text shown for a line break.
    """
    tokens = []
    if before is not None:
        tokens.append(Token(SPECIALS[before], first_word, special=True, id=before))
        first_word += 1
    words = words_of(pieces)
    for piece, word in zip(pieces, words, strict=True):
        text = piece.text.strip(" ").replace("\n", newline)
        tokens.append(Token(text, word - words[0] + first_word, id=piece.id))
    if after is not None:
        word = tokens[-1].word + 1 if tokens else first_word
        tokens.append(Token(SPECIALS[after], word, special=True, id=after))
    return tokens


def read_tokens(tokenizer: Tokenizer, text: str) -> list[Token]:
    """Return the tokens of an input text, with the final EOS."""
    return to_tokens(tokenizer.pieces(tokenizer.normalise(text)), after=EOS, newline="\n")


def written_tokens(tokenizer: Tokenizer, ids: Sequence[int], *, newline: str = "\n") -> list[Token]:
    """Return the tokens of an output; an EOS within it ends a line."""
    tokens: list[Token] = []
    for is_end, group in groupby(ids, key=lambda id: id == EOS):
        first_word = tokens[-1].word + 1 if tokens else 0
        if is_end:
            ends = enumerate(group)
            tokens += [Token(SPECIALS[EOS], first_word + n, True, id) for n, id in ends]
        else:
            pieces = tokenizer.pieces_of_ids(list(group))
            tokens += to_tokens(pieces, first_word=first_word, newline=newline)
    return tokens
