"""Fillers of the slots of "schedules" patterns: the words of `words/*.txt` in all their forms.

Fields are separated by `|` and named in the first line. Choices have a fixed order, so that the
same random numbers give the same sentences.
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files

from polyhead.data.schedules.amounts import WORDS, amount_fillers, native, plain, weekdays
from polyhead.data.schedules.korean import conjugate
from polyhead.data.schedules.patterns import Filler

COUNTS = range(1, 13)
CROWDS = (15, 20, 25, 30, 40, 50, 100, 200)
PRONOUNS = {"he": ("him", "his"), "she": ("her", "her")}
IRREGULAR = {"child": "children", "goldfish": "goldfish", "deer": "deer", "wolf": "wolves"}
LIKE_A_CONSONANT = ("uni", "use", "usb")


@cache
def fillers() -> dict[str, tuple[Filler, ...]]:
    """Return the fillers of every kind of slot."""
    words = {
        kind: tuple(
            MAKERS[name](row) if name in MAKERS else plain(row[0], row[1])
            for name in names.split()
            for row in rows(name)
            if not tag or tag in row[-1].split()
        )
        for kind, names, tag in rows("kinds")
    }
    goods, animals, groups = rows("goods"), rows("animals"), rows("groups")
    return {
        **amount_fillers(),
        **words,
        "goods": tuple(counted(row, n) for row in goods if "m" not in row[3] for n in COUNTS),
        "gear": tuple(counted(row, n) for row in goods if row[3] for n in COUNTS),
        "animals": tuple(counted(row, n) for row in animals if not row[3] for n in COUNTS),
        "pets": tuple(counted(row, n) for row in animals if row[3] for n in COUNTS),
        "group": tuple(counted(row, n) for row in groups for n in (*COUNTS, *CROWDS)),
        "future": adverbs("future"),
        "past": adverbs("day") + adverbs("past"),
        "day": adverbs("day"),
        "habit": adverbs("habit"),
    }


def rows(name: str) -> list[list[str]]:
    """Read the entries of a word file, each as the list of its fields."""
    text = (files(__package__) / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return [line.split("|") for line in text.splitlines() if not line.startswith("#")]


def person(row: list[str]) -> Filler:
    """Return a name with its pronouns."""
    korean, english, pronoun = row
    him, his = PRONOUNS[pronoun]
    forms = {"": english, "he": pronoun, "He": pronoun.capitalize(), "him": him, "his": his}
    return Filler({"": korean}, forms, (("person", korean),))


def city(row: list[str]) -> Filler:
    """Return a city, with the preposition `in` and no article."""
    korean, english = row
    return Filler({"": korean}, {"": english, "at": f"in {english}"}, (("place", korean),))


def venue(row: list[str]) -> Filler:
    """Return a place with its article and preposition."""
    korean, english, preposition, _ = row
    forms = {"": f"the {english}", "at": f"{preposition} the {english}", "noun": english}
    return Filler({"": korean}, forms, (("place", korean),))


def noun(korean: str, english: str) -> Filler:
    """Return a countable noun."""
    return Filler({"": korean}, {"": english, "a": with_article(english), "s": plural(english)})


def counted(row: list[str], number: int) -> Filler:
    """Return a noun with its number: 책 세 권, three books; 책 한 권, a book."""
    korean, counter, english = row[:3]
    if number in COUNTS:
        amount, in_words = f"{native(number)} {counter}", WORDS[number]
    else:
        amount, in_words = f"{number}{counter}", str(number)
    if number == 1:
        forms = {"": with_article(english), "be": "is", "it": "it"}
    else:
        forms = {"": f"{in_words} {plural(english)}", "be": "are", "it": "them"}
    return Filler({"": f"{korean} {amount}"}, forms, (("thing", korean),))


def verb(row: list[str]) -> Filler:
    """Return a verb in all forms; the fields are those of `activities.txt`."""
    before, stem, infinitive, soft, base, past, ing, rest = row[:8]
    after = f" {rest}" if rest else ""
    forms = {"": base, "s": third_person(base), "past": past, "ing": ing}
    endings = conjugate(stem, infinitive, soft)
    return Filler(
        {name: f"{before} {form}".strip() for name, form in endings.items()},
        {name: form + after for name, form in forms.items()},
    )


def weather(row: list[str]) -> Filler:
    """Return a clause about the weather."""
    subject, stem, infinitive, soft, present, past, future, _ = row
    forms = conjugate(stem, infinitive, soft)
    return Filler(
        {name: f"{subject} {form}" for name, form in forms.items()},
        {"if": present, "past": past, "will": future},
    )


def adverbs(name: str) -> tuple[Filler, ...]:
    """Return the adverbs of time of a word file; an entry with {weekday} gives seven."""
    fillers = []
    for korean, english in rows(name):
        if "{weekday}" not in korean:
            fillers.append(plain(korean, english))
            continue
        for day in weekdays():
            source = korean.replace("{weekday}", day.korean[""])
            target = english.replace("{weekday}", day.english[""])
            fillers.append(plain(source, target, day.attributes))
    return tuple(fillers)


def with_article(noun: str) -> str:
    """Return the noun with a or an, chosen by sound: an umbrella, a university."""
    lower = noun.lower()
    is_vowel = lower[0] in "aeiou" and not lower.startswith(LIKE_A_CONSONANT)
    return f"{'an' if is_vowel else 'a'} {noun}"


def plural(noun: str) -> str:
    """Return the plural: boxes of chocolates, dictionaries, children."""
    head, of, rest = noun.partition(" of ")
    if head in IRREGULAR:
        return IRREGULAR[head]
    if head.endswith("y") and head[-2] not in "aeiou":
        many = head[:-1] + "ies"
    elif head.endswith(("s", "x", "ch", "sh", "tato")):
        many = head + "es"
    else:
        many = head + "s"
    return many + of + rest


def third_person(verb: str) -> str:
    """Return the third person singular: goes, has, studies, watches."""
    base, space, rest = verb.partition(" ")
    if base == "have":
        return "has" + space + rest
    if base.endswith("o"):
        return base + "es" + space + rest
    return plural(base) + space + rest


MAKERS: dict[str, Callable[[list[str]], Filler]] = {  # by word file; the others are `plain`
    "people": person,
    "towns": city,
    "abroad": city,
    "venues": venue,
    "events": lambda row: plain(row[0], row[1], (("event", row[0]),)),
    "jobs": lambda row: noun(row[0], row[1]),
    "goods": lambda row: noun(row[0], row[2]),
    "groups": lambda row: plain(row[0], plural(row[2])),
    "activities": verb,
    "routines": verb,
    "deeds": lambda row: verb(["", *row[:6], ""]),
    "traits": lambda row: Filler(conjugate(*row[:3]), {"": row[3], "a": with_article(row[3])}),
    "qualities": lambda row: Filler(conjugate(*row[:3]), {"": row[4], "more": row[3]}),
    "weather": weather,
}
