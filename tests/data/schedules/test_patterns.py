"""Patterns: that each can be filled, and that filling puts particles, articles and capitals."""

import pytest

from polyhead.data.schedules.fillers import fillers
from polyhead.data.schedules.patterns import PATTERNS, SLOT, kind_of, read_patterns, slots_of


def test_both_sides_of_a_pattern_have_the_same_slots():
    for pattern in PATTERNS:
        assert set(slots_of(pattern.korean)) == set(slots_of(pattern.english)), pattern.korean
        assert {kind_of(slot) for slot in pattern.slots} <= set(fillers())


def test_every_filler_has_every_form_that_a_pattern_asks_for():
    for pattern in PATTERNS:
        for language in ("korean", "english"):
            for slot, form, _ in SLOT.findall(getattr(pattern, language)):
                for filler in fillers()[kind_of(slot)]:
                    assert getattr(filler, language)[form]


@pytest.mark.parametrize(
    ("korean", "english"),
    [
        ("{person|은} {city|으로} {past} 갔습니다.", "{person} went to {city} {past}."),
        ("{pastime.past}어요.", "{pastime.past}."),
    ],
)
def test_a_pattern_is_read_as_it_stands(korean, english):
    (pattern,) = read_patterns(f"\n{korean}\n{english}\n")
    assert (pattern.korean, pattern.english) == (korean, english)
    assert pattern.slots == slots_of(korean)
    assert [kind_of(slot) for slot in ("person2", "person")] == ["person", "person"]


def test_a_pattern_puts_particles_articles_and_capitals():
    kinds = fillers()
    chosen = {
        "person": next(f for f in kinds["person"] if f.korean[""] == "폴"),
        "city": next(f for f in kinds["city"] if f.korean[""] == "서울"),
        "venue": next(f for f in kinds["venue"] if f.korean[""] == "도서관"),
    }
    text = (
        "{venue}에서 {person|이} {city|으로} 갔어요.\n{venue}: {person} left {venue.at} for {city}."
    )
    (pattern,) = read_patterns(text)
    assert pattern.fill(chosen) == (
        "도서관에서 폴이 서울로 갔어요.",
        "The library: Paul left at the library for Seoul.",
    )
