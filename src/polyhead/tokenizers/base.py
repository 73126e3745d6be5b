"""Interface of all tokenizers.

    text → normalise → pieces with offsets → ids, closed by EOS → decode → the same text

The first four ids are the same everywhere, so that models, batches and decoding do not depend on
the tokenizer. They stand for no text: no input becomes one of them, not even the letters "<s>".
(Except that UNK is the id of text that the vocabulary lacks, without byte fallback.)
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from polyhead.special_tokens import SPECIALS

UNKNOWN = "⁇"  # text of a generated UNK
MAX_VOCAB = 1_000_000
CHUNK = 10_000  # lines

Kind = Literal["bpe", "unigram", "characters", "words"]


@dataclass(frozen=True)
class TextConfig:
    """The table [text] of a configuration file: how text becomes ids.

    kind: "bpe" (Sennrich et al. 2016) and "unigram" (Kudo 2018) learn subwords with SentencePiece;
        "characters" and "words" (split at white space) are for toys and comparisons.
    vocab: the largest number of ids, the special ones included; a small corpus gives fewer.
    joint: one vocabulary for both languages, so that names and numbers look the same in both.
    lowercase: convert text to lower case.
    sampling: segment each sentence differently every time it is trained on. For "bpe" the
        probability that a merge is skipped (BPE-dropout, Provilkov et al. 2020; 0.1 is usual); for
        "unigram" the smoothing α of Kudo 2018, eq. 8 (0.1 to 0.5; smaller is more random). 0: off.
        Batches may then exceed train.max_tokens: they are planned without sampling.
    character_coverage: the share of the corpus's characters that get their own id ("bpe" and
        "unigram"); 0.9995 saves ids for languages with thousands of characters.
    byte_fallback: encode other characters as their UTF-8 bytes, so that no text is lost ("bpe" and
        "unigram"); costs 256 ids. Without it, and for the other kinds, they become UNK.
    jamo: decompose Hangul into letters, 각 into ㄱ ㅏ ㄱ, before it is split at white space
        ("words" only; for lists of words, since the spaces between words are then lost).
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
                f"sampling = {self.sampling}: not supported by {self.kind}; "
                "choose bpe or unigram, or set sampling = 0"
            )
        if self.jamo and self.kind != "words":
            raise ValueError(f'jamo = true: kind must be "words", not {self.kind}')
        if not 0.98 <= self.character_coverage <= 1:
            raise ValueError(
                f"character_coverage = {self.character_coverage}: expected a share from 0.98 to 1"
            )


class Piece(NamedTuple):
    """One id and its characters: `text[start:end]` of the normalised text.

    A piece that starts a word contains the space before it. A piece may be empty: the space that
    SentencePiece puts before the first word, or a byte that does not yet complete a character.
    """

    text: str
    id: int
    start: int
    end: int


@runtime_checkable
class Tokenizer(Protocol):
    """Conversion of text to ids and back. Immutable, so that threads and processes may share it."""

    def __len__(self) -> int:
        """Return the number of ids."""

    def normalise(self, line: str) -> str:
        """Return the form of a line that is encoded and that offsets of `pieces` refer to."""

    def reads_line_ends(self) -> bool:
        """Return whether line ends are encoded; then EOS ends a text, not a line."""
        return False

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:
        """Return a line's ids, closed by EOS; `sample` draws the segmentation if so configured."""

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Encode many lines without sampling; may be faster than one by one."""
        return [self.encode(line) for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text up to the first EOS, without PAD and BOS."""
        return "".join(piece.text for piece in self.pieces_of_ids(ids))

    def pieces(self, line: str) -> list[Piece]:
        """Return one piece for each id of `encode(line)` except EOS; together the whole line."""

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        """Return one piece for each id before the first EOS; offsets refer to `decode(ids)`."""

    def symbol(self, id: int) -> str:
        """Return a printable name of an id, never empty."""


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of each line, each closed by EOS; only a few lines are encoded at a time."""
    for start in range(0, len(lines), CHUNK):
        yield from tokenizer.encode_batch(lines[start : start + CHUNK])
