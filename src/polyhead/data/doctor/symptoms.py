"""Signs of trouble in single pairs of a corpus; each function looks for one kind.

None of them knows a language. What is unusual is judged by the corpus itself: its median ratio of
lengths, the script that most lines of a side are written in.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from polyhead.data.doctor.report import MAX_EXAMPLES, CorpusFinding, Example, by_share, examples
from polyhead.data.parallel import Pairs

MAX_RATIO = 3.0  # times the corpus's usual ratio of lengths
SMOOTH = 10  # characters added to both lengths: «Hi!» may well be twice as long
MAX_CHARACTERS = 1_000

SCRIPTS = {  # every script but the Latin one, which names and code bring into all texts
    "Hangul": re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]"),
    "Chinese or Japanese": re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]"),
    "Cyrillic": re.compile("[\u0400-\u04ff]"),
    "Greek": re.compile("[\u0370-\u03ff]"),
    "Arabic": re.compile("[\u0600-\u06ff]"),
    "Hebrew": re.compile("[\u0590-\u05ff]"),
    "Devanagari": re.compile("[\u0900-\u097f]"),
    "Thai": re.compile("[\u0e00-\u0e7f]"),
}
LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# UTF-8 that was read as Latin-1 or CP1252: Ã¤, â€™, ì•ˆ. And CP949 that was: ¾È³ç
_TRAIL = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
MOJIBAKE = re.compile(
    f"[ÂÃ]{_TRAIL}|[â-ï]{_TRAIL}{{2}}|ð{_TRAIL}{{3}}|(?:[ÐÑ]{_TRAIL}){{2}}|[\u00a1-\u00fe]{{4,}}"
)


def skipped_lines(pairs: Pairs) -> Iterator[CorpusFinding]:
    """What was left out when the corpus was read, one finding for each kind of reason."""
    kinds = Counter(re.sub(r" \(.*| at column.*|;.*", "", bad.why) for bad in pairs.skipped)
    for kind, count in kinds.most_common():
        of_kind = (bad for bad in pairs.skipped if bad.why.startswith(kind))
        shown = [Example(f"{bad.file}:{bad.line}", bad.why) for bad in of_kind]
        yield CorpusFinding(
            name="skipped",
            severity=by_share(count, len(pairs) + count, warning=0.01, error=0.2),
            title=f"lines left out: {kind}",
            count=count,
            examples=tuple(shown[:MAX_EXAMPLES]),
            advice='correct them if they matter; on_bad_line = "fail" stops at the first',
        )


def repeated(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Pairs that occur again, letter for letter."""
    seen: set[tuple[str, str]] = set()
    again = []
    for index, pair in enumerate(pairs):
        if pair in seen:
            again.append(index)
        seen.add(pair)
    if again:
        yield CorpusFinding(
            name="repeated",
            severity=by_share(len(again), len(pairs), warning=0.1),
            title="pairs that occurred before",
            count=len(again),
            examples=examples(pairs, again),
            advice="repetitions count double in training; remove them unless that is meant",
        )


