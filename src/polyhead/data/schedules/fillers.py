"""Fillers of the slots of "schedules" patterns: the words of `words/*.txt` in all their forms.

Each word file has one entry per line with fields separated by `|`, named in its first line. Verbs
and adjectives are given by stem, 아/어 form and, where irregular, the stem before 으; see
`korean.conjugate`. The choices of each kind are listed in a fixed order, so that the same random
numbers give the same sentences.
"""

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
    return {
        **amount_fillers(),
        **people_and_places(),
        **events_and_goods(),
        **verbs_and_adjectives(),
        "future": adverbs("future"),
        "past": adverbs("day") + adverbs("past"),
        "day": adverbs("day"),
        "habit": adverbs("habit"),
    }


def people_and_places() -> dict[str, tuple[Filler, ...]]:
    """Return people, cities, venues and the means of getting there."""
    towns, abroad = (tuple(city(*row) for row in rows(name)) for name in ("towns", "abroad"))
    venues = [(venue(*row[:3]), row[3]) for row in rows("venues")]
    return {
        "person": tuple(person(*row) for row in rows("people")),
        "city": towns + abroad,
        "town": towns,
        "abroad": abroad,
        "venue": tuple(filler for filler, _ in venues),
        "hangout": tagged(venues, "h"),
        "shop": tagged(venues, "s"),
        "hall": tagged(venues, "e"),
        "suite": tagged(venues, "f"),
        "job": tuple(noun(*row) for row in rows("jobs")),
        "family": simple("family"),
        "ride": simple("rides"),
        "vehicle": simple("vehicles"),
        "position": simple("positions"),
    }


def events_and_goods() -> dict[str, tuple[Filler, ...]]:
    """Return events, and goods, animals and people in numbers."""
    events = [(plain(row[0], row[1], (("event", row[0]),)), row[2]) for row in rows("events")]
    goods, animals = rows("goods"), rows("animals")
    nouns = [(noun(row[0], row[2]), row[3]) for row in goods]
    return {
        "event": tuple(filler for filler, _ in events),
        "show": tagged(events, "p"),
        "sight": tagged(events, "w"),
        "annual": tagged(events, "y"),
        "session": tagged(events, "a"),
        "thing": tagged(nouns, "d"),
        "machine": tagged(nouns, "m"),
        "goods": tuple(counted(row, n) for row in goods if "m" not in row[3] for n in COUNTS),
        "gear": tuple(counted(row, n) for row in goods if row[3] for n in COUNTS),
        "animals": tuple(counted(row, n) for row in animals if not row[3] for n in COUNTS),
        "pets": tuple(counted(row, n) for row in animals if row[3] for n in COUNTS),
        "group": tuple(counted(row, n) for row in rows("groups") for n in (*COUNTS, *CROWDS)),
        "role": tuple(plain(row[0], plural(row[2])) for row in rows("groups")),
    }


def verbs_and_adjectives() -> dict[str, tuple[Filler, ...]]:
    """Return verbs, adjectives, reasons and the weather."""
    activities = [(verb(*row[:8]), row[8]) for row in rows("activities")]
    deeds = [(verb("", *row[:6]), row[6]) for row in rows("deeds")]
    sky = [(weather(*row[:7]), row[7]) for row in rows("weather")]
    traits = [(adjective(*row[:4]), row[4]) for row in rows("traits")]
    return {
        "activity": tuple(filler for filler, _ in activities),
        "pastime": tagged(activities, "p"),
        "skill": tagged(activities, "s"),
        "routine": tuple(verb(*row) for row in rows("routines")),
        "deed": tuple(filler for filler, _ in deeds),
        "favor": tagged(deeds, "r"),
        "trait": tuple(filler for filler, _ in traits),
        "charm": tagged(traits, "c"),
        "quality": tuple(
            Filler(conjugate(*row[:3]), {"": row[4], "more": row[3]}) for row in rows("qualities")
        ),
        "rank": simple("ranks"),
        "reason": simple("reasons"),
        "weather": tuple(filler for filler, _ in sky),
        "storm": tagged(sky, "b"),
    }


def rows(name: str) -> list[list[str]]:
    """Read the entries of a word file, each as the list of its fields."""
    text = (files(__package__) / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return [line.split("|") for line in text.splitlines() if not line.startswith("#")]


def simple(name: str) -> tuple[Filler, ...]:
    """Return the fillers of a word file that has one form in each language."""
    return tuple(plain(korean, english) for korean, english in rows(name))


def tagged(choices: list[tuple[Filler, str]], tag: str) -> tuple[Filler, ...]:
    """Return the fillers with this tag."""
    return tuple(filler for filler, tags in choices if tag in tags.split())


def person(korean: str, english: str, pronoun: str) -> Filler:
    """Return a name with its pronouns."""
    him, his = PRONOUNS[pronoun]
    forms = {"": english, "he": pronoun, "He": pronoun.capitalize(), "him": him, "his": his}
    return Filler({"": korean}, forms, (("person", korean),))


def city(korean: str, english: str) -> Filler:
    """Return a city, with the preposition `in` and no article."""
    return Filler({"": korean}, {"": english, "at": f"in {english}"}, (("place", korean),))


def venue(korean: str, english: str, preposition: str) -> Filler:
    """Return a place with its article and preposition."""
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


def verb(*fields: str) -> Filler:
    """Return a verb in all forms; the fields are those of `activities.txt`."""
    before, stem, infinitive, soft, base, past, ing, *rest = fields
    after = f" {rest[0]}" if rest and rest[0] else ""
    forms = {"": base, "s": third_person(base), "past": past, "ing": ing}
    endings = conjugate(stem, infinitive, soft)
    return Filler(
        {name: f"{before} {form}".strip() for name, form in endings.items()},
        {name: form + after for name, form in forms.items()},
    )


def adjective(stem: str, infinitive: str, soft: str, english: str) -> Filler:
    """Return an adjective, also with an article for use before a noun."""
    return Filler(conjugate(stem, infinitive, soft), {"": english, "a": with_article(english)})


def weather(*fields: str) -> Filler:
    """Return a clause about the weather."""
    subject, stem, infinitive, soft, present, past, future = fields
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
