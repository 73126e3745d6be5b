"""Korean particles and verb endings, chosen by the sound of the preceding word.

    책 + 은 → 책은    지우 + 은 → 지우는    서울 + 으로 → 서울로    10 + 으로 → 10으로

For 으로/로, ㄹ counts as a vowel. Digits are read as Sino-Korean numbers, Latin capitals as the
names of their letters, and other Latin words by the usual rules of transcription, which is a guess.
"""

import re
import unicodedata

FINALS = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")  # in Unicode's order
FIRST, LAST = "가", "힣"

PARTICLES = {  # after a consonant: after a vowel
    "은": "는", "이": "가", "을": "를", "과": "와", "으로": "로", "아": "야", "이고": "고",
    "이에요": "예요", "이었어요": "였어요", "이나": "나", "이랑": "랑", "이라고": "라고",
    "이라면": "라면",
}  # fmt: skip

DIGIT_FINALS = ("ㅇ", "ㄹ", "", "ㅁ", "", "", "ㄱ", "ㄹ", "ㄹ", "")  # 영, 일, 이, 삼, 사, 오 …
SMALL_POWERS = ("", "ㅂ", "ㄱ", "ㄴ")  # 십, 백, 천 by the number of zeros
LARGE_POWERS = ("", "ㄴ", "ㄱ", "", "ㅇ")  # 만, 억, 조, 경 by every four zeros
LETTER_FINALS = {"L": "ㄹ", "M": "ㅁ", "N": "ㄴ", "R": "ㄹ"}  # 엘, 엠, 엔, 알; the others are open
CURRENCY_FINALS = {"₩": "ㄴ", "¥": "ㄴ", "$": "", "€": "", "£": ""}  # read last: 원, 엔, 달러
UNIT_FINALS = {"%": "", "°C": "", "°": "", "℃": "", "km": "", "cm": "", "mm": "", "m": "", "L": "",
               "ml": "", "kg": "ㅁ", "mg": "ㅁ", "g": "ㅁ"}  # fmt: skip

NUMBER = re.compile(r"([₩¥$€£]?)(\d[\d,]*(?::\d\d)?(?:\.\d+)?)\s?(%|°C|°|℃|[kcm]?m|[km]?g|ml|L)?$")
LATIN = re.compile(r"[A-Za-z]+$")
SPELLINGS = (  # how a Latin word ends, and the consonant Hangul has there; the first match counts
    (re.compile(r"ng$"), "ㅇ"),
    (re.compile(r"le?$"), "ㄹ"),
    (re.compile(r"(m|[aeiou]me)$"), "ㅁ"),
    (re.compile(r"(n|[aeioun]ne)$"), "ㄴ"),
    (re.compile(r"ook$"), "ㄱ"),
    (re.compile(r"(?<![aeiou])[aeiou][pb]$"), "ㅂ"),
    (re.compile(r"(?<![aeiou])[aeiou]t$"), "ㅅ"),
    (re.compile(r"(?<![aeiou])[aeiou](c|k|ck)$"), "ㄱ"),
)


def final(word: str) -> str:
    """Return the final consonant of the word when read aloud, or '' (a vowel, no reading)."""
    word = unicodedata.normalize("NFC", word).rstrip(" '\"’”)]}」』》")
    if not word:
        return ""
    if FIRST <= word[-1] <= LAST:
        return FINALS[(ord(word[-1]) - ord(FIRST)) % len(FINALS)]
    if number := NUMBER.search(word):
        return _number_final(*number.groups(default=""))
    latin = LATIN.search(word)
    if latin and latin[0].isupper():
        return LETTER_FINALS.get(word[-1], "")
    lower = latin[0].lower() if latin else ""
    return next((consonant for ending, consonant in SPELLINGS if ending.search(lower)), "")


def attach(word: str, particle: str) -> str:
    """Append the right form of the particle, which is named by its form after a consonant."""
    if particle not in PARTICLES:
        raise ValueError(f"particle {particle!r}: expected one of {', '.join(PARTICLES)}")
    consonant = final(word)
    is_open = not consonant or (particle == "으로" and consonant == "ㄹ")
    return word + (PARTICLES[particle] if is_open else particle)


def conjugate(stem: str, infinitive: str, soft: str = "") -> dict[str, str]:
    """Return the forms of a verb or adjective from its stem and its 아/어 form.

    soft: the stem before 으 (걷 → 걸으, 돕 → 도우); derived where it is regular.
    """
    if not soft:
        soft = stem if final(stem) in ("", "ㄹ") else stem + "으"
    no_l = with_final(stem, "") if final(stem) == "ㄹ" else stem  # ㄹ falls before ㄴ, ㅂ and ㅅ
    is_closed = bool(final(no_l))
    return {
        "": stem,
        "polite": infinitive + "요",  # 읽어요
        "past": with_final(infinitive, "ㅆ"),  # 읽었(어요)
        "formal": no_l + "습니다" if is_closed else with_final(no_l, "ㅂ") + "니다",  # 읽습니다
        "plain": no_l + "는다" if is_closed else with_final(no_l, "ㄴ") + "다",  # 읽는다
        "doing": no_l + "는",  # 읽는 (것), verbs only
        "done": with_final(soft, "ㄴ"),  # 읽은; of adjectives: 작은
        "will": with_final(soft, "ㄹ"),  # 읽을 (거예요)
        "if": soft + "면",
        "to": soft + "러",  # in order to
        "please": (no_l if soft == stem else soft) + "세요",
    }


def with_final(word: str, consonant: str) -> str:
    """Replace the final consonant of the last syllable: 가 + ㄹ → 갈, 갈 + ㅆ → 갔."""
    start = ord(word[-1]) - ord(FIRST)
    return word[:-1] + chr(ord(FIRST) + start - start % len(FINALS) + FINALS.index(consonant))


def _number_final(currency: str, number: str, unit: str) -> str:
    """Return the final of a number: ₩500 ends with its currency, 3kg with its unit."""
    if unit:
        return UNIT_FINALS[unit]
    if currency:
        return CURRENCY_FINALS[currency]
    if ":" in number:
        return "" if number.endswith(":00") else "ㄴ"
    whole, _, fraction = number.replace(",", "").partition(".")
    if fraction:
        return DIGIT_FINALS[int(fraction[-1])]  # read digit by digit
    significant = whole.lstrip("0").rstrip("0")
    n_zeros = len(whole.lstrip("0")) - len(significant)
    if not significant or n_zeros == 0:
        return DIGIT_FINALS[int(whole[-1])]
    if n_zeros < len(SMALL_POWERS):
        return SMALL_POWERS[n_zeros]
    return LARGE_POWERS[min(n_zeros // 4, len(LARGE_POWERS) - 1)]
