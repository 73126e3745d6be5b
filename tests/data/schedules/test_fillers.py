"""Dates and times against Python's calendar; amounts and inflection against written examples."""

from datetime import datetime

import pytest

from polyhead.data.schedules.fillers import fillers, plural, third_person, with_article


def test_full_dates_match_the_calendar():
    for filler in fillers()["fulldate"]:
        day = datetime.strptime(filler.english[""], "%A, %B %d, %Y")
        weekday = "월화수목금토일"[day.weekday()]
        assert filler.korean[""] == f"{day.year}년 {day.month}월 {day.day}일 {weekday}요일"
        assert filler.english[""].startswith(day.strftime("%A"))
        assert filler.attributes == (("weekday", f"{weekday}요일"),)


def test_times_are_the_same_in_both_languages():
    for kind in ("time", "clock"):
        for filler in fillers()[kind]:
            at = datetime.strptime(filler.english[""], "%I:%M %p")
            half = "오전" if at.hour < 12 else "오후"
            hour, minute = at.hour % 12 or 12, f" {at.minute}분" if at.minute else ""
            spoken = f"{half} {hour}시{minute}"
            assert filler.korean[""] == (spoken if kind == "time" else f"{half} {hour}:{at:%M}")
    for kind in ("span", "opening"):
        for filler in fillers()[kind]:
            start, end = (
                datetime.strptime(filler.english[form], "%I:%M %p") for form in ("start", "end")
            )
            assert start < end


@pytest.mark.parametrize(
    ("kind", "korean", "english"),
    [
        ("weekdate", "3월 4일 수요일", "Wednesday, March 4"),
        ("date", "12월 25일", "December 25"),
        ("price", "15,000원", "15,000 won"), ("price", "3,500원", "3,500 won"),
        ("won", "₩15,000", "₩15,000"),
        ("amount", "12만", "120,000"), ("amount", "300만", "3,000,000"), ("crowd", "3천", "3,000"),
        ("percent", "25%", "25%"),
        ("warmth", "섭씨 23도", "23 degrees Celsius"),
        ("degrees", "영하 5도", "5 degrees below zero"),
        ("distance", "320킬로미터", "320 kilometers"), ("meters", "300미터", "300 meters"),
        ("weight", "1킬로그램", "1 kilogram"), ("weight", "3.5킬로그램", "3.5 kilograms"),
        ("minutes", "30분", "30 minutes"), ("duration", "1시간", "1 hour"),
        ("duration", "2시간 30분", "2 hours and 30 minutes"),
        ("length", "3개월", "3 months"), ("length", "2주", "2 weeks"),
        ("length", "10년", "10 years"),
        ("days", "5일", "5 days"),
        ("hour", "열두 시 반", "half past twelve"), ("hour", "세 시", "three o'clock"),
        ("age", "스무", "20"), ("age", "서른한", "31"), ("few", "열두", "twelve"),
        ("floor", "3", "3rd"), ("floor", "11", "11th"), ("nth", "22", "22nd"),
        ("goods", "책 세 권", "three books"), ("goods", "우산 한 개", "an umbrella"),
        ("goods", "USB 한 개", "a USB drive"), ("goods", "커피 두 잔", "two cups of coffee"),
        ("group", "학생 25명", "25 students"), ("group", "아이 두 명", "two children"),
        ("score", "6 대 0", "6 to 0"),
        ("future", "다음 주 수요일에", "next Wednesday"),
        ("past", "그저께", "the day before yesterday"),
    ],
)  # fmt: skip
def test_amounts_follow_each_language(kind, korean, english):
    known = {filler.korean.get(""): filler.english.get("") for filler in fillers()[kind]}
    assert known[korean] == english


def test_every_word_of_a_kind_has_one_translation():
    for kind, choices in fillers().items():
        for one, other in (("korean", "english"), ("english", "korean")):
            seen = {}
            for filler in choices:
                there = tuple(getattr(filler, one).items())
                here = tuple(getattr(filler, other).items())
                assert seen.setdefault(there, here) == here, f"{kind}: {there}"


def test_verbs_and_pronouns_agree_in_number():
    for kind in ("goods", "gear", "animals", "pets", "group"):
        for filler in fillers()[kind]:
            is_one = " 한 " in filler.korean[""]
            assert is_one == filler.english[""].startswith(("a ", "an "))
            assert filler.english["be"] == ("is" if is_one else "are")
            assert filler.english["it"] == ("it" if is_one else "them")


def test_english_nouns_and_verbs_are_inflected():
    nouns = {"box of chocolates": "boxes of chocolates", "dictionary": "dictionaries",
             "key": "keys", "watch": "watches", "dress": "dresses", "potato": "potatoes",
             "wolf": "wolves",
             "piano": "pianos", "deer": "deer", "T-shirt": "T-shirts"}  # fmt: skip
    assert {noun: plural(noun) for noun in nouns} == nouns
    verbs = {"have": "has", "do": "does", "go": "goes", "study": "studies", "play": "plays",
             "watch": "watches", "throw away": "throws away", "teach": "teaches"}  # fmt: skip
    assert {verb: third_person(verb) for verb in verbs} == verbs
    articles = {"umbrella": "an", "university": "a", "USB drive": "a", "orange": "an", "hat": "a",
                "interpreter": "an", "useful": "a", "elephant": "an"}  # fmt: skip
    assert {noun: with_article(noun).split()[0] for noun in articles} == articles
