"""Sentences of a text: `split_sentences("안녕하세요. Dr. Kim입니다.", "ko")`.

Boundaries are those of the package sentencex for the language, and every line break. Of Korean, a
final ending with its stops is one too (갔다.그리고), and these are none:

    dates and numbers   2024. 3. 5. 오후, 1. 문을, 가. 첫째, 제1조. 목적은
    quotations          "가자!"라고 말했다.
    ellipses            그게... 잘 모르겠어요.
"""

import re
from collections.abc import Iterator
from itertools import accumulate

import sentencex

CONTEXT = 40  # characters that decide
SPACE = re.compile(r"\s*")
HANGUL = re.compile(r"[가-힣]")
QUOTES = "\"'”’"
CLOSERS = rf"(?:[{QUOTES})\]」』》〉】]|\[\d+\])+"
FINAL_ENDING = re.compile(  # and its stops, and closing marks if a space follows
    rf"[가-힣][다요죠까네군][.!?。！？…]+(?:{CLOSERS}(?=\s))?(?=[^.!?\d{QUOTES})\]])"
)
ELLIPSIS = re.compile(rf"[가-힣](?:…|\.\.)[.…{QUOTES})]*$")
REPORTED = re.compile(r"하[고며자면더는여]|했|한다|이?라[고며는]|이?란|[고며]\s")
DATE = re.compile(r"\b\d{4}\.\s?\d{1,2}\.\s?\d{1,2}\.")
ENUMERATOR = re.compile(r"[\"“(\[]?(?:\d{1,3}|[가나다라마바사]|제\s?\d+[조항장절관])\.\)?")


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """Split a text into sentences, each with the white space after it; joined they are the text.

    language: its code; rules of English are the default.
    """
    sentences = [""]
    for line in text.splitlines(keepends=True):
        start = len(line) - len(line.lstrip())
        sentences[-1] += line[:start]
        for end in _boundaries(line, language or "en"):
            sentences.append(line[start:end])
            start = end
        if line[start:].strip():
            sentences.append(line[start:])
        else:
            sentences[-1] += line[start:]
    if len(sentences) > 1:
        sentences[1] = sentences[0] + sentences[1]
    return sentences[1:] or sentences


def _boundaries(line: str, language: str) -> Iterator[int]:
    """Yield where the sentences of a line end, with the white space after them; not the last."""
    ends = {*accumulate(map(len, sentencex.segment(language, line)))}
    if HANGUL.search(line):
        ends |= {ending.end() for ending in FINAL_ENDING.finditer(line)}
    dates = {n for date in DATE.finditer(line) for n in range(date.start() + 1, date.end() + 2)}
    start = 0
    for place in sorted(ends):
        end = SPACE.match(line, place).end()  # type: ignore[union-attr]  # it matches anything
        after = line[end : end + CONTEXT]
        before = line[max(start, place - CONTEXT) : place].strip()
        if (
            after
            and before
            and place not in dates
            and not ENUMERATOR.fullmatch(before)
            and not (ELLIPSIS.search(before) and not FINAL_ENDING.search(f"{before} "))
            and not (before[-1] in QUOTES and REPORTED.match(after))
            and after[0] not in ")]"
        ):
            yield end
            start = end
