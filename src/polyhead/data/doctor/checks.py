"""Checks of a corpus before training. They know no language: the corpus itself defines unusual."""

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

import numpy as np

from polyhead.config import from_dict
from polyhead.data.config import DataConfig
from polyhead.data.doctor.alignment import AlignedSpan, judge_all
from polyhead.data.doctor.findings import (
    SEVERITIES,
    CheckedPairs,
    CorpusFinding,
    CorpusReport,
    FindingExample,
    about_pairs,
    describe,
)
from polyhead.data.holdout import normalized
from polyhead.data.line_spool import CountedLines
from polyhead.data.parallel import open_pairs
from polyhead.data.text_files import decoded

MAX_RATIO = 3.0  # times the corpus's median ratio of lengths
SMOOTH = 10  # characters added to both lengths, so that short lines may differ more
MAX_CHARACTERS = 1_000

HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
SCRIPTS = {  # all but Latin, which occurs in all texts (names, code)
    "Hangul": HANGUL,
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
# UTF-8 decoded as Latin-1 or CP1252: Ã¤, â€™, ì•ˆ; and CP949 decoded so: ¾È³ç
_TRAIL = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
MOJIBAKE = re.compile(
    f"[ÂÃ]{_TRAIL}|[â-ï]{_TRAIL}{{2}}|ð{_TRAIL}{{3}}|(?:[ÐÑ]{_TRAIL}){{2}}|[\u00a1-\u00fe]{{4,}}"
)

NO_SETS: Mapping[str, CheckedPairs] = MappingProxyType({})


def check_files(
    files: dict[str, list[str]],
    tests: dict[str, list[str]],
    encoding: str,
    columns: tuple[str | None, str | None] = (None, None),
) -> CorpusReport:
    """Check a corpus; the keys of `files` and `tests` are source, target and pairs.

    The text is copied to temporary files, and memory does not hold it.
    """
    keys = dict(zip(("source_key", "target_key"), columns, strict=True))
    sets = {"data": {**files, **keys}} | ({"test": {**tests}} if any(tests.values()) else {})
    pairs = {}
    for name, options in sets.items():
        config = from_dict(DataConfig, {**options, "encoding": encoding}, f"{name}.")
        pairs[name] = CheckedPairs(
            open_pairs(config, config.source, config.target, config.pairs, name)
        )
    return check_pairs(pairs.pop("data"), pairs)


def check_pairs(
    train: CheckedPairs, held_out: Mapping[str, CheckedPairs] = NO_SETS
) -> CorpusReport:
    """Check the training pairs, and their overlap with each named held-out set."""
    findings = [*skipped_lines(train)]
    limits = {"max_ratio": MAX_RATIO, "max_characters": MAX_CHARACTERS}
    hits: dict[str, Sequence[int]] = {"repeated": repeated(train), **odd_pairs(train)}
    hits["sharing"] = sharing(train, hits["repeated"])
    hits["lengths"] = unequal_lengths(train)
    for name, indices in hits.items():
        findings += about_pairs(name, train, indices, limits)
    findings += scripts(train)
    for name, pairs in {"the training text": train, **held_out}.items():
        findings += misalignment(pairs, name)
    findings += overlap(train, held_out)
    findings.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), -finding.count))
    return CorpusReport(len(train), tuple(findings))


def skipped_lines(pairs: CheckedPairs) -> Iterator[CorpusFinding]:
    """Find lines that were skipped while reading, by kind of reason."""
    kinds = Counter(re.sub(r" \(.*| at column.*|;.*", "", bad.why) for bad in pairs.skipped)
    for kind, count in kinds.most_common():
        of_kind = (bad for bad in pairs.skipped if bad.why.startswith(kind))
        examples = [FindingExample(f"{bad.file}:{bad.line}", bad.why) for bad in of_kind]
        share = count / (len(pairs) + count)
        yield describe("skipped", examples, share, count, {"reason": kind})


def repeated(pairs: CheckedPairs) -> Sequence[int]:
    """Find pairs that are exact repetitions, by hashes of 64 bits."""
    hashes = np.fromiter(map(hash, pairs), np.int64, len(pairs))
    is_repeated = np.ones(len(pairs), dtype=np.bool_)
    is_repeated[np.unique(hashes, return_index=True)[1]] = False
    return array("q", np.flatnonzero(is_repeated).tobytes())


def sharing(pairs: CheckedPairs, repetitions: Sequence[int]) -> Sequence[int]:
    """Find pairs that share a side with another pair, ignoring case, white space, repetitions."""
    shares, is_new = np.zeros((2, len(pairs)), np.bool_), np.ones(len(pairs), np.bool_)
    is_new[np.asarray(repetitions, np.int64)] = False
    for side, is_shared in zip((pairs.sources, pairs.targets), shares, strict=True):
        hashes = np.fromiter((hash(normalized(text)) for text in side), np.int64, len(pairs))
        _, text, counts = np.unique(hashes[is_new], return_inverse=True, return_counts=True)
        is_shared[is_new] = counts[text] > 1
    return array("q", np.flatnonzero(shares.any(0)).tobytes())


def odd_pairs(pairs: CheckedPairs) -> Mapping[str, Sequence[int]]:
    """Find pairs that are equal, or of which a side passes a test, by the names of the tests."""
    hits = {name: array("i") for name in ("untranslated", *TESTS)}
    for index, (source, target) in enumerate(pairs):
        if source.strip() == target.strip():
            hits["untranslated"].append(index)
        for name, test in TESTS.items():
            if test(source) or test(target):
                hits[name].append(index)
    return hits


