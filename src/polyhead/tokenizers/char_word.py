"""Tokenizers of characters and of words, for toys, comparisons and text that is already split.

An id is 4 + the unit's rank in the vocabulary, most frequent first, so the special ids are no units
and the word "<s>" in a text is an ordinary word. Units that the vocabulary lacks become UNK.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from random import Random
from unicodedata import normalize

from polyhead.errors import DataError
from polyhead.special_tokens import EOS, SPECIALS, UNK
from polyhead.tokenizers.base import UNKNOWN, Piece, TextConfig, Tokenizer
from polyhead.tokenizers.normalize import before_end, checked, normalise, printable, tile

FIRST = len(SPECIALS)
HANGUL = re.compile("[가-힣\u1100-\u11ff\u3131-\u318e]")  # syllables and single letters
MAX_UNIT = 1000  # characters of the longest word that can get an id


def build_vocab(lines: Iterable[str], config: TextConfig) -> "CharWordTokenizer":
    """Build a tokenizer of the most frequent units of a corpus, ties by code point."""
    texts = (prepare(line, config) for line in lines)
    counts = Counter(chain.from_iterable(split(text, config) for text in texts))
    ranked = sorted(
        (unit for unit in counts if len(unit) <= MAX_UNIT), key=lambda unit: (-counts[unit], unit)
    )
    if not ranked:
        raise DataError(
            f"no vocabulary of {config.kind}: all lines are empty; give at least one line of text",
            "no_text",
        )
    return CharWordTokenizer(tuple(ranked[: config.vocab - FIRST]), config)


def prepare(line: str, config: TextConfig) -> str:
    """Normalise a line; with `jamo`, separate the letters of Hangul (각: ᄀ ᅡ ᆨ)."""
    text = normalise(line, lowercase=config.lowercase)
    if not config.jamo:
        return text
    apart = HANGUL.sub(lambda match: f" {' '.join(normalize('NFD', match[0]))} ", text)
    return " ".join(apart.split())


def split(text: str, config: TextConfig) -> Sequence[str]:
    """Split a normalised text into units."""
    return text.split(" ") if config.kind == "words" and text else text


class CharWordTokenizer(Tokenizer):
    """Tokenizer with one id per unit and only one segmentation of a text."""

    def __init__(self, units: tuple[str, ...], config: TextConfig) -> None:
        """Use these units; ValueError if a text cannot contain them."""
        self.units, self.config = units, config
        self.numbers = {unit: FIRST + place for place, unit in enumerate(units)}
        if len(self.numbers) != len(units):
            raise ValueError("a unit is in the vocabulary twice")
        for unit in units:
            if not self.is_possible(unit):
                raise ValueError(f"{unit[:20]!r} cannot be one of the {config.kind} of a text")

    def is_possible(self, unit: str) -> bool:
        """Return whether a normalised text can contain this unit."""
        if self.config.kind == "characters":
            return len(unit) == 1 and normalise(f"a{unit}a")[1:-1] == unit
        return 0 < len(unit) <= MAX_UNIT and " " not in unit and normalise(unit) == unit

    def __len__(self) -> int:
        return FIRST + len(self.units)

    def normalise(self, line: str) -> str:
        return prepare(line, self.config)

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:  # noqa: ARG002
        units = split(self.normalise(line), self.config)
        return [self.numbers.get(unit, UNK) for unit in units] + [EOS]

    def pieces(self, line: str) -> list[Piece]:
        units = split(self.normalise(line), self.config)
        ids = [self.numbers.get(unit, UNK) for unit in units]
        return tile(ids, [self.gap + unit for unit in units])

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        written = before_end(ids, len(self))
        return tile(written, [self.texts[id] for id in written])

    @property
    def gap(self) -> str:
        """The separator before each unit."""
        return " " if self.config.kind == "words" else ""

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return "", "", "", *(self.gap + unit for unit in (UNKNOWN, *self.units))

    def symbol(self, id: int) -> str:
        if checked(id, len(self)) < FIRST:
            return SPECIALS[id]
        return printable(self.units[id - FIRST].replace(" ", "▁"))
