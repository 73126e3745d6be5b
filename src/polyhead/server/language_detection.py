"""Language detection by script.

Every letter votes for the candidate languages that are written in its script, with equal shares: 가
for Korean, 家 for Korean, Japanese and Chinese. English and German cannot be distinguished.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence

from babel.core import get_global

# Scripts (ISO 15924) by the first word of their letters' Unicode names.
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


def detect_language(texts: Sequence[str], codes: Sequence[str]) -> list[tuple[str, float]]:
    """Return all languages with their confidence in percent, highest first (stable).

    Languages whose script is unknown have confidence 0.
    """
    plain = unicodedata.normalize("NFKC", "".join(texts))  # half- and full-width letters
    counts = Counter(
        unicodedata.name(letter, "").partition(" ")[0] for letter in plain if letter.isalpha()
    )
    letters = {code: _letters_of(code) for code in dict.fromkeys(codes)}
    votes = dict.fromkeys(letters, 0.0)
    for kind, count in counts.items():
        candidates = [code for code in letters if kind in letters[code]]
        for code in candidates:
            votes[code] += count / len(candidates)
    total = max(1, counts.total())
    confidences = [(code, round(100 * share / total, 1)) for code, share in votes.items()]
    return sorted(confidences, key=lambda pair: -pair[1])


def _letters_of(code: str) -> tuple[str, ...]:
    """Return the kinds of letters of a language; ko stands for ko-Kore-KR (CLDR likely subtags)."""
    likely: Mapping[str, str] = get_global("likely_subtags")
    parts = code.replace("-", "_").split("_")
    full = likely.get("_".join(parts)) or likely.get(parts[0]) or ""
    given = [part.title() for part in parts[1:] if len(part) == 4]
    scripts = given or [part for part in full.split("_") if len(part) == 4]
    return LETTERS.get(scripts[0], ()) if scripts else ()