def untranslated(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Pairs whose two sides are the same."""
    found = [i for i, (source, target) in enumerate(pairs) if source.strip() == target.strip()]
    if found:
        yield CorpusFinding(
            name="untranslated",
            severity=by_share(len(found), len(pairs), warning=0.02, error=0.3),
            title="source and target are the same",
            count=len(found),
            examples=examples(pairs, found),
            advice="a few names and numbers are right; many teach the model to copy: remove them",
        )


def unequal_lengths(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Pairs of which one side is far longer than usual, in characters or in words."""
    wrong = np.zeros(len(pairs), dtype=np.bool_)
    for measure, smooth in ((len, SMOOTH), (n_words, SMOOTH / 5)):
        lengths = np.array([[measure(s), measure(t)] for s, t in pairs], dtype=np.float64)
        if (np.median(lengths, axis=0) < 3).any():  # a script without blanks: no words to count
            continue
        log_ratio = np.diff(np.log(lengths + smooth), axis=1)[:, 0]
        wrong |= abs(log_ratio - np.median(log_ratio)) > np.log(MAX_RATIO)
    found = np.flatnonzero(wrong).tolist()
    if found:
        yield CorpusFinding(
            name="lengths",
            severity=by_share(len(found), len(pairs), warning=0.01, error=0.2),
            title=f"one side more than {MAX_RATIO:g} times as long as usual beside the other",
            count=len(found),
            examples=examples(pairs, found),
            advice="mostly half a sentence or two: remove what is no translation",
        )


def n_words(text: str) -> int:
    """How many words are divided by blanks."""
    return len(text.split())


def overlong(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Paragraphs where sentences are expected."""
    found = [i for i, pair in enumerate(pairs) if max(map(len, pair)) > MAX_CHARACTERS]
    if found:
        yield CorpusFinding(
            name="overlong",
            severity=by_share(len(found), len(pairs), warning=0.05),
            title=f"lines of more than {MAX_CHARACTERS:,} characters",
            count=len(found),
            examples=examples(pairs, found),
            advice="training cuts or leaves out what is longer than its limit; split them",
        )


def odd_characters(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Characters that no one meant to write: control characters, U+FFFD, mojibake; and NFD."""
    kinds: tuple[tuple[str, str, float, str, Callable[[str], bool]], ...] = (
        ("control", "control characters or stray line and byte order marks", 0.01,
         "remove them; programs that take them for line ends lose count",
         lambda text: CONTROL.search(text) is not None),
        ("replacement", "the replacement character U+FFFD: text was lost in an earlier conversion",
         0.001, "convert again from the original file in its right encoding",
         lambda text: "\ufffd" in text),
        ("mojibake", "text that was once read in the wrong encoding, as Ã¤ for ä", 0.001,
         "convert again from the original file in its right encoding", is_mojibake),
        ("decomposed", "letters in pieces (Unicode NFD, as macOS writes)", 2.0,
         "nothing: the tokenizer composes them (NFC)",
         lambda text: not unicodedata.is_normalized("NFC", text)),
    )  # fmt: skip
    for name, title, warning, advice, test in kinds:
        found = [i for i, pair in enumerate(pairs) if any(map(test, pair))]
        if found:
            severity = by_share(len(found), len(pairs), warning=warning)
            yield CorpusFinding(name, severity, title, len(found), examples(pairs, found), advice)


def is_mojibake(text: str) -> bool:
    """Whether a stretch of the text, taken back to bytes, is UTF-8 or Korean after all."""
    if text.isascii():
        return False
    for match in MOJIBAKE.finditer(text):
        piece = match[0]
        raw = bytes(ord(c) if ord(c) < 256 else c.encode("cp1252")[0] for c in piece)
        if reads_as(raw, "utf-8") or (len(raw) >= 4 and reads_as(raw, "cp949", SCRIPTS["Hangul"])):
            return True
    return False


def reads_as(raw: bytes, encoding: str, script: re.Pattern[str] | None = None) -> bool:
    """Whether the bytes are text in this encoding, and all of it in this script if one is given."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return script is None or all(map(script.match, text))


def scripts(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Lines that are written in the other side's script, or in one of neither side."""
    usual = [main_script(side) for side in (pairs.sources, pairs.targets)]
    found: dict[str, list[int]] = {"swapped": [], "source": [], "target": []}
    for index, pair in enumerate(pairs):
        fits = [written_in(text, script) for text, script in zip(pair, usual, strict=True)]
        if all(fits):
            continue
        crossed = usual[0] != usual[1] and not any(fits)
        if crossed and written_in(pair[0], usual[1]) and written_in(pair[1], usual[0]):
            found["swapped"].append(index)
        else:
            found["source" if not fits[0] else "target"].append(index)
    titles = {
        "swapped": f"source and target are exchanged ({usual[1]} to {usual[0]})",
        "source": f"source lines without {usual[0]} letters",
        "target": f"target lines without {usual[1]} letters",
    }
    for name, indices in found.items():
        if indices:
            yield CorpusFinding(
                name=f"script-{name}",
                severity=by_share(len(indices), len(pairs), warning=0.02, error=0.5),
                title=titles[name],
                count=len(indices),
                examples=examples(pairs, indices),
                advice="exchange them back"
                if name == "swapped"
                else "mostly untranslated lines, or lines of another language: remove them",
            )


def main_script(lines: Sequence[str]) -> str:
    """The script that most lines of a side contain; Latin if no other is in half of them."""
    sample = lines[:: max(1, len(lines) // 2_000)]
    found = Counter(name for line in sample for name, s in SCRIPTS.items() if s.search(line))
    name, count = max(found.items(), key=lambda item: item[1], default=("Latin", 0))
    return name if 2 * count > len(sample) else "Latin"


def written_in(text: str, script: str) -> bool:
    """Whether a line has letters of the script; a line without any letters fits them all.

    For Latin, letters of other scripts must not be in the majority.
    """
    if text.isascii():
        return script == "Latin" or not LATIN.search(text)
    if script != "Latin":
        return bool(SCRIPTS[script].search(text)) or not any(map(str.isalpha, text))
    n_letters = sum(map(str.isalpha, text))
    return 2 * len(LATIN.findall(text)) >= n_letters


EVERY_SYMPTOM = (
    skipped_lines,
    repeated,
    untranslated,
    unequal_lengths,
    overlong,
    odd_characters,
    scripts,
)
