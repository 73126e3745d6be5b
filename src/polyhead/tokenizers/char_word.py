"""Characters and words as ids: for toys, for comparisons, and for text that is cut already.

    characters   every character has an id, the space too
    words        what stands between spaces, punctuation included

An id is 4 + the unit's place in the vocabulary, most frequent first, so the special ids are no
units and the word "<s>" in a text is a word like any other. What the vocabulary lacks becomes UNK.
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
from polyhead.tokenizers.base import UNKNOWN, Piece, TextConfig
from polyhead.tokenizers.normalize import before_end, checked, normalise, printable, tile

FIRST = len(SPECIALS)
HANGUL = re.compile("[가-힣\u1100-\u11ff\u3131-\u318e]")  # syllables, and letters by themselves
MAX_UNIT = 1000  # characters of the longest word that can get an id


def collect_units(lines: Iterable[str], config: TextConfig) -> "UnitTokenizer":
    """The most frequent units of a corpus, ties in the order of their code points."""
    texts = (prepared(line, config) for line in lines)
    counts = Counter(chain.from_iterable(split(text, config) for text in texts))
    ranked = sorted(
        (unit for unit in counts if len(unit) <= MAX_UNIT), key=lambda unit: (-counts[unit], unit)
    )
    if not ranked:
        raise DataError(
            f"no vocabulary of {config.kind} can be made: all lines are empty; "
            "give at least one line of text"
        )
    return UnitTokenizer(tuple(ranked[: config.vocab - FIRST]), config)


def prepared(line: str, config: TextConfig) -> str:
    """A line's normal form; with `jamo`, the letters of Hangul stand apart, and NFC leaves them.

    First consonants, vowels and last consonants have code points of their own: 각 is ᄀ ᅡ ᆨ.
    """
    text = normalise(line, lowercase=config.lowercase)
    if not config.jamo:
        return text
    apart = HANGUL.sub(lambda found: f" {' '.join(normalize('NFD', found[0]))} ", text)
    return " ".join(apart.split())


def split(text: str, config: TextConfig) -> Sequence[str]:
    """A normalised text's units."""
    return text.split(" ") if config.kind == "words" and text else text


class UnitTokenizer:
    """A list of units; each has one id, and a text can be cut in one way only."""

    def __init__(self, units: tuple[str, ...], config: TextConfig) -> None:
        """Take the units as they are; ValueError if they could not have come from a text."""
        self.units = units
        self.config = config
        self.numbers = {unit: FIRST + place for place, unit in enumerate(units)}
        if len(self.numbers) != len(units):
            raise ValueError("a unit stands in the vocabulary twice")
        for unit in units:
            if not self.possible(unit):
                raise ValueError(f"{unit[:20]!r} cannot be one of the {config.kind} of a text")

    def possible(self, unit: str) -> bool:
        """Whether a normalised text can hold this unit."""
        if self.config.kind == "characters":
            return len(unit) == 1 and normalise(f"a{unit}a")[1:-1] == unit
        return 0 < len(unit) <= MAX_UNIT and " " not in unit and normalise(unit) == unit

    def __len__(self) -> int:
        return FIRST + len(self.units)

    def normalise(self, line: str) -> str:
        """The form of a line that is encoded: see `normal.normalise` and `prepared`."""
        return prepared(line, self.config)

    def reads_line_ends(self) -> bool:
        """Never: to `normalise` they are spaces."""
        return False

    def encode(self, line: str, *, sample: Random | None = None) -> list[int]:  # noqa: ARG002
        """A line's ids, closed by EOS. There is nothing to sample."""
        units = split(self.normalise(line), self.config)
        return [self.numbers.get(unit, UNK) for unit in units] + [EOS]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """`encode` for many lines."""
        return [self.encode(line) for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        """The text up to the first EOS."""
        return "".join(piece.text for piece in self.pieces_of_ids(ids))

    def pieces(self, line: str) -> list[Piece]:
        """One piece for each id of `encode(line)` except EOS; unknown text keeps its characters."""
        units = split(self.normalise(line), self.config)
        ids = [self.numbers.get(unit, UNK) for unit in units]
        return tile(ids, [self.gap + unit for unit in units])

    def pieces_of_ids(self, ids: Iterable[int]) -> list[Piece]:
        """One piece for each id before the first EOS; the offsets point into `decode(ids)`."""
        written = before_end(ids, len(self))
        return tile(written, [self.texts[id] for id in written])

    @property
    def gap(self) -> str:
        """What stands before each unit."""
        return " " if self.config.kind == "words" else ""

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """What each id writes."""
        return "", "", "", *(self.gap + unit for unit in (UNKNOWN, *self.units))

    def symbol(self, id: int) -> str:
        """An id's name for people: the unit itself, ▁ for the space."""
        if checked(id, len(self)) < FIRST:
            return SPECIALS[id]
        return printable(self.units[id - FIRST].replace(" ", "▁"))
