"""Checks of a corpus before training; nothing is changed.

The checks know no language: unusual is judged by the corpus itself, such as its median ratio of
lengths, or the script of most lines. Held-out sets are compared with the training text, because
shared sentences make scores too high.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from polyhead.config import from_dict
from polyhead.data.config import DataConfig
from polyhead.data.doctor.alignment import AlignedSpan, judge
from polyhead.data.doctor.findings import (
    MAX_EXAMPLES,
    SEVERITIES,
    CorpusFinding,
    CorpusReport,
    FindingExample,
    by_share,
    examples_of,
)
from polyhead.data.holdout import normalized
from polyhead.data.parallel import Pairs, read_pairs

MAX_RATIO = 3.0  # times the corpus's median ratio of lengths
SMOOTH = 10  # characters added to both lengths, so that short lines may differ more
MAX_CHARACTERS = 1_000

SCRIPTS = {  # all but Latin, which occurs in all texts (names, code)
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
# UTF-8 decoded as Latin-1 or CP1252: Ã¤, â€™, ì•ˆ; and CP949 decoded so: ¾È³ç
_TRAIL = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
MOJIBAKE = re.compile(
    f"[ÂÃ]{_TRAIL}|[â-ï]{_TRAIL}{{2}}|ð{_TRAIL}{{3}}|(?:[ÐÑ]{_TRAIL}){{2}}|[\u00a1-\u00fe]{{4,}}"
)


NO_SETS: Mapping[str, Pairs] = MappingProxyType({})


def check_files(
    files: dict[str, list[str]], tests: dict[str, list[str]], encoding: str
) -> CorpusReport:
    """Check a corpus; the keys of `files` and `tests` are source, target and pairs."""
    config = from_dict(DataConfig, {**files, "encoding": encoding}, "data.")
    train = read_pairs(config, config.source, config.target, config.pairs, "data")
    held_out = {}
    if any(tests.values()):
        test = from_dict(DataConfig, {**tests, "encoding": encoding}, "test.")
        held_out["test"] = read_pairs(test, test.source, test.target, test.pairs, "test")
    return check_pairs(train, held_out)


def check_pairs(train: Pairs, held_out: Mapping[str, Pairs] = NO_SETS) -> CorpusReport:
    """Check the training pairs, and their overlap with each named held-out set."""
    findings = [finding for check_pairs in CHECKS for finding in check_pairs(train)]
    findings += misalignment(train, "the training text")
    for name, pairs in held_out.items():
        findings += misalignment(pairs, name)
    findings += overlap(train, held_out)
    findings.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), -finding.count))
    return CorpusReport(len(train), tuple(findings))


def _finding(
    name: str,
    pairs: Pairs,
    indices: Sequence[int],
    title: str,
    advice: str,
    *,
    warning: float,
    error: float = 2.0,
) -> Iterator[CorpusFinding]:
    """Yield a finding about these pairs, if there are any; shares give its severity."""
    if indices:
        severity = by_share(len(indices), len(pairs), warning=warning, error=error)
        examples = examples_of(pairs, indices)
        yield CorpusFinding(name, severity, title, len(indices), examples, advice)


def skipped_lines(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Find lines that were skipped while reading, by kind of reason."""
    kinds = Counter(re.sub(r" \(.*| at column.*|;.*", "", bad.why) for bad in pairs.skipped)
    for kind, count in kinds.most_common():
        of_kind = (bad for bad in pairs.skipped if bad.why.startswith(kind))
        shown = [FindingExample(f"{bad.file}:{bad.line}", bad.why) for bad in of_kind]
        yield CorpusFinding(
            name="skipped",
            severity=by_share(count, len(pairs) + count, warning=0.01, error=0.2),
            title=f"skipped lines: {kind}",
            count=count,
            examples=tuple(shown[:MAX_EXAMPLES]),
            advice='correct them if they matter; on_bad_line = "fail" stops at the first',
        )


