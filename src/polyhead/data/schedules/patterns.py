"""Sentence patterns of the "schedules" corpus: a Korean sentence and its English one, with slots.

    {person} 씨는 {past} {city|으로} 갔어요.        slot, slot, slot with the right form of 으로
    {person} went to {city} {past}.

A slot is named after the kind of thing that fills it, with a digit if there are two of a kind
(`person`, `person2`). `{slot.form}` asks for another form than the plain one: `{activity.past}`.
In the Korean sentence `{slot|particle}` adds the particle in the form that suits the word.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from polyhead.data.schedules import korean
from polyhead.data.schedules.patterns_amounts import AMOUNTS
from polyhead.data.schedules.patterns_events import EVENTS
from polyhead.data.schedules.patterns_people import PEOPLE
from polyhead.data.schedules.patterns_places import PLACES

SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?(?:\|(\w+))?\}")


class Filler(NamedTuple):
    """What can stand in a slot: its forms by name in both languages ('' is the plain one).

    `marks` says what it is about, as ("person", "민지"), for those things of which some
    combinations are kept out of the training set.
    """

    korean: Mapping[str, str]
    english: Mapping[str, str]
    marks: tuple[tuple[str, str], ...] = ()


class Pattern(NamedTuple):
    """A sentence in both languages with the same slots, listed as they come in Korean."""

    korean: str
    english: str
    slots: tuple[str, ...]

    def fill(self, fillers: Mapping[str, Filler]) -> tuple[str, str]:
        """The Korean and the English sentence with every slot filled."""
        source = SLOT.sub(lambda match: in_korean(match, fillers), self.korean)
        target = SLOT.sub(lambda match: in_english(match, fillers), self.english)
        return source, target[0].upper() + target[1:]


def in_korean(match: re.Match[str], fillers: Mapping[str, Filler]) -> str:
    """What stands for a slot of the Korean sentence, with its particle."""
    slot, form, particle = match.groups(default="")
    word = fillers[slot].korean[form]
    return korean.attach(word, particle) if particle else word


def in_english(match: re.Match[str], fillers: Mapping[str, Filler]) -> str:
    """What stands for a slot of the English sentence."""
    slot, form, _ = match.groups(default="")
    return fillers[slot].english[form]


def kind_of(slot: str) -> str:
    """What fills the slot: `person` for `person2`."""
    return slot.rstrip("0123456789")


def slots_of(sentence: str) -> tuple[str, ...]:
    """The names of the slots of one language's sentence, each once, in order."""
    return tuple(dict.fromkeys(match[1] for match in SLOT.finditer(sentence)))


def read_patterns(text: str) -> tuple[Pattern, ...]:
    """The patterns of a text where a line of Korean and a line of English take turns."""
    lines = [line for line in text.splitlines() if line]
    return tuple(
        Pattern(source, target, slots_of(source))
        for source, target in zip(lines[::2], lines[1::2], strict=True)
    )


PATTERNS = read_patterns(EVENTS + PEOPLE + PLACES + AMOUNTS)
