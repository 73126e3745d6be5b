"""What can fill a slot of a "schedules" pattern: the words of the tables in all their forms.

Everything is finite and listed once, so that a choice is a number, and two runs that draw the same
numbers write the same sentences.
"""

from functools import cache

from polyhead.data.schedules import words
from polyhead.data.schedules.amounts import WORDS, amount_fillers, native, plain, weekdays
from polyhead.data.schedules.korean import conjugate
from polyhead.data.schedules.patterns import Filler

COUNTS = range(1, 13)
CROWDS = (15, 20, 25, 30, 40, 50, 100, 200)  # groups may be larger than hands can count
PRONOUNS = {"he": ("him", "his"), "she": ("her", "her")}
IRREGULAR = {"child": "children", "goldfish": "goldfish", "deer": "deer", "wolf": "wolves"}
LIKE_A_CONSONANT = ("uni", "use", "usb")


@cache
def fillers() -> dict[str, tuple[Filler, ...]]:
    """All that can fill a slot, by kind."""
    return {
        **amount_fillers(),
        **people_and_places(),
        **events_and_things(),
        **deeds_and_qualities(),
        "future": when(words.FUTURE),
        "past": when(words.PAST),
        "day": when(words.DAY),
        "habit": when(words.HABIT),
    }


def people_and_places() -> dict[str, tuple[Filler, ...]]:
    """Who and where."""
    cities = tuple(city(*row) for row in rows(words.CITIES))
    venues = [(venue(*row[:3]), row[3]) for row in rows(words.VENUES)]
    return {
        "person": tuple(person(*row) for row in rows(words.PEOPLE)),
        "city": cities,
        "town": cities[: words.DOMESTIC],
        "abroad": cities[words.DOMESTIC :],
        "venue": tuple(filler for filler, _ in venues),
        "hangout": tagged(venues, "h"),
        "shop": tagged(venues, "s"),
        "hall": tagged(venues, "e"),
        "suite": tagged(venues, "f"),
        "job": tuple(noun(*row) for row in rows(words.JOBS)),
        "family": simple(words.FAMILY),
        "ride": simple(words.RIDES),
        "vehicle": simple(words.VEHICLES),
        "position": simple(words.POSITIONS),
    }


def events_and_things() -> dict[str, tuple[Filler, ...]]:
    """What takes place, and what can be counted."""
    events = [(plain(row[0], row[1], (("event", row[0]),)), row[2]) for row in rows(words.EVENTS)]
    goods, animals = rows(words.GOODS), rows(words.ANIMALS)
    things = [(noun(row[0], row[2]), row[3]) for row in goods]
    return {
        "event": tuple(filler for filler, _ in events),
        "show": tagged(events, "p"),
        "sight": tagged(events, "w"),
        "annual": tagged(events, "y"),
        "session": tagged(events, "a"),
        "thing": tagged(things, "d"),
        "machine": tagged(things, "m"),
        "goods": tuple(counted(row, n) for row in goods if "m" not in row[3] for n in COUNTS),
        "gear": tuple(counted(row, n) for row in goods if row[3] for n in COUNTS),
        "animals": tuple(counted(row, n) for row in animals if not row[3] for n in COUNTS),
        "pets": tuple(counted(row, n) for row in animals if row[3] for n in COUNTS),
        "group": tuple(counted(row, n) for row in rows(words.GROUPS) for n in (*COUNTS, *CROWDS)),
        "role": tuple(plain(row[0], plural(row[2])) for row in rows(words.GROUPS)),
    }


def deeds_and_qualities() -> dict[str, tuple[Filler, ...]]:
    """What somebody does, and what something is like."""
    activities = [(verb(*row[:8]), row[8]) for row in rows(words.ACTIVITIES)]
    deeds = [(verb("", *row[:6]), row[6]) for row in rows(words.DEEDS)]
    sky = [(weather(*row[:7]), row[7]) for row in rows(words.WEATHER)]
    traits = [(adjective(*row[:4]), row[4]) for row in rows(words.TRAITS)]
    return {
        "activity": tuple(filler for filler, _ in activities),
        "pastime": tagged(activities, "p"),
        "skill": tagged(activities, "s"),
        "routine": tuple(verb(*row) for row in rows(words.ROUTINES)),
        "deed": tuple(filler for filler, _ in deeds),
        "favor": tagged(deeds, "r"),
        "trait": tuple(filler for filler, _ in traits),
        "charm": tagged(traits, "c"),
        "quality": tuple(
            Filler(conjugate(*row[:3]), {"": row[4], "more": row[3]})
            for row in rows(words.QUALITIES)
        ),
        "rank": simple(words.RANKS),
        "reason": simple(words.REASONS),
        "weather": tuple(filler for filler, _ in sky),
        "storm": tagged(sky, "b"),
    }


