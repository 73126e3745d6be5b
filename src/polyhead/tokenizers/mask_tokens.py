"""A text with blanks as ids: "서울은 대한민국의 [MASK]이다", cut as if a piece stood in each blank.

Pieces that begin a word hold the space before it. So the text is not cut apart at the blanks: each
is replaced by one character that the vocabulary lacks, the whole is cut, and what that character
became is one [MASK]. The words around keep their natural pieces:

    ▁서울 은 ▁대한민국 의 [MASK] 이다         a space before the blank is the blank's own
    ▁서울 은 ▁대한 [MASK] 의                  no space: the blank goes on with a word

Whether a blank begins a word is lost in the ids, so it is told beside them.
"""

from typing import NamedTuple

from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, MASK, SPECIALS, UNK
from polyhead.tokenizers.base import Piece, Tokenizer
from polyhead.tokenizers.char_word import UnitTokenizer
from polyhead.tokenizers.sentencepiece import PieceTokenizer

PRIVATE = range(0xE000, 0xF900)  # characters that Unicode leaves without a meaning
SHOWN = 40  # characters of a text that a message repeats


class Blanked(NamedTuple):
    """BOS, the text, EOS. `places` says where in `ids` the blanks are, from left to right."""

    ids: list[int]
    places: list[int]
    begins: list[bool]  # whether each blank begins a word


def encode_blanks(tokenizer: Tokenizer, text: str, mask: int) -> Blanked:
    """The ids of a text, with the id `mask` for every [MASK] in it."""
    if MASK not in text:
        raise DataError(
            f"{text[:SHOWN]!r}: nothing to fill in; write {MASK} where a word is missing"
        )
    if not isinstance(tokenizer, PieceTokenizer | UnitTokenizer):
        return _joined(tokenizer, text, mask)
    stand_in = unknown_character(tokenizer, text)
    in_words = isinstance(tokenizer, UnitTokenizer) and tokenizer.config.kind == "words"
    found = Blanked([BOS], [], [])
    waiting: list[Piece] = []  # lone spaces, and bytes that are no character yet
    for piece in tokenizer.pieces(text.replace(MASK, stand_in)):
        if isinstance(tokenizer, PieceTokenizer) and not piece.text.strip(" "):
            waiting.append(piece)
            continue
        if stand_in not in piece.text:
            found.ids.extend([*(one.id for one in waiting), piece.id])
        else:
            if in_words and piece.text.strip(" ") != stand_in:
                raise DataError(f"{text[:SHOWN]!r}: the model knows whole words; set {MASK} apart")
            spaced = any(one.text for one in waiting) or piece.text.startswith(" ")
            _put(found, piece.text.strip(" "), stand_in, mask, spaced or len(found.ids) == 1)
        waiting = []
    found.ids.extend([*(one.id for one in waiting), EOS])
    return found


def _put(found: Blanked, text: str, stand_in: str, mask: int, begins: bool) -> None:
    """Add a piece that holds blanks; other unknown characters may have come into it."""
    for character in text:
        if character == stand_in:
            found.places.append(len(found.ids))
            found.begins.append(begins)
        if character == stand_in or found.ids[-1] != UNK:
            found.ids.append(mask if character == stand_in else UNK)
        begins = False


def _joined(tokenizer: Tokenizer, text: str, mask: int) -> Blanked:
    """Pieces of somebody else's making: what stands between the blanks, each cut by itself."""
    found = Blanked([BOS], [], [])
    for number, part in enumerate(text.split(MASK)):
        if number:
            found.places.append(len(found.ids))
            found.begins.append(True)
            found.ids.append(mask)
        found.ids.extend(tokenizer.encode(part)[:-1] if part.strip() else [])
    found.ids.append(EOS)
    return found


def unknown_character(tokenizer: PieceTokenizer | UnitTokenizer, text: str) -> str:
    """A character that stands neither in the text nor in any piece of the vocabulary."""
    known = {*text, *"".join(tokenizer.texts)}
    free = next((chr(code) for code in PRIVATE if chr(code) not in known), None)
    if free is None:
        raise DataError("the text has every character that Unicode leaves without a meaning")
    return free


def candidates(tokenizer: Tokenizer, begins: bool) -> list[int]:
    """The ids that may fill a blank: no special ones, no single bytes.

    In pieces of words, only those with a space before them can begin a word, and no others.
    """
    ids = range(len(SPECIALS), len(tokenizer))
    if not isinstance(tokenizer, PieceTokenizer):
        return list(ids)
    texts = tokenizer.texts
    return [
        id
        for id in ids
        if id not in tokenizer.bytes
        and texts[id].strip(" ")
        and texts[id].startswith(" ") == begins
    ]


def word_of(tokenizer: Tokenizer, id: int) -> str:
    """What an id writes into a blank: the space before a word is there already."""
    if not isinstance(tokenizer, PieceTokenizer | UnitTokenizer):
        return tokenizer.decode([id]).removeprefix("##").strip()
    text = tokenizer.texts[id]
    return text if tokenizer.config.kind == "characters" else text.removeprefix(" ")
