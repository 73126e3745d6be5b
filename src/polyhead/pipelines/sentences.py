"""Sentences of a text: `split_sentences("안녕하세요. Dr. Kim입니다.")`.

A sentence ends after a group of stops (. ! ? … and their full-width forms) with its closing quotes
and brackets, except in

    abbreviations   Dr. Kim, e.g. apples, the U.S. army, J. K. Rowling, No. 5, z.B.
    numbers         3.14, "1. Open the door.", 2024. 3. 5., am 3. Oktober, 제1조.
    quotations      "Stop!" he said.   "가자!"라고 말했다.
    ellipses        Well... I do not know.   그게... 잘 모르겠어요.

Without a space after it, a stop ends a sentence after a Korean final ending (갔다.그리고), after !
and ?, and between a lower-case and a capitalized word (ended.Then). So does every line break.
"""

import re

TITLES = re.compile(
    "mr|mrs|ms|dr|prof|gen|sen|gov|rev|capt|cpt|lt|col|maj|sgt|cpl|pvt|hon|messrs|mme|mlle|st|mt|ft"
    "|sr|pres|supt|hr|fr"
)
ABBREVIATIONS = re.compile(
    "eg|ie|vs|cf|approx|ca|est|al|inc|co|ltd|corp|jr|dept|ave|blvd|rd|apt|tel|ext|max|min|avg|lbs?"
    "|oz|tbsp|tsp|deg|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|bzw|usw|ggf|evtl|nr|str"
)
BEFORE_NUMBERS = re.compile("nos?|figs?|sec|eqs?|vol|ch|chap|art|pp?|bd|abb|tab")
STARTERS = re.compile(  # these rarely follow an abbreviation within a sentence
    r"(?:An?|The|He|She|It|They|We|You|I|This|That|These|Those|There|Then|But|And|So|If|In|On|At"
    r"|When|What|Who|Why|How|His|Her|Its|Their|Our|My|Your|However|After|Before|All|Some)\b"
)
QUOTES = "\"'"
CLOSERS = "”’)]」』》〉】）］“"  # “ closes a German „
OPENERS = "“‘([「『《〈【（［"
FULL_WIDTH = "。！？．"
STOPS = re.compile(
    rf"[.!?…{FULL_WIDTH}](?:[.!?…{FULL_WIDTH}{re.escape(CLOSERS)}{QUOTES}]|\[\d+\])*"
)
ONE_SENTENCE = re.compile(  # on one line, with stops at its end only
    rf"[^.!?…{FULL_WIDTH}\n\r\v\f\x1c-\x1e\x85\u2028\u2029]*[.!?…{FULL_WIDTH}]*"
)
DATE = re.compile(r"\b\d{4}\.\s?\d{1,2}\.\s?\d{1,2}\.")
LAST_WORD = re.compile(r"[^\s\"“”‘’(\[]*$")
ENUMERATOR = re.compile(r"\s*[\"“(\[]?(?:\d{1,3}|[가나다라마바사]|제\s?\d+[조항장절관])")
ORDINAL = re.compile(
    r"\b(?:am|der|die|das|den|dem|des|im|vom|zum|beim|bis|ab|seit)\s\d{1,2}$", re.IGNORECASE
)
INITIALS = re.compile(r"[A-Z]|(?:[^\W\d]{1,2}\.)+[^\W\d]{1,2}")
REPORTED = re.compile(r"하[고며자면더는여]|했|한다|이?라[고며는]|이?란|[고며]\s")
FINAL_ENDING = re.compile(r"[가-힣][다요죠까네군]$")
ADDRESS = re.compile(r"://|@|www\.")


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences, each with the white space after it; joined they are the text."""
    if ONE_SENTENCE.fullmatch(text):
        return [text]
    sentences = [""]
    for line in text.splitlines(keepends=True):
        start = len(line) - len(line.lstrip())
        sentences[-1] += line[:start]
        for stops in STOPS.finditer(line):
            end = _end_of_stops(line, stops)
            after = line[end:].lstrip()
            if after and _ends_sentence(line, start, stops.start(), end):
                sentences.append(line[start : len(line) - len(after)])
                start = len(line) - len(after)
        rest = line[start:]
        if rest.strip():
            sentences.append(rest)
        else:
            sentences[-1] += rest
    if len(sentences) > 1:
        sentences[1] = sentences[0] + sentences[1]
    return sentences[1:] or sentences


def _end_of_stops(line: str, stops: re.Match[str]) -> int:
    """Return the end of a group of stops without a straight quote that opens a quotation."""
    for position in range(stops.start(), stops.end()):
        before = line[:position]
        if line[position] == '"' and before.count('"') % 2 == 0:
            return position
        if line[position] == "“" and before.count("„") <= before.count("“"):
            return position
        if line[position] == "'" and len(re.findall(r"(?<!\w)'|'(?!\w)", before)) % 2 == 0:
            return position
    return stops.end()


def _ends_sentence(line: str, start: int, position: int, end: int) -> bool:
    """Return True if the stops from `position` to `end` end the sentence that begins at `start`."""
    before, stops, after = line[start:position], line[position:end], line[end:]
    following = after.lstrip()
    is_closed = stops[-1] in CLOSERS + QUOTES
    if following == after:
        if any(stop in FULL_WIDTH for stop in stops):
            return True
        return not is_closed and _ends_without_space(before, stops[0], following)
    if is_closed and (following[0].islower() or REPORTED.match(following)):
        return False
    if "…" in stops or ".." in stops:
        return _ends_after_ellipsis(before.rstrip(), following)
    if is_closed or "!" in stops or "?" in stops:
        return not (before.endswith("Yahoo") and following[0].islower())
    return not (
        any(date.start() < position < date.end() for date in DATE.finditer(line))
        or ENUMERATOR.fullmatch(before)
        or ORDINAL.search(before)
        or _is_abbreviation(_last_word(before), following)
    )


def _ends_without_space(before: str, stop: str, following: str) -> bool:
    word, first = _last_word(before), following[0]
    if ADDRESS.search(word) or not (first.isalpha() or first in OPENERS + QUOTES):
        return False
    if stop != ".":
        return stop != "…" and len(word) > 1
    if FINAL_ENDING.search(word):
        return not (first.isascii() and first.isalpha())
    is_next_sentence = re.match(r"[A-Z](?:[a-z]|\s)|[(\"'“]", following)
    return bool(re.fullmatch(r"[A-Za-z']*[a-z]{2}", word) and is_next_sentence)


def _ends_after_ellipsis(before: str, following: str) -> bool:
    if "가" <= before[-1:] <= "힣":
        return FINAL_ENDING.search(before) is not None
    return not following[0].islower() and not re.match(r"I\b", following)


def _is_abbreviation(word: str, following: str) -> bool:
    """Return True if the period after a word belongs to the word."""
    plain = word.replace(".", "").lower()
    if TITLES.fullmatch(plain):
        return True
    if BEFORE_NUMBERS.fullmatch(plain):
        return following[0].isdigit()
    if plain == "etc":
        return not following[0].isupper()
    is_known = ABBREVIATIONS.fullmatch(plain) or INITIALS.fullmatch(word)
    return bool(is_known) and not STARTERS.match(following)


def _last_word(text: str) -> str:
    match = LAST_WORD.search(text)
    return match[0] if match else ""
