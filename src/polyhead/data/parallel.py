"""Sentence pairs, read from two files that run in parallel or from one that holds both sides.

A pair is kept only if both sides are there. What is left out is never silent: every bad line is in
`skipped` with its place and its reason, or is an error right away (`on_bad_line="fail"`). Files of
unequal length are always an error, because nobody can know which line is missing. The place of
every pair in its file stays known, so that later complaints can say `file:line`.
"""

import hashlib
import os
import unicodedata
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from polyhead.data.doctor.alignment import judge
from polyhead.data.records import Keys, Record, records_of
from polyhead.data.text_files import BadLine as BadLine  # a part of this module's own vocabulary
from polyhead.data.text_files import Text, read_text
from polyhead.errors import ConfigError, DataError

OnBadLine = Literal["skip", "fail"]
Numbers = npt.NDArray[np.int64]


class Origin(NamedTuple):
    """Where pair i comes from: `line[i]` of `source_files[file[i]]` and of its partner."""

    source_files: tuple[str, ...]
    target_files: tuple[str, ...]
    file: Numbers
    line: Numbers


@dataclass(frozen=True)
class Pairs:
    """Parallel sentences, none of them empty, and what was left out on the way to them."""

    sources: list[str]
    targets: list[str]
    origin: Origin | None = field(default=None, compare=False, repr=False)
    skipped: tuple[BadLine, ...] = ()
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.targets):
            raise ValueError(f"{len(self.sources)} sources but {len(self.targets)} targets")

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)

    def where(self, index: int, side: Literal["source", "target"] = "source") -> str:
        """The place of one side of a pair, as `file:line`."""
        if self.origin is None:
            return f"pair {index + 1}"
        source, target, file, line = self.origin
        files = source if side == "source" else target
        return f"{files[file[index]]}:{line[index]}"

    def select(self, indices: Sequence[int]) -> "Pairs":
        """These pairs, in this order, with their places; what was skipped stays behind."""
        origin = self.origin
        if origin is not None:
            chosen = np.array(indices, dtype=np.int64)
            origin = origin._replace(file=origin.file[chosen], line=origin.line[chosen])
        return Pairs([self.sources[i] for i in indices], [self.targets[i] for i in indices], origin)


def read_parallel(
    sources: Sequence[Path],
    targets: Sequence[Path],
    *,
    on_bad_line: OnBadLine = "skip",
    encoding: str = "utf-8",
    target_encoding: str | None = None,
) -> Pairs:
    """Pairs from files of which line n of sources[i] translates line n of targets[i].

    `target_encoding` is for sides that were not written on the same machine.
    """
    if len(sources) != len(targets):
        raise ConfigError(
            f"{len(sources)} source files but {len(targets)} target files: every source file needs "
            "its target file, in the same order"
        )
    texts = []
    for source_path, target_path in zip(sources, targets, strict=True):
        refuse_same_file(source_path, target_path)
        source = read_text(source_path, encoding=encoding)
        target = read_text(target_path, encoding=target_encoding or encoding)
        refuse_unequal(source, target)
        texts.append((source, target))
    return gather([side_by_side(*sides) for sides in texts], texts, on_bad_line)


def read_pair_file(
    paths: Sequence[Path],
    *,
    source_key: str | None = None,
    target_key: str | None = None,
    on_bad_line: OnBadLine = "skip",
    encoding: str = "utf-8",
) -> Pairs:
    """Pairs from files that hold both sides: .tsv, .jsonl or .json, also with .gz after it.

    The keys name columns (by heading, or by number from 1) or fields of a JSON object. Without
    them they are the first two columns, or "source" and "target".
    """
    texts = [read_text(path, encoding=encoding) for path in paths]
    for text in texts:
        refuse_empty(text)
    records = [records_of(text, Keys(source_key, target_key)) for text in texts]
    return gather(records, [(text, text) for text in texts], on_bad_line)


def side_by_side(source: Text, target: Text) -> Iterator[Record]:
    """The lines of two files as pairs."""
    bad_sources = {bad.line: bad for bad in source.bad}
    bad_targets = {bad.line: bad for bad in target.bad}
    for line, pair in enumerate(zip(source.lines, target.lines, strict=True), start=1):
        yield Record(line, *pair, bad_sources.get(line) or bad_targets.get(line))


def gather(
    files: Sequence[Iterator[Record]], texts: Sequence[tuple[Text, Text]], on_bad_line: OnBadLine
) -> Pairs:
    """Keep the pairs of all files, and do with the bad lines as asked."""
    sources: list[str] = []
    targets: list[str] = []
    places: list[tuple[int, int]] = []
    skipped: list[BadLine] = []
    for number, records in enumerate(files):
        for record in records:
            bad = record.bad or empty(record, texts[number])
            if bad is None:
                sources.append(record.source)
                targets.append(record.target)
                places.append((number, record.line))
            elif on_bad_line == "skip":
                skipped.append(bad)
            else:
                way_out = '--on-bad-line skip (data.on_bad_line = "skip")'
                raise DataError(f"{bad}; correct it, or leave such lines out with {way_out}")
    refuse_nothing(sources, targets, skipped, [text.name for sides in texts for text in sides])
    notices = dict.fromkeys(notice for sides in texts for text in sides for notice in text.notices)
    file, line = np.array(places, dtype=np.int64).T
    origin = Origin(
        tuple(source.name for source, _ in texts),
        tuple(target.name for _, target in texts),
        file,
        line,
    )
    return Pairs(sources, targets, origin, tuple(skipped), tuple(notices))