def unequal_lengths(pairs: CheckedPairs) -> Sequence[int]:
    """Find pairs with an unusual ratio of lengths, in characters or in words."""
    units = (n for pair in pairs for text in pair for n in (len(text), len(text.split())))
    lengths = np.fromiter(units, np.int32, 4 * len(pairs)).reshape(-1, 2, 2)
    unusual = np.zeros(len(pairs), dtype=np.bool_)
    for unit, smooth in ((0, SMOOTH), (1, SMOOTH / 5)):
        source, target = lengths[:, 0, unit], lengths[:, 1, unit]
        if min(np.median(source), np.median(target)) < 3:  # a script without spaces: no words
            continue
        log_ratio = np.log(target + smooth) - np.log(source + smooth)
        log_ratio -= np.median(log_ratio)
        unusual |= abs(log_ratio) > np.log(MAX_RATIO)
    return array("q", np.flatnonzero(unusual).tobytes())


def is_mojibake(text: str) -> bool:
    """Return whether a part of the text, encoded again, is UTF-8 or Korean."""
    if text.isascii():
        return False
    for match in MOJIBAKE.finditer(text):
        raw = bytes(ord(c) if ord(c) < 256 else c.encode("cp1252")[0] for c in match[0])
        korean = decoded(raw, "cp949") if len(raw) >= 4 else None
        if decoded(raw, "utf-8") is not None or (korean and all(map(HANGUL.match, korean))):
            return True
    return False


def scripts(pairs: CheckedPairs) -> Iterator[CorpusFinding]:
    """Find lines in the script of the other side, or in that of neither side."""
    usual = [main_script(side) for side in (pairs.sources, pairs.targets)]
    misfits = {"swapped": array("i"), "source": array("i"), "target": array("i")}
    for index, pair in enumerate(pairs):
        fits = [written_in(text, script) for text, script in zip(pair, usual, strict=True)]
        if all(fits):
            continue
        crossed = usual[0] != usual[1] and not any(fits)
        if crossed and written_in(pair[0], usual[1]) and written_in(pair[1], usual[0]):
            misfits["swapped"].append(index)
        else:
            misfits["target" if fits[0] else "source"].append(index)
    names = {"source": usual[0], "target": usual[1]}
    for kind, indices in misfits.items():
        yield from about_pairs(f"script-{kind}", pairs, indices, names)


def main_script(lines: CountedLines) -> str:
    """Return the script of most lines of a side; Latin if no other is in half of them."""
    sample = list(islice(lines, 0, None, max(1, len(lines) // 2_000)))
    frequency = Counter(name for line in sample for name, s in SCRIPTS.items() if s.search(line))
    name, count = max(frequency.items(), key=lambda item: item[1], default=("Latin", 0))
    return name if 2 * count > len(sample) else "Latin"


def written_in(text: str, script: str) -> bool:
    """Return whether a line has letters of the script (if Latin, mainly), or no letters at all."""
    if text.isascii():
        return script == "Latin" or not LATIN.search(text)
    if script != "Latin":
        return bool(SCRIPTS[script].search(text)) or not any(map(str.isalpha, text))
    n_letters = sum(map(str.isalpha, text))
    return 2 * len(LATIN.findall(text)) >= n_letters


def misalignment(pairs: CheckedPairs, name: str) -> Iterator[CorpusFinding]:
    """Find where the two sides are shifted against each other."""
    verdict = judge_all(pairs.sources, pairs.targets)
    if not verdict.related:
        yield from about_pairs("unrelated", pairs, range(len(pairs)), {"set": name})
    for span in verdict.misaligned_spans:
        start, stop = pairs.where(span.start), pairs.where(span.stop - 1)
        end = "on" if span.stop == len(pairs) else f"to about {stop}"
        values = {"set": name, "start": start, "end": end, "misalignment": _alignment_advice(span)}
        yield from about_pairs("misaligned", pairs, range(span.start, span.stop), values)


def _alignment_advice(span: AlignedSpan) -> str:
    if span.offset is None:
        return "these lines match no neighbouring lines either: compare the two files there"
    side, other = ("target", "source") if span.offset > 0 else ("source", "target")
    lines = f"{abs(span.offset)} line{'s' * (abs(span.offset) > 1)}"
    return f"before that place the {side} has {lines} too many, or the {other} lacks as many"


def overlap(train: CheckedPairs, held_out: Mapping[str, CheckedPairs]) -> Iterator[CorpusFinding]:
    """Find sentences of held-out sets in the training text, ignoring case and white space."""
    sets = {
        name: [(normalized(source), normalized(target)) for source, target in pairs]
        for name, pairs in held_out.items()
    }
    searched = [set(side) for side in zip(*chain.from_iterable(sets.values()), strict=True)]
    known: tuple[set[Any], ...] = (set(), set(), set())  # sources, targets, pairs
    for source, target in train if searched else ():
        pair = normalized(source), normalized(target)
        sides = [number for number in (0, 1) if pair[number] in searched[number]]
        for number in sides:
            known[number].add(pair[number])
        if len(sides) == 2:
            known[2].add(pair)
    for name, normal in sets.items():
        shared = {"pair": array("i"), "source": array("i"), "target": array("i")}
        for index, pair in enumerate(normal):
            if pair in known[2]:
                shared["pair"].append(index)
            elif pair[0] in known[0]:
                shared["source"].append(index)
            elif pair[1] in known[1]:
                shared["target"].append(index)
        for kind, indices in shared.items():
            yield from about_pairs(f"overlap-{kind}", held_out[name], indices, {"set": name})


TESTS: dict[str, Callable[[str], object]] = {  # of one side, by their names in findings.toml
    "overlong": lambda text: len(text) > MAX_CHARACTERS,
    "control": CONTROL.search,
    "replacement": lambda text: "\ufffd" in text,
    "mojibake": is_mojibake,
    "decomposed": lambda text: not unicodedata.is_normalized("NFC", text),
}
