"""Normalisation of text before encoding, and offsets of pieces.

    NFD Hangul, decomposed accents     → composed (Unicode's NFC), so that equal text has equal ids
    whitespace, control characters     → one space; none at either end
    surrogates, noncharacters          → U+FFFD, since they cannot be written to a file
    everything else                    → itself, full-width letters and emoji included

No character is dropped silently, and normalisation is idempotent.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from polyhead.special_tokens import EOS
from polyhead.tokenizers.base import Piece

SPACES = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
NOT_TEXT = re.compile("[\ud800-\udfff\ufdd0-\ufdef]")  # U+FDD0 … are used by sentencepiece.py


def normalise(text: str, *, lowercase: bool = False) -> str:
    """Return the form of a text in which it is encoded and compared."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    if lowercase:
        text = unicodedata.normalize("NFC", text.lower())
    return tidy(text).strip(" ")


def tidy(text: str) -> str:
    """Replace white space and control characters by single spaces, others by U+FFFD."""
    if text.isprintable() and "  " not in text:  # most texts: neither has anything to replace
        return text
    return SPACES.sub(" ", NOT_TEXT.sub("\ufffd", text))


def tile(ids: Sequence[int], surfaces: Iterable[str]) -> list[Piece]:
    """Concatenate pieces with offsets, without spaces at the ends or after a space."""
    texts = []
    after_space = True
    for surface in surfaces:
        text = tidy(surface)
        if after_space:
            text = text.removeprefix(" ")
        if text:
            after_space = text.endswith(" ")
        texts.append(text)
    for place in reversed(range(len(texts))):
        if texts[place]:
            texts[place] = texts[place].removesuffix(" ")
            break
    pieces = []
    start = 0
    for id, text in zip(ids, texts, strict=True):
        pieces.append(Piece(text, id, start, start + len(text)))
        start += len(text)
    return pieces


def before_end(ids: Iterable[int], size: int) -> list[int]:
    """Return the ids before the first EOS, each checked to be below `size`."""
    written = list(ids)
    if EOS in written:
        del written[written.index(EOS) :]
    if written:
        checked(min(written), size)
        checked(max(written), size)
    return written


def checked(id: int, size: int) -> int:
    """Return the id if it exists (a negative index would be the last one)."""
    if not 0 <= id < size:
        raise ValueError(f"id {id}: this tokenizer has ids 0 to {size - 1}")
    return id


def words_of(pieces: Iterable[Piece]) -> list[int]:
    """Return the number of each piece's word, 0, 0, 1, 2, 2; a space belongs to the next word."""
    words = []
    word = 0
    for piece in pieces:
        word += piece.text.count(" ") + piece.text.count("\n")
        words.append(word)
    return words


def printable(text: str) -> str:
    """Replace unprintable characters by their code points."""
    return "".join(c if c.isprintable() else f"<U+{ord(c):04X}>" for c in text)
