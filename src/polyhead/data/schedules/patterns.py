"""Sentence patterns of the corpus "schedules": Korean and English sentences with shared slots.

    {person} 씨는 {past} {city|으로} 갔어요.        slot, slot, slot with the right form of 으로
    {person} went to {city} {past}.

A slot is named after the kind of its filler, with a digit for a second one (`person`, `person2`).
`{slot.form}` selects another form than the plain one: `{activity.past}`. In the Korean sentence
`{slot|particle}` appends the particle in the form that suits the word. The patterns are the package
data `sentences/*.txt`, one file per topic, Korean and English lines alternating.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from polyhead.data.schedules.korean import attach

SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?(?:\|(\w+))?\}")
TOPICS = ("events", "people", "places", "amounts")

Attribute = tuple[str, str]  # kind and Korean name, as ("person", "민지")


class Filler(NamedTuple):
    """The text of a slot: its forms by name in both languages ('' is the plain one)."""

    korean: Mapping[str, str]
    english: Mapping[str, str]
    attributes: tuple[Attribute, ...] = ()  # of which some combinations are held out


class Pattern(NamedTuple):
    """A sentence in both languages with the same slots, in the order of the Korean sentence."""

    korean: str
    english: str
    slots: tuple[str, ...]
    topic: str

    def fill(self, fillers: Mapping[str, Filler]) -> tuple[str, str]:
        """Return the Korean and the English sentence with every slot filled."""

        def korean_text(match: re.Match[str]) -> str:
            slot, form, particle = match.groups(default="")
            word = fillers[slot].korean[form]
            return attach(word, particle) if particle else word

        source = SLOT.sub(korean_text, self.korean)
        target = SLOT.sub(lambda match: fillers[match[1]].english[match[2] or ""], self.english)
        return source, target[0].upper() + target[1:]


def kind_of(slot: str) -> str:
    """Return the kind of filler of a slot: `person` for `person2`."""
    return slot.rstrip("0123456789")


def slots_of(sentence: str) -> tuple[str, ...]:
    """Return the names of a sentence's slots, each once, in order."""
    return tuple(dict.fromkeys(match[1] for match in SLOT.finditer(sentence)))


def read_patterns(text: str, topic: str = "") -> tuple[Pattern, ...]:
    """Parse alternating lines of Korean and English."""
    lines = [line for line in text.splitlines() if line]
    return tuple(
        Pattern(source, target, slots_of(source), topic)
        for source, target in zip(lines[::2], lines[1::2], strict=True)
    )


@cache
def patterns_of(topic: str) -> tuple[Pattern, ...]:
    """Return the patterns of a topic."""
    path = files(__package__) / "sentences" / f"{topic}.txt"
    return read_patterns(path.read_text(encoding="utf-8"), topic)


@cache
def all_patterns() -> tuple[Pattern, ...]:
    """Return the patterns of all topics, in a fixed order."""
    return tuple(pattern for topic in TOPICS for pattern in patterns_of(topic))
