"""Words as ids, with the places of their characters: the input of taggers and span extractors.

Words are encoded one by one, so that a word has the same ids in training and in use, and so that
offsets stay exact where normalisation changes the length of another word. Nothing here imports
torch (see `line_encoder`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from polyhead.data.tagged_text import split_words
from polyhead.special_tokens import BOS, EOS, UNK
from polyhead.tokenizers.base import Tokenizer

MAX_KNOWN = 200_000  # words that are kept


class PieceOfWord(NamedTuple):
    """An id, and the characters of a word that it stands for."""

    id: int
    start: int
    end: int


class WordEncoder:
    """Encoder of single words, which keeps those that it has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, tuple[PieceOfWord, ...]] = {}

    def __call__(self, word: str) -> tuple[PieceOfWord, ...]:
        """Return the pieces of a word, at least one; where offsets are unknown, all of it."""
        known = self.known.get(word)  # another thread may clear them
        if known is None:
            if len(self.known) >= MAX_KNOWN:
                self.known.clear()
            n = len(word)
            is_exact = len(self.tokenizer.normalise(word)) == n
            cut = self.tokenizer.pieces(word)
            pieces = [PieceOfWord(p.id, *((p.start, p.end) if is_exact else (0, n))) for p in cut]
            known = self.known[word] = tuple(pieces) or (PieceOfWord(UNK, 0, n),)
        return known


class WordPart(NamedTuple):
    """Words that fit into a text: BOS ids EOS, and the position of the first token of each word."""

    ids: list[int]
    firsts: list[int]


def parts_of_words(encoder: WordEncoder, words: Sequence[str], max_length: int) -> list[WordPart]:
    """Cut a sentence between words into parts of at most `max_length` ids."""
    parts, ids, firsts = list[WordPart](), [BOS], list[int]()
    for word in words:
        pieces = [piece.id for piece in encoder(word)[: max_length - 2]]
        if len(ids) + len(pieces) + 1 > max_length:
            parts.append(WordPart([*ids, EOS], firsts))
            ids, firsts = [BOS], []
        firsts.append(len(ids))
        ids += pieces
    return [*parts, WordPart([*ids, EOS], firsts)]


class Window(NamedTuple):
    """A question and a part of its context: BOS question EOS part EOS.

    first: the position of the first token of the part.
    places: the characters of each token of the part in the context.
    span: the positions of the first and last token of the answer; (0, 0) if it is not inside.
    """

    ids: list[int]
    first: int
    places: list[tuple[int, int]]
    span: tuple[int, int] = (0, 0)


def windows_of(
    encoder: WordEncoder,
    question: str,
    context: str,
    answers: Sequence[tuple[int, str]] = (),
    *,
    max_length: int,
    stride: int,
) -> list[Window]:
    """Return a question with all parts of its context, which overlap if there are several.

    answers: first character and text of each; the first one is the label.
    stride: tokens between the starts of two parts, at most as many as a part has.
    """
    head = [piece.id for word in question.split() for piece in encoder(word)]
    head = head[: max_length // 2 - 1]
    ids: list[int] = []
    places: list[tuple[int, int]] = []
    for start, end in split_words(context, "spaces"):
        for piece in encoder(context[start:end]):
            ids.append(piece.id)
            places.append((start + piece.start, start + piece.end))
    inside: list[int] = []
    for first, text in answers[:1]:
        end = first + len(text)
        inside = [n for n, place in enumerate(places) if place[0] < end and place[1] > first]
    room, offset = max_length - len(head) - 3, len(head) + 2
    windows: list[Window] = []
    for at in range(0, len(ids), min(stride, room)):
        if windows and at - min(stride, room) + room >= len(ids):
            break
        span = (0, 0)
        if inside and at <= inside[0] and inside[-1] < at + room:
            span = (offset + inside[0] - at, offset + inside[-1] - at)
        part = slice(at, at + room)
        pair = [BOS, *head, EOS, *ids[part], EOS]
        windows.append(Window(pair, offset, places[part], span))
    return windows
