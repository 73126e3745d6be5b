"""What every tokenizer promises, whatever it cuts text into.

    text → normalise → pieces with offsets → ids, closed by EOS → decode → the same text

The first four ids are the same everywhere, so that a model, a batch and a beam need not ask which
tokenizer they work with. They stand for no text: nothing that a user writes can become one of
them, not even the letters "<s>". (UNK is the exception in one direction: it is written for text
that the vocabulary lacks, where there is no fallback to bytes.)
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from polyhead.special_tokens import SPECIALS

UNKNOWN = "⁇"  # how an UNK that the model wrote is shown in text
MAX_VOCAB = 1_000_000

Kind = Literal["bpe", "unigram", "characters", "words"]


@dataclass(frozen=True)
class TextConfig:
    """How text becomes ids: the table [text] of a configuration file.

    kind: "bpe" (Sennrich et al. 2016) and "unigram" (Kudo 2018) learn pieces of words with
        SentencePiece; "characters" and "words" (cut at whitespace) are for toys and comparisons.
    vocab: the largest number of ids, the special ones included; a small corpus gives fewer.
    joint: one vocabulary for both languages, so that names and numbers look the same in both.
    lowercase: forget the difference between upper and lower case.
    sampling: cut each sentence differently every time it is trained on. For "bpe" the probability
        that a merge is left out (BPE-dropout, Provilkov et al. 2020; 0.1 is usual); for "unigram"
        the smoothing α of Kudo 2018, eq. 8 (0.1 to 0.5; smaller is wilder). 0 is off for both.
    character_coverage: the share of the corpus's characters that get an id of their own ("bpe" and
        "unigram"); 0.9995 saves ids for languages with thousands of characters.
    byte_fallback: write other characters as their UTF-8 bytes, so that no text is lost ("bpe" and
        "unigram"); costs 256 ids. Without it, and for the other kinds, they become UNK.
    jamo: write Hangul letter by letter, 각 as ㄱ ㅏ ㄱ, before it is cut at whitespace ("words"
        only; for lists of words, since the spaces between words are then no longer told apart).
    """

    kind: Kind = "bpe"
    vocab: int = 8000
    joint: bool = True
    lowercase: bool = False
    sampling: float = 0.0
    character_coverage: float = 1.0
    byte_fallback: bool = True
    jamo: bool = False

    def __post_init__(self) -> None:
        if not len(SPECIALS) < self.vocab <= MAX_VOCAB:
            raise ValueError(
                f"vocab = {self.vocab}: expected {len(SPECIALS) + 1} to {MAX_VOCAB}, "
                f"of which {len(SPECIALS)} are special ids"
            )
        if not (math.isfinite(self.sampling) and self.sampling >= 0):
            raise ValueError(f"sampling = {self.sampling}: expected 0 (off) or a positive number")
        if self.kind == "bpe" and self.sampling > 1:
            raise ValueError(f"sampling = {self.sampling}: for bpe it is a probability, at most 1")
        if self.kind in ("characters", "words") and self.sampling:
            raise ValueError(
                f"sampling = {self.sampling}: {self.kind} can be cut in one way only; "
                "choose bpe or unigram, or set sampling = 0"
            )
        if self.jamo and self.kind != "words":
            raise ValueError(
                f'jamo = true: letters are cut at spaces, so kind must be "words", not {self.kind}'
            )
        if not 0.98 <= self.character_coverage <= 1:
            raise ValueError(
                f"character_coverage = {self.character_coverage}: expected a share from 0.98 to 1"
            )


class Piece(NamedTuple):
    """One id and the characters it stands for: `text[start:end]` of the normalised text.

    A piece that begins a word holds the space before it. A piece may be empty: the space that
    SentencePiece puts before the first word, or a byte that does not yet complete a character.
    """

    text: str
    id: int
    start: int
    end: int


@runtime_checkable
class Tokenizer(Protocol):
    """Text to ids and back. Never changes once made, so threads and processes may share it."""

    def __len__(self) -> int:
        """The number of ids: all are smaller than this."""
        ...

    def normalise(self, line: str) -> str:
        """The form of a line that is encoded, and into which the offsets of `pieces` point."""
        ...

    def reads_line_ends(self) -> bool:
        """Whether a line end is text like any other; then EOS ends a text, and else a line."""
        ...

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:
        """A line's ids, closed by EOS.

        With `sample` and a configuration that has sampling, the line is cut at random. The cut
        depends on nothing but the line and the state of that generator.
        """
        ...

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines at once, without sampling; faster than one by one."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """The text up to the first EOS. PAD and BOS are passed over."""
        ...

    def pieces(self, line: str) -> list[Piece]:
        """One piece for each id of `encode(line)` except EOS; together they are the whole line."""
        ...

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        """One piece for each id before the first EOS; the offsets point into `decode(ids)`.

        PAD and BOS are empty pieces, so that the n-th piece is always that of the n-th id.
        """
        ...

    def symbol(self, id: int) -> str:
        """An id's name for people: never empty and without unprintable characters."""
        ...