def rows(table: str) -> list[list[str]]:
    """The entries of a table of words, each as the list of its fields."""
    entries = table.strip().replace("\n", ";").split(";")
    return [entry.strip().split("|") for entry in entries]


def simple(table: str) -> tuple[Filler, ...]:
    """The fillers of a table that has one form in each language."""
    return tuple(plain(korean, english) for korean, english in rows(table))


def tagged(choices: list[tuple[Filler, str]], tag: str) -> tuple[Filler, ...]:
    """Those that carry the tag."""
    return tuple(filler for filler, tags in choices if tag in tags.split())


def person(korean: str, english: str, pronoun: str) -> Filler:
    """A name, and what stands for it later in the sentence."""
    him, his = PRONOUNS[pronoun]
    forms = {"": english, "he": pronoun, "He": pronoun.capitalize(), "him": him, "his": his}
    return Filler({"": korean}, forms, (("person", korean),))


def city(korean: str, english: str) -> Filler:
    """A city: no article, and one is *in* it."""
    return Filler({"": korean}, {"": english, "at": f"in {english}"}, (("place", korean),))


def venue(korean: str, english: str, preposition: str) -> Filler:
    """A place with an article and a preposition of its own."""
    forms = {"": f"the {english}", "at": f"{preposition} the {english}", "noun": english}
    return Filler({"": korean}, forms, (("place", korean),))


def noun(korean: str, english: str) -> Filler:
    """A thing that can be one or many."""
    return Filler({"": korean}, {"": english, "a": with_article(english), "s": plural(english)})


def counted(row: list[str], number: int) -> Filler:
    """So many of something: 책 세 권, three books; 책 한 권, a book; 학생 25명, 25 students."""
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
    """What somebody does, in all forms; the fields are those of `schedules_words.ACTIVITIES`."""
    before, stem, infinitive, soft, base, past, ing, *rest = fields
    after = f" {rest[0]}" if rest and rest[0] else ""
    forms = {"": base, "s": third_person(base), "past": past, "ing": ing}
    endings = conjugate(stem, infinitive, soft)
    return Filler(
        {name: f"{before} {form}".strip() for name, form in endings.items()},
        {name: form + after for name, form in forms.items()},
    )


def adjective(stem: str, infinitive: str, soft: str, english: str) -> Filler:
    """What something is like; with an article for use before a noun."""
    return Filler(conjugate(stem, infinitive, soft), {"": english, "a": with_article(english)})


def weather(*fields: str) -> Filler:
    """What the sky does, as a clause."""
    subject, stem, infinitive, soft, present, past, future = fields
    forms = conjugate(stem, infinitive, soft)
    return Filler(
        {name: f"{subject} {form}" for name, form in forms.items()},
        {"if": present, "past": past, "will": future},
    )


def when(table: str) -> tuple[Filler, ...]:
    """Adverbs of time; an entry about a {weekday} stands for seven."""
    found = []
    for korean, english in rows(table):
        if "{weekday}" not in korean:
            found.append(plain(korean, english))
            continue
        for day in weekdays():
            source = korean.replace("{weekday}", day.korean[""])
            found.append(plain(source, english.replace("{weekday}", day.english[""]), day.marks))
    return tuple(found)


def with_article(noun: str) -> str:
    """The noun after a or an, which goes by sound: an umbrella, a university."""
    lower = noun.lower()
    is_vowel = lower[0] in "aeiou" and not lower.startswith(LIKE_A_CONSONANT)
    return f"{'an' if is_vowel else 'a'} {noun}"


def plural(noun: str) -> str:
    """More than one: boxes of chocolates, dictionaries, children."""
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
    """What he or she does: goes, has, studies, watches."""
    base, space, rest = verb.partition(" ")
    if base == "have":
        return "has" + space + rest
    if base.endswith("o"):
        return base + "es" + space + rest
    return plural(base) + space + rest
