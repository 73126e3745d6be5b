"""Sentence pairs, read from two parallel files or from one file that holds both sides.

A pair is kept only if both sides have text. Every bad line is listed in `skipped` with its place
and reason, or raises an error (`on_bad_line="fail"`). Files of unequal length are always an error,
because the missing line is unknown.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import NamedTuple

from polyhead.data.columns import PAIR_ROLES, Keys, Record, read_columns, show_pairs
from polyhead.data.config import DataConfig, HoldOutBy
from polyhead.data.doctor.alignment import judge
from polyhead.data.holdout import (
    MAX_SHARE_OF_PAIRS,
    Corpus,
    Drawn,
    draw_groups,
    held_out_count,
    held_out_notice,
)
from polyhead.data.languages import SAMPLE, configured_languages, text_language
from polyhead.data.line_spool import CountedLines, Examples, LineSpool
from polyhead.data.text_files import (
    BadLine,
    BadLines,
    OnBadLine,
    TextLines,
    open_text,
    read_lines,
    skipped_notices,
)
from polyhead.errors import ConfigError, DataError

MAX_COMPARED = 1_000_000  # lines of unequal files that are compared for a hint


@dataclass(frozen=True)
class Pairs:
    """Parallel sentences in memory, none of them empty, and the lines that were left out."""

    sources: list[str]
    targets: list[str]
    skipped: tuple[BadLine, ...] = ()
    notices: tuple[str, ...] = ()
    languages: tuple[str, str] = ("", "")  # by names of columns or files, or by the text

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)


def load_parallel(config: DataConfig, seed: int, spool: LineSpool) -> "Corpus[LineSpool, Examples]":
    """Read the sentence pairs of a configuration; those for training into a spool."""
    reader = open_pairs(config, config.source, config.target, config.pairs, "data")
    spool.write(reader)
    named = configured_languages(config)
    languages = named[0] or reader.languages[0], named[1] or reader.languages[1]
    notices = [*reader.notices]
    files = config.valid_source, config.valid_target, config.valid_pairs
    if any(files):
        pairs = read_pairs(config, *files, "data.valid")
        notices += pairs.notices
        valid = Examples(pairs.sources, pairs.targets)
    else:
        n_pairs = len(spool)
        if n_pairs < 2:
            raise DataError(f"{n_pairs} usable pairs, at least 2 needed", "too_few_examples")
        count = held_out_count(n_pairs, config.hold_out, MAX_SHARE_OF_PAIRS)
        by = config.hold_out_by
        held_out, n_grouped = draw_pairs(spool.columns, count, seed, by, spool.folder)
        valid = spool.select(held_out)
        spool.left_out = held_out
        notices.append(held_out_notice(len(valid), n_pairs, "pairs", n_grouped))
    return Corpus(spool, valid, tuple(notices), languages=languages)


def read_pairs(
    config: DataConfig,
    sources: Sequence[str],
    targets: Sequence[str],
    pairs: Sequence[str],
    where: str,
) -> Pairs:
    """Read one set of files as configured; `where` names it in messages."""
    return open_pairs(config, sources, targets, pairs, where).read()


def open_pairs(
    config: DataConfig,
    sources: Sequence[str],
    targets: Sequence[str],
    pairs: Sequence[str],
    where: str,
) -> "PairReader":
    """Open one set of files as configured; `where` names it in messages."""
    if bool(pairs) == bool(sources or targets):
        raise ConfigError(
            f"{where}: give either source and target files, or pairs (TSV or JSON lines)",
            "no_data",
        )
    if pairs:
        files = _tables(pairs, (config.source_key, config.target_key), config.encoding)
    else:
        files = _parallel_files(sources, targets, config.encoding)
    return PairReader(files, config.on_bad_line)


def read_references(
    source: Sequence[Path], target: Sequence[Path], encoding: str = "utf-8"
) -> tuple[list[str], list[str]]:
    """Read sentences and one reference for each, empty lines included."""
    sources, targets = (
        [line for path in paths for line in read_lines(path, encoding)]
        for paths in (source, target)
    )
    names = [", ".join(map(str, paths)) for paths in (source, target)]
    if len(sources) != len(targets):
        raise DataError(
            f"{names[0]} has {len(sources)} lines but {names[1]} has {len(targets)}; line i of one "
            "must translate line i of the other",
            "unequal_lengths",
        )
    if not sources:
        raise DataError(f"{names[0]} has no lines", "no_text")
    return sources, targets


def read_parallel(
    sources: Sequence[str | Path],
    targets: Sequence[str | Path],
    *,
    on_bad_line: OnBadLine = "skip",
    encoding: str = "utf-8",
) -> Pairs:
    """Read files of which line n of sources[i] translates line n of targets[i]."""
    return PairReader(_parallel_files(sources, targets, encoding), on_bad_line).read()


def read_pair_file(
    paths: Sequence[str | Path],
    keys: tuple[str | None, str | None] = (None, None),
    on_bad_line: OnBadLine = "skip",
    encoding: str = "utf-8",
) -> Pairs:
    """Read files that hold both sides, in any format of `tables`.

    The keys name columns by header or by number from 1; without them, the choice must be certain.
    """
    return PairReader(_tables(paths, keys, encoding), on_bad_line).read()


class PairFile(NamedTuple):
    """Records of a file of pairs, or of two parallel files; `languages` are those of its header."""

    records: Iterator[Record]
    names: tuple[str, str]
    notices: tuple[str, ...]
    languages: tuple[str, str] | None = None


def _tables(paths: Sequence[str | Path], keys: Keys, encoding: str) -> Iterator[PairFile]:
    """Open files that hold both sides."""
    for path in paths:
        file = read_columns(path, PAIR_ROLES, keys, encoding)
        yield PairFile(file.records, (file.name, file.name), file.notices, file.languages)


def _parallel_files(
    sources: Sequence[str | Path], targets: Sequence[str | Path], encoding: str
) -> Iterator[PairFile]:
    """Open files of which line n of sources[i] translates line n of targets[i]."""
    if len(sources) != len(targets):
        raise ConfigError(
            f"{len(sources)} source files but {len(targets)} target files; give a target file for "
            "every source file, in the same order",
            "unequal_files",
        )
    for source_name, target_name in zip(sources, targets, strict=True):
        source = open_text(source_name, encoding=encoding)
        target = open_text(target_name, encoding=encoding)
        with suppress(FileNotFoundError):  # one of them is standard input
            if source.name == target.name or os.path.samefile(source.name, target.name):
                message = f"{source.name} is both source and target; give two files"
                raise DataError(message, "same_file")
        records = _side_by_side(source, target, encoding)
        yield PairFile(records, (source.name, target.name), (*source.notices, *target.notices))


def _side_by_side(source: TextLines, target: TextLines, encoding: str) -> Iterator[Record]:
    """Yield the lines of two files as pairs; DataError at the end if their number differs."""
    has_more_text = False  # after the end of the other
    for line, (first, second) in enumerate(zip_longest(source, target), start=1):
        if first is None or second is None:
            rest = first or second
            has_more_text = has_more_text or (isinstance(rest, str) and bool(rest.strip()))
        elif isinstance(first, str) and isinstance(second, str):
            yield Record(line, first, second)
        else:
            bad = first if isinstance(first, BadLine) else second
            yield Record(line, "", "", bad if isinstance(bad, BadLine) else None)
    for text in (source, target):
        if not text.n_lines:
            raise DataError(f"{text.name} is empty", "no_text")
    if source.n_lines != target.n_lines:
        raise _unequal_lengths(source, target, encoding, has_more_text=has_more_text)


class PairReader:
    """Pairs of files, one at a time, without the bad ones; what was found is known at the end."""

    def __init__(self, files: Iterator[PairFile], on_bad_line: OnBadLine) -> None:
        self.files, self.on_bad_line = files, on_bad_line
        self.names: list[tuple[str, str]] = []
        self.notices: tuple[str, ...] = ()
        self.languages = ("", "")
        self.skipped = BadLines()
        self.n_pairs = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((source, target) for source, target, _, _ in self.with_places())

    def with_places(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield source, target, number of the file, and line."""
        first: list[tuple[str, str]] = []
        notices: dict[str, None] = {}
        languages: list[tuple[str, str] | None] = []
        are_same = True
        for number, (records, names, of_file, headers) in enumerate(self.files):
            self.names.append(names)
            notices |= dict.fromkeys(of_file)
            languages.append(headers)
            for line, source, target, bad in records:
                if bad is None and source.strip() and target.strip():
                    self.n_pairs += 1
                    are_same = are_same and source == target
                    if self.n_pairs <= SAMPLE:
                        first.append((source, target))
                    yield source, target, number, line
                elif bad is None and source.strip():
                    self.skipped.add(BadLine(names[1], line, "the target is empty"))
                else:
                    why = "the source is empty" if target.strip() else "both sides are empty"
                    self.skipped.add(bad or BadLine(names[0], line, why))
        self._check(are_same=are_same)
        by_text = text_language([s for s, _ in first]), text_language([t for _, t in first])
        named = {headers or by_text for headers in languages}
        self.languages = named.pop() if len(named) == 1 else by_text
        if self.names[0][0] != self.names[0][1]:
            notices |= {f"{' and '.join(self.names[0])}: {show_pairs(first)}": None}
        skipped = skipped_notices(self.skipped.first, count=self.skipped.count)
        self.notices = (*notices, *skipped)

    def _check(self, *, are_same: bool) -> None:
        self.skipped.check(self.on_bad_line)
        where = ", ".join(dict.fromkeys(name for names in self.names[:3] for name in names))
        if not self.n_pairs:
            n_bad, first = self.skipped.count, self.skipped.first
            reason = f"; the first reason: {first[0]}" if first else ""
            raise DataError(f"{where}: no usable pair in {n_bad:,} lines{reason}", "no_text")
        if self.n_pairs > 1 and are_same:
            raise DataError(
                f"{where}: source and target are the same text; give two languages", "same_text"
            )

    def read(self) -> Pairs:
        """Read all pairs."""
        sources: list[str] = []
        targets: list[str] = []
        for source, target in self:
            sources.append(source)
            targets.append(target)
        return Pairs(sources, targets, tuple(self.skipped.first), self.notices, self.languages)


