"""Sentence pairs, read from two parallel files or from one file that holds both sides.

A pair is kept only if both sides have text. Every bad line is listed in `skipped` with its place
and reason, or raises an error (`on_bad_line="fail"`). Files of unequal length are always an error,
because the missing line is unknown. Every pair keeps its place in its file, so that later messages
can name `file:line`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from polyhead.data.columns import Record, read_columns, show_pairs
from polyhead.data.config import DataConfig
from polyhead.data.doctor.alignment import judge
from polyhead.data.holdout import (
    MAX_SHARE_OF_PAIRS,
    Corpus,
    Numbers,
    draw_texts,
    held_out_count,
    held_out_notice,
)
from polyhead.data.languages import configured_languages, text_language
from polyhead.data.schedules.generator import make_missing
from polyhead.data.text_files import (
    BadLine,
    OnBadLine,
    TextFile,
    check_bad_lines,
    read_lines,
    read_text,
    skipped_notices,
)
from polyhead.errors import ConfigError, DataError


class Origin(NamedTuple):
    """Places of the pairs: pair i is `line[i]` of `source_files[file[i]]` and its partner."""

    source_files: tuple[str, ...]
    target_files: tuple[str, ...]
    file: Numbers
    line: Numbers


@dataclass(frozen=True)
class Pairs:
    """Parallel sentences, none of them empty, and the lines that were left out."""

    sources: list[str]
    targets: list[str]
    origin: Origin | None = field(default=None, compare=False, repr=False)
    skipped: tuple[BadLine, ...] = ()
    notices: tuple[str, ...] = ()
    languages: tuple[str, str] = ("", "")  # by names of columns or files, or by the text

    def __post_init__(self) -> None:
        if len(self.sources) != len(self.targets):
            raise ValueError(f"{len(self.sources)} sources but {len(self.targets)} targets")

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)

    def where(self, index: int, side: Literal["source", "target"] = "source") -> str:
        """Return the place of one side of a pair, as `file:line`."""
        if self.origin is None:
            return f"pair {index + 1}"
        source, target, file, line = self.origin
        files = source if side == "source" else target
        return f"{files[file[index]]}:{line[index]}"

    def select(self, indices: Sequence[int]) -> "Pairs":
        """Return these pairs in this order with their places, without the skipped lines."""
        origin = self.origin
        if origin is not None:
            chosen = np.array(indices, dtype=np.int64)
            origin = origin._replace(file=origin.file[chosen], line=origin.line[chosen])
        return Pairs([self.sources[i] for i in indices], [self.targets[i] for i in indices], origin)


ParallelCorpus = Corpus[Pairs]


def load_parallel(config: DataConfig, seed: int) -> ParallelCorpus:
    """Read the sentence pairs of a configuration."""
    make_missing(config)
    train = read_pairs(config, config.source, config.target, config.pairs, "data")
    named = configured_languages(config)
    languages = named[0] or train.languages[0], named[1] or train.languages[1]
    notices = [*train.notices, *skipped_notices(train.skipped)]
    files = config.valid_source, config.valid_target, config.valid_pairs
    if any(files):
        valid = read_pairs(config, *files, "data.valid")
        notices += [*valid.notices, *skipped_notices(valid.skipped)]
    else:
        n_pairs = len(train)
        if n_pairs < 2:
            raise DataError(f"{n_pairs} usable pairs, at least 2 needed", "too_few_examples")
        count = held_out_count(n_pairs, config.hold_out, MAX_SHARE_OF_PAIRS)
        train, valid = hold_out(train, count, seed)
        notices.append(held_out_notice(len(valid), n_pairs, "pairs"))
    return ParallelCorpus(train, valid, tuple(notices), languages=languages)


def read_pairs(
    config: DataConfig,
    sources: Sequence[str],
    targets: Sequence[str],
    pairs: Sequence[str],
    where: str,
) -> Pairs:
    """Read one set of files as configured; `where` names it in messages."""
    if bool(pairs) == bool(sources or targets):
        raise ConfigError(
            f"{where}: give either source and target files, or pairs (TSV or JSON lines)",
            "no_data",
        )
    if pairs:
        keys = (config.source_key, config.target_key)
        return read_pair_file(pairs, keys, config.on_bad_line, config.encoding)
    return read_parallel(sources, targets, on_bad_line=config.on_bad_line, encoding=config.encoding)


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
    target_encoding: str | None = None,
) -> Pairs:
    """Read files of which line n of sources[i] translates line n of targets[i].

    `target_encoding` overrides the encoding of the target files.
    """
    if len(sources) != len(targets):
        raise ConfigError(
            f"{len(sources)} source files but {len(targets)} target files; give a target file for "
            "every source file, in the same order",
            "unequal_files",
        )
    files = []
    for source_name, target_name in zip(sources, targets, strict=True):
        source = read_text(source_name, encoding=encoding)
        target = read_text(target_name, encoding=target_encoding or encoding)
        with suppress(FileNotFoundError):  # one of them is standard input
            if source.name == target.name or os.path.samefile(source.name, target.name):
                message = f"{source.name} is both source and target; give two files"
                raise DataError(message, "same_file")
        for text in (source, target):
            if not text.lines:
                raise DataError(f"{text.name} is empty", "no_text")
        if len(source.lines) != len(target.lines):
            raise _unequal_lengths(source, target)
        notices = (*source.notices, *target.notices)
        files.append((_side_by_side(source, target), (source.name, target.name), notices))
    pairs = _gather(files, on_bad_line)
    where = " and ".join(files[0][1])
    return replace(pairs, notices=(*pairs.notices, f"{where}: {show_pairs(pairs)}"))


def read_pair_file(
    paths: Sequence[str | Path],
    keys: tuple[str | None, str | None] = (None, None),
    on_bad_line: OnBadLine = "skip",
    encoding: str = "utf-8",
) -> Pairs:
    """Read files that hold both sides, in any format of `tables`.

    The keys name columns by header or by number from 1; without them, the choice must be certain.
    """
    files = [read_columns(path, ("source", "target"), keys, encoding) for path in paths]
    pairs = _gather([(f.records, (f.name, f.name), f.notices) for f in files], on_bad_line)
    headers = {file.languages or pairs.languages for file in files}
    return replace(pairs, languages=headers.pop() if len(headers) == 1 else pairs.languages)


def _side_by_side(source: TextFile, target: TextFile) -> Iterator[Record]:
    """Yield the lines of two files as pairs."""
    bad = {bad.line: bad for bad in (*target.bad, *source.bad)}
    for line, pair in enumerate(zip(source.lines, target.lines, strict=True), start=1):
        yield Record(line, *pair, bad.get(line))


def _gather(
    files: Sequence[tuple[Iterable[Record], tuple[str, str], tuple[str, ...]]],
    on_bad_line: OnBadLine,
) -> Pairs:
    """Collect the pairs of files (records, names, notices); skip bad lines or raise an error."""
    sources: list[str] = []
    targets: list[str] = []
    places: list[tuple[int, int]] = []
    skipped: list[BadLine] = []
    for number, (records, names, _) in enumerate(files):
        for line, source, target, bad in records:
            if bad is None and source.strip() and target.strip():
                sources.append(source)
                targets.append(target)
                places.append((number, line))
            elif bad is None and source.strip():
                skipped.append(BadLine(names[1], line, "the target is empty"))
            else:
                why = "the source is empty" if target.strip() else "both sides are empty"
                skipped.append(bad or BadLine(names[0], line, why))
    check_bad_lines(skipped, on_bad_line)
    where = ", ".join(dict.fromkeys(name for _, names, _ in files[:3] for name in names))
    if not sources:
        reason = f"; the first reason: {skipped[0]}" if skipped else ""
        raise DataError(f"{where}: no usable pair in {len(skipped):,} lines{reason}", "no_text")
    if len(sources) > 1 and sources == targets:
        raise DataError(
            f"{where}: source and target are the same text; give two languages", "same_text"
        )
    notices = dict.fromkeys(notice for *_, of_file in files for notice in of_file)
    source_files, target_files = zip(*(names for _, names, _ in files), strict=True)
    origin = Origin(source_files, target_files, *np.array(places, dtype=np.int64).T)
    languages = text_language(sources), text_language(targets)
    return Pairs(sources, targets, origin, tuple(skipped), tuple(notices), languages)


def hold_out(pairs: Pairs, count: int, seed: int) -> tuple[Pairs, Pairs]:
    """Split into (train, held out).

    All pairs with the same source, ignoring case and white space, go to the same part, so that the
    model is not validated on a source it has seen. A few less than requested may be held out.
    """
    if not 0 < count < len(pairs):
        raise ConfigError(
            f"cannot hold out {count} of {len(pairs)} pairs: give a count below their number",
            "invalid_hold_out",
        )
    held = draw_texts(pairs.sources, count, seed)
    if not held:
        raise DataError(
            f"cannot hold out {count} of {len(pairs)} pairs: every source occurs more often than "
            "that, and its repetitions must stay together",
            "too_few_examples",
        )
    chosen = set(held)
    train = pairs.select([index for index in range(len(pairs)) if index not in chosen])
    return replace(train, skipped=pairs.skipped, notices=pairs.notices), pairs.select(held)


def _unequal_lengths(source: TextFile, target: TextFile) -> DataError:
    """Return the error about files of unequal length, with a hint at where they diverge."""
    longer, shorter = sorted((source, target), key=lambda text: -len(text.lines))
    extra = longer.lines[len(shorter.lines) :]
    if not any(line.strip() for line in extra):
        hint = f"; remove the empty lines at the end of {longer.name}"
    else:
        spans = judge(source.lines, target.lines).misaligned_spans
        hint = f"; they seem to diverge near line {spans[0].start + 1:,}" if spans else ""
    return DataError(
        f"{source.name} has {len(source.lines):,} lines, {target.name} has "
        f"{len(target.lines):,}: line n of one must translate line n of the other{hint}",
        "unequal_lengths",
    )