def empty(record: Record, sides: tuple[Text, Text]) -> BadLine | None:
    """The reason why a record with an empty side is no pair."""
    no_source, no_target = not record.source.strip(), not record.target.strip()
    if no_source and no_target:
        return BadLine(sides[0].name, record.line, "both sides are empty")
    if no_source:
        return BadLine(sides[0].name, record.line, "the source is empty")
    return BadLine(sides[1].name, record.line, "the target is empty") if no_target else None


def hold_out(pairs: Pairs, amount: int | float, seed: int) -> tuple[Pairs, Pairs]:
    """Part the pairs into (train, held out): a count of them, or a fraction between 0 and 1.

    All pairs with the same source, but for case and blanks, go to the same side: a model that has
    seen the question must not be examined with it. So a few less than asked for may be held out.
    Which sources are, follows from the seed and the sentence alone, and changes little when the
    corpus grows.
    """
    fraction = amount if isinstance(amount, float) else amount / max(1, len(pairs))
    wanted = round(fraction * len(pairs)) if 0 < fraction < 1 else 0
    if not 0 < wanted < len(pairs):
        raise ConfigError(
            f"cannot hold out {amount} of {len(pairs)} pairs: give a count below their number, or "
            "a fraction between 0 and 1 that comes to at least one pair"
        )
    held = drawn(pairs.sources, wanted, seed)
    if not held:
        raise DataError(
            f"cannot hold out {wanted} of {len(pairs)} pairs: every source occurs more often than "
            "that, and its repetitions must stay together"
        )
    chosen = set(held)
    train = pairs.select([index for index in range(len(pairs)) if index not in chosen])
    train = replace(train, skipped=pairs.skipped, notices=pairs.notices)
    return train, pairs.select(sorted(held))


def drawn(texts: Sequence[str], wanted: int, seed: int, never: Container[str] = ()) -> list[int]:
    """The places of about so many texts, at most as many; equal ones are drawn together.

    Equal are those that are the same when `plain`; `never` are such that are not to be drawn.
    """
    groups: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(plain(text), []).append(index)
    held: list[int] = []
    for key in sorted(groups, key=lambda sentence: lot(sentence, seed)):
        if key not in never and len(held) + len(groups[key]) <= wanted:
            held += groups[key]
    return held


def plain(text: str) -> str:
    """A sentence without what does not make it another sentence: case, blanks, composition."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def lot(text: str, seed: int) -> bytes:
    """A number drawn for a sentence, the same on every machine."""
    return hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).digest()


def refuse_same_file(source: Path, target: Path) -> None:
    """A file is not its own translation."""
    try:
        same = source == target or os.path.samefile(source, target)
    except (OSError, ValueError):
        return  # one of them cannot be opened, which is said better when it is
    if same:
        raise DataError(f"{source} is given as source and as target: give two files")


def refuse_empty(text: Text) -> None:
    """A file must have lines."""
    if not text.lines:
        raise DataError(f"{text.name} is empty: it has no lines at all")


def refuse_unequal(source: Text, target: Text) -> None:
    """Two parallel files have as many lines as each other."""
    refuse_empty(source)
    refuse_empty(target)
    if len(source.lines) != len(target.lines):
        raise DataError(
            f"{source.name} has {len(source.lines):,} lines, {target.name} has "
            f"{len(target.lines):,}: line n of the one must translate line n of the other"
            f"{parting(source, target)}"
        )


def parting(source: Text, target: Text) -> str:
    """A hint at where two files of unequal length part, as the end of a sentence."""
    longer, shorter = sorted((source, target), key=lambda text: -len(text.lines))
    extra = longer.lines[len(shorter.lines) :]
    if not any(line.strip() for line in extra):
        return f"; what {longer.name} has more is empty lines at its end: remove them"
    parted = judge(source.lines, target.lines).parted
    return f"; they seem to part near line {parted[0].start + 1:,}" if parted else ""


def refuse_nothing(
    sources: list[str], targets: list[str], skipped: list[BadLine], names: list[str]
) -> None:
    """A corpus needs at least one pair, and two sides that differ."""
    where = ", ".join(dict.fromkeys(names[:6]))
    if not sources:
        reason = f"; the first reason: {skipped[0]}" if skipped else ""
        raise DataError(f"{where}: not one usable pair in {len(skipped):,} lines{reason}")
    if len(sources) > 1 and sources == targets:
        raise DataError(f"{where}: source and target are the same text; give two languages")
