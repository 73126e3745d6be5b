"""Tokens as they are shown: what a model read or wrote, piece by piece, with ids and words."""

from collections.abc import Sequence
from dataclasses import dataclass

from polyhead.tokenizers.storage import EOS, SPECIALS, Piece, Tokenizer, words_of


@dataclass(frozen=True)
class ShownToken:
    """One piece of text; `word` is the number of the word that it is a part of."""

    id: int
    text: str
    word: int
    special: bool = False


def read_tokens(tokenizer: Tokenizer, text: str, *, closed: bool = True) -> list[ShownToken]:
    """The tokens of a text as it is read, with the closing EOS if there is one."""
    tokens = _shown(tokenizer.pieces(tokenizer.normalise(text)))
    if closed:
        word = tokens[-1].word + 1 if tokens else 0
        tokens.append(ShownToken(EOS, SPECIALS[EOS], word, special=True))
    return tokens


def written_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[ShownToken]:
    """The tokens of an output, line by line if EOS ends lines."""
    tokens: list[ShownToken] = []
    line: list[int] = []
    for id in [*ids, EOS]:
        if id != EOS:
            line.append(id)
            continue
        first = tokens[-1].word + 1 if tokens else 0
        tokens += _shown(tokenizer.pieces_of_ids(line), first)
        if len(tokens) < len(ids):
            word = tokens[-1].word + 1 if tokens else 0
            tokens.append(ShownToken(EOS, SPECIALS[EOS], word, special=True))
        line = []
    return tokens


def _shown(pieces: Sequence[Piece], first: int = 0) -> list[ShownToken]:
    words = words_of(pieces)
    start = words[0] if words else 0
    return [
        ShownToken(piece.id, piece.text.strip(" "), word - start + first)
        for piece, word in zip(pieces, words, strict=True)
    ]
