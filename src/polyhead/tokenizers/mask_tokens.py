"""Encoding of texts with [MASK], such as "서울은 대한민국의 [MASK]이다".

Pieces that start a word contain the space before it. So the text is not split at the masks: each is
replaced by one character that the vocabulary lacks, and its pieces become [MASK]:

    ▁서울 은 ▁대한민국 의 [MASK] 이다         a space before the mask belongs to the mask
    ▁서울 은 ▁대한 [MASK] 의                  no space: the mask continues a word
"""

from typing import NamedTuple

from polyhead.errors import DataError
from polyhead.special_tokens import BOS, EOS, MASK, SPECIALS, UNK
from polyhead.tokenizers.base import Piece, Tokenizer
from polyhead.tokenizers.char_word import CharWordTokenizer
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer

PRIVATE_USE = range(0xE000, 0xF900)
SHOWN = 40  # characters of a text in a message


class MaskedText(NamedTuple):
    """BOS, the text, EOS; `places` are the positions of the masks in `ids`."""

    ids: list[int]
    places: list[int]
    begins: list[bool]  # whether each mask starts a word


def encode_masked(tokenizer: Tokenizer, text: str, mask: int) -> MaskedText:
    """Encode a text, with the id `mask` for every [MASK] in it."""
    if MASK not in text:
        raise DataError(
            f"{text[:SHOWN]!r}: no {MASK} in the text; write it where a word is missing", "no_mask"
        )
    if not isinstance(tokenizer, SentencePieceTokenizer | CharWordTokenizer):
        return _encode_parts(tokenizer, text, mask)
    known = {*text, *"".join(tokenizer.texts)}
    stand_in = next((chr(code) for code in PRIVATE_USE if chr(code) not in known), None)
    if stand_in is None:
        raise DataError("no unused private-use character left in the text", "no_free_character")
    in_words = isinstance(tokenizer, CharWordTokenizer) and tokenizer.config.kind == "words"
    masked = MaskedText([BOS], [], [])
    waiting: list[Piece] = []  # lone spaces, and bytes of an incomplete character
    for piece in tokenizer.pieces(text.replace(MASK, stand_in)):
        if isinstance(tokenizer, SentencePieceTokenizer) and not piece.text.strip(" "):
            waiting.append(piece)
            continue
        if stand_in not in piece.text:
            masked.ids.extend([*(part.id for part in waiting), piece.id])
        else:
            if in_words and piece.text.strip(" ") != stand_in:
                message = f"{text[:SHOWN]!r}: the model has whole words; put spaces around {MASK}"
                raise DataError(message, "mask_in_word")
            spaced = any(part.text for part in waiting) or piece.text.startswith(" ")
            _put(masked, piece.text.strip(" "), stand_in, mask, spaced or len(masked.ids) == 1)
        waiting = []
    masked.ids.extend([*(part.id for part in waiting), EOS])
    return masked


def _put(masked: MaskedText, text: str, stand_in: str, mask: int, begins: bool) -> None:
    """Append a piece that contains masks, and possibly other unknown characters."""
    for character in text:
        if character == stand_in:
            masked.places.append(len(masked.ids))
            masked.begins.append(begins)
        if character == stand_in or masked.ids[-1] != UNK:
            masked.ids.append(mask if character == stand_in else UNK)
        begins = False


def _encode_parts(tokenizer: Tokenizer, text: str, mask: int) -> MaskedText:
    """Encode each part between the masks separately, for tokenizers of other libraries."""
    masked = MaskedText([BOS], [], [])
    for number, part in enumerate(text.split(MASK)):
        if number:
            masked.places.append(len(masked.ids))
            masked.begins.append(True)
            masked.ids.append(mask)
        masked.ids.extend(tokenizer.encode(part)[:-1] if part.strip() else [])
    masked.ids.append(EOS)
    return masked


def candidates(tokenizer: Tokenizer, begins: bool) -> list[int]:
    """Return the ids that may fill a mask: no special ones, no single bytes."""
    # Of subwords, exactly those with a space before them can start a word.
    ids = range(len(SPECIALS), len(tokenizer))
    if not isinstance(tokenizer, SentencePieceTokenizer):
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
    """Return the text of an id in a mask, without the space before a word."""
    if not isinstance(tokenizer, SentencePieceTokenizer | CharWordTokenizer):
        return tokenizer.decode([id]).removeprefix("##").strip()
    text = tokenizer.texts[id]
    return text if tokenizer.config.kind == "characters" else text.removeprefix(" ")