def repeated(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Find pairs that are exact repetitions."""
    seen: set[tuple[str, str]] = set()
    again = []
    for index, pair in enumerate(pairs):
        if pair in seen:
            again.append(index)
        seen.add(pair)
    advice = "repetitions count double in training; remove them unless that is intended"
    yield from _finding("repeated", pairs, again, "repeated pairs", advice, warning=0.1)


def untranslated(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Find pairs with equal sides."""
    equal = [i for i, (source, target) in enumerate(pairs) if source.strip() == target.strip()]
    title = "source and target are the same"
    advice = "normal for a few names and numbers; many teach the model to copy: remove them"
    yield from _finding("untranslated", pairs, equal, title, advice, warning=0.02, error=0.3)


def unequal_lengths(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Find pairs with an unusual ratio of lengths, in characters or in words."""
    unusual = np.zeros(len(pairs), dtype=np.bool_)
    for measure, smooth in ((len, SMOOTH), (_n_words, SMOOTH / 5)):
        lengths = np.array([[measure(s), measure(t)] for s, t in pairs], dtype=np.float64)
        if (np.median(lengths, axis=0) < 3).any():  # a script without spaces: no words to count
            continue
        log_ratio = np.diff(np.log(lengths + smooth), axis=1)[:, 0]
        unusual |= abs(log_ratio - np.median(log_ratio)) > np.log(MAX_RATIO)
    title = f"ratio of lengths more than {MAX_RATIO:g} times the usual one"
    advice = "often half a sentence or two sentences: remove wrong translations"
    indices = np.flatnonzero(unusual).tolist()
    yield from _finding("lengths", pairs, indices, title, advice, warning=0.01, error=0.2)


def _n_words(text: str) -> int:
    return len(text.split())


def overlong(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Find paragraphs where sentences are expected."""
    long = [i for i, pair in enumerate(pairs) if max(map(len, pair)) > MAX_CHARACTERS]
    title = f"lines of more than {MAX_CHARACTERS:,} characters"
    advice = "training truncates or drops lines above its limit; split them"
    yield from _finding("overlong", pairs, long, title, advice, warning=0.05)


def odd_characters(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Find control characters, U+FFFD, mojibake and decomposed letters (NFD)."""
    kinds: tuple[tuple[str, str, float, str, Callable[[str], bool]], ...] = (
        ("control", "control characters or stray line and byte order marks", 0.01,
         "remove them; some programs take them for line ends",
         lambda text: CONTROL.search(text) is not None),
        ("replacement", "the replacement character U+FFFD: text was lost in an earlier conversion",
         0.001, "convert the original file again with the right encoding",
         lambda text: "\ufffd" in text),
        ("mojibake", "text decoded with the wrong encoding, such as Ã¤ for ä", 0.001,
         "convert the original file again with the right encoding", is_mojibake),
        ("decomposed", "decomposed letters (Unicode NFD, as macOS writes)", 2.0,
         "nothing: the tokenizer composes them (NFC)",
         lambda text: not unicodedata.is_normalized("NFC", text)),
    )  # fmt: skip
    for name, title, warning, advice, test in kinds:
        indices = [i for i, pair in enumerate(pairs) if any(map(test, pair))]
        yield from _finding(name, pairs, indices, title, advice, warning=warning)


def is_mojibake(text: str) -> bool:
    """Return whether a part of the text, encoded again, is UTF-8 or Korean."""
    if text.isascii():
        return False
    for match in MOJIBAKE.finditer(text):
        piece = match[0]
        raw = bytes(ord(c) if ord(c) < 256 else c.encode("cp1252")[0] for c in piece)
        if reads_as(raw, "utf-8") or (len(raw) >= 4 and reads_as(raw, "cp949", SCRIPTS["Hangul"])):
            return True
    return False


def reads_as(raw: bytes, encoding: str, script: re.Pattern[str] | None = None) -> bool:
    """Return whether the bytes are text in this encoding, and all of it in this script if given."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return script is None or all(map(script.match, text))


def scripts(pairs: Pairs) -> Iterator[CorpusFinding]:
    """Find lines in the script of the other side, or in that of neither side."""
    usual = [main_script(side) for side in (pairs.sources, pairs.targets)]
    swapped: list[int] = []
    source: list[int] = []
    target: list[int] = []
    for index, pair in enumerate(pairs):
        fits = [written_in(text, script) for text, script in zip(pair, usual, strict=True)]
        if all(fits):
            continue
        crossed = usual[0] != usual[1] and not any(fits)
        if crossed and written_in(pair[0], usual[1]) and written_in(pair[1], usual[0]):
            swapped.append(index)
        else:
            (target if fits[0] else source).append(index)
    other = "usually untranslated lines, or lines of another language: remove them"
    for name, indices, title, advice in (
        ("swapped", swapped, f"source and target are swapped ({usual[1]} to {usual[0]})",
         "swap them back"),
        ("source", source, f"source lines without {usual[0]} letters", other),
        ("target", target, f"target lines without {usual[1]} letters", other),
    ):  # fmt: skip
        kind = f"script-{name}"
        yield from _finding(kind, pairs, indices, title, advice, warning=0.02, error=0.5)


def main_script(lines: Sequence[str]) -> str:
    """Return the script of most lines of a side; Latin if no other is in half of them."""
    sample = lines[:: max(1, len(lines) // 2_000)]
    frequency = Counter(name for line in sample for name, s in SCRIPTS.items() if s.search(line))
    name, count = max(frequency.items(), key=lambda item: item[1], default=("Latin", 0))
    return name if 2 * count > len(sample) else "Latin"


def written_in(text: str, script: str) -> bool:
    """Return whether a line has letters of the script; a line without letters fits every script.

    For Latin, letters of other scripts must not be in the majority.
    """
    if text.isascii():
        return script == "Latin" or not LATIN.search(text)
    if script != "Latin":
        return bool(SCRIPTS[script].search(text)) or not any(map(str.isalpha, text))
    n_letters = sum(map(str.isalpha, text))
    return 2 * len(LATIN.findall(text)) >= n_letters


def misalignment(pairs: Pairs, name: str) -> Iterator[CorpusFinding]:
    """Find where the two sides are shifted against each other."""
    verdict = judge(pairs.sources, pairs.targets)
    if not verdict.related:
        yield CorpusFinding(
            name="unrelated",
            severity="error",
            title=f"the lines of {name} do not seem to be translations",
            count=len(pairs),
            examples=examples_of(pairs, range(len(pairs))),
            advice="check that the two files belong together and that neither was sorted",
        )
    for span in verdict.misaligned_spans:
        start, stop = pairs.where(span.start), pairs.where(span.stop - 1)
        end = "on" if span.stop == len(pairs) else f"to about {stop}"
        yield CorpusFinding(
            name="misaligned",
            severity="error",
            title=f"the two sides of {name} are misaligned from about {start} {end}",
            count=span.stop - span.start,
            examples=examples_of(pairs, range(span.start, span.stop)),
            advice=_alignment_advice(span),
        )


def _alignment_advice(span: AlignedSpan) -> str:
    if span.offset is None:
        return "these lines match no neighbouring lines either: compare the two files there"
    side, other = ("target", "source") if span.offset > 0 else ("source", "target")
    lines = f"{abs(span.offset)} line{'s' * (abs(span.offset) > 1)}"
    return f"before that place the {side} has {lines} too many, or the {other} lacks as many"


def overlap(train: Pairs, held_out: Mapping[str, Pairs]) -> Iterator[CorpusFinding]:
    """Find sentences of held-out sets in the training text, ignoring case and white space."""
    if not held_out:
        return
    sources = [normalized(source) for source in train.sources]
    targets = [normalized(target) for target in train.targets]
    known_sources, known_targets = set(sources), set(targets)
    known_pairs = set(zip(sources, targets, strict=True))
    for name, pairs in held_out.items():
        shared: dict[str, list[int]] = {"pair": [], "source": [], "target": []}
        for index, (source, target) in enumerate(pairs):
            pair = normalized(source), normalized(target)
            if pair in known_pairs:
                shared["pair"].append(index)
            elif pair[0] in known_sources:
                shared["source"].append(index)
            elif pair[1] in known_targets:
                shared["target"].append(index)
        advice = f"remove them from training, or scores on {name} are too high"
        for kind, (sentences, warning, error) in OVERLAPS.items():
            title = f"{sentences} of {name} that are also in the training text"
            yield from _finding(
                f"overlap-{kind}", pairs, shared[kind], title, advice, warning=warning, error=error
            )


OVERLAPS = {  # kind: title, shares of a warning and of an error
    "pair": ("pairs", 0.002, 0.05),
    "source": ("sources (with another target)", 0.005, 0.1),
    "target": ("targets (of another source)", 0.05, 2.0),
}
CHECKS = (
    skipped_lines,
    repeated,
    untranslated,
    unequal_lengths,
    overlong,
    odd_characters,
    scripts,
)
