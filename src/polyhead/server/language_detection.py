"""Which language a text may be in, by the script of its letters: simple, and honest about it.

Every letter has one vote. It goes to those of our languages that are written in its script, split
evenly: 가 votes for Korean alone, 家 for Korean, Japanese and Chinese alike, and "a" can tell no
English from German. The confidence is the share of the votes, in percent.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from babel.core import get_global

# Scripts (ISO 15924) by the first words of their letters' names in Unicode.
LETTERS = {
    "Arab": ("ARABIC",),
    "Cyrl": ("CYRILLIC",),
    "Deva": ("DEVANAGARI",),
    "Grek": ("GREEK",),
    "Hans": ("CJK",),
    "Hant": ("CJK",),
    "Hebr": ("HEBREW",),
    "Jpan": ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK"),
    "Kore": ("HANGUL", "CJK"),
    "Latn": ("LATIN",),
    "Thai": ("THAI",),
}


def detect(texts: Sequence[str], codes: Sequence[str]) -> list[tuple[str, float]]:
    """All languages with their confidence in percent, likeliest first; equal ones keep their order.

    A language whose script nobody knows gets none.
    """
    plain = unicodedata.normalize("NFKC", "".join(texts))  # wide and half-width letters too
    counts = Counter(_kind(letter) for letter in plain if letter.isalpha())
    kinds = {code: _kinds_of(code) for code in dict.fromkeys(codes)}
    votes = dict.fromkeys(kinds, 0.0)
    for kind, count in counts.items():
        written = [code for code in kinds if kind in kinds[code]]
        for code in written:
            votes[code] += count / len(written)
    total = max(1, counts.total())
    found = [(code, round(100 * share / total, 1)) for code, share in votes.items()]
    return sorted(found, key=lambda one: -one[1])


def _kind(letter: str) -> str:
    """LATIN for é, HANGUL for 가."""
    return unicodedata.name(letter, "").partition(" ")[0]


def _kinds_of(code: str) -> tuple[str, ...]:
    """The kinds of letters that a language is written in: ko is ko-Kore-KR unless it says more."""
    likely: Mapping[str, str] = get_global("likely_subtags")
    parts = code.replace("-", "_").split("_")
    whole = likely.get("_".join(parts)) or likely.get(parts[0]) or ""
    named = [part.title() for part in parts[1:] if len(part) == 4]
    scripts = named or [part for part in whole.split("_") if len(part) == 4]
    return LETTERS.get(scripts[0], ()) if scripts else ()
