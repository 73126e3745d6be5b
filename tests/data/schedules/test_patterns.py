"""Patterns: matching slots in both languages, and the text of filled slots."""

from polyhead.data.schedules.fillers import fillers
from polyhead.data.schedules.patterns import SLOT, all_patterns, kind_of, read_patterns, slots_of


def test_both_sides_of_a_pattern_have_the_same_slots():
    for pattern in all_patterns():
        assert set(slots_of(pattern.korean)) == set(slots_of(pattern.english)), pattern.korean
        assert {kind_of(slot) for slot in pattern.slots} <= set(fillers())


def test_every_filler_has_every_form_its_patterns_use():
    for pattern in all_patterns():
        for language in ("korean", "english"):
            for slot, form, _ in SLOT.findall(getattr(pattern, language)):
                for filler in fillers()[kind_of(slot)]:
                    assert getattr(filler, language)[form]


def test_filling_inserts_particles_articles_and_capitals():
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