def hold_out(pairs: Pairs, count: int, seed: int, by: HoldOutBy = "either") -> tuple[Pairs, Pairs]:
    """Split into (train, held out); see `draw_pairs`."""
    drawn = set(draw_pairs((pairs.sources, pairs.targets), count, seed, by).numbers)
    parts: tuple[Pairs, Pairs] = Pairs([], []), Pairs([], [])
    for number, (source, target) in enumerate(pairs):
        part = parts[number in drawn]
        part.sources.append(source)
        part.targets.append(target)
    return parts


def draw_pairs(
    sides: Sequence[CountedLines],
    count: int,
    seed: int,
    by: HoldOutBy,
    folder: Path | None = None,
) -> Drawn:
    """Draw the pairs to hold out, of sources and targets.

    All pairs with the same source or target, ignoring case and white space, go to the same part, so
    that the model is not validated on a text it has seen. A few less than requested may be held
    out. by: "source" allows equal targets.
    """
    n_pairs = len(sides[0])
    if not 0 < count < n_pairs:
        raise ConfigError(
            f"cannot hold out {count} of {n_pairs} pairs: give a count below their number",
            "invalid_hold_out",
        )
    drawn = draw_groups(sides[: 2 if by == "either" else 1], count, seed, folder=folder)
    if not drawn.numbers:
        raise DataError(
            f"cannot hold out {count} of {n_pairs} pairs: each shares its source or target with "
            "more than that, and these stay together. Give validation files, or set "
            'data.hold_out_by = "source".',
            "too_few_examples",
        )
    return drawn


def _unequal_lengths(
    source: TextLines, target: TextLines, encoding: str, *, has_more_text: bool
) -> DataError:
    """Return the error about files of unequal length, with a hint at where they diverge."""
    hint = ""
    if not has_more_text:
        longer = source if source.n_lines > target.n_lines else target
        hint = f"; remove the empty lines at the end of {longer.name}"
    elif "stdin" not in (source.name, target.name):  # which cannot be read again
        sides = (
            ["" if isinstance(line, BadLine) else line for line in islice(lines, MAX_COMPARED)]
            for lines in (open_text(text.name, encoding=encoding) for text in (source, target))
        )
        spans = judge(*sides).misaligned_spans
        hint = f"; they seem to diverge near line {spans[0].start + 1:,}" if spans else ""
    return DataError(
        f"{source.name} has {source.n_lines:,} lines, {target.name} has "
        f"{target.n_lines:,}: line n of one must translate line n of the other{hint}",
        "unequal_lengths",
    )
