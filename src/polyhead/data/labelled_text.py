"""Texts with their labels, one record each, in any format of `tables`.

A text may be a pair of texts, and a label one class, several, or a number (`labels`). The classes
are those that occur in the training data, in order. Words with tags and questions are examples of
other forms (`tasks.tagging`, `tasks.question_answering`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from polyhead.data.columns import LABEL_ROLES, TwoColumns, read_columns
from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus, draw_groups, held_out_count, held_out_notice
from polyhead.data.labels import (
    PAIR,
    Problem,
    class_names,
    encode_labels,
    join_pair,
    names_of,
    problem_of,
)
from polyhead.data.line_spool import Examples, Lines, LineSpool
from polyhead.data.parallel import open_pairs
from polyhead.data.text_files import BadLine, BadLines, skipped_notices
from polyhead.errors import ConfigError, DataError

Sides = tuple[Sequence[str], Sequence[str], Sequence[str]]  # files of source, target and pairs


class ExampleForm(NamedTuple):
    """Form of labelled examples, each a text and a label of one line.

    read: returns the examples of a file.
    group: texts of the same group are held out together.
    problem: the kind of the labels; None if `data.problem` or the labels say it.
    of_pairs: pairs without labels are read too, as translators do.
    """

    read: Callable[[str | Path, DataConfig], TwoColumns]
    group: Callable[[str], str] = lambda text: text
    problem: Problem | None = None
    of_pairs: bool = False


def read_texts_and_labels(path: str | Path, config: DataConfig) -> TwoColumns:
    """Read texts, or pairs of them, and labels from a table."""
    keys = (config.text_key, config.text_pair_key, config.label_key)
    return read_columns(path, LABEL_ROLES, keys, config.encoding)


def first_text(text: str) -> str:
    """Return a text, or the first of a pair."""
    return text.partition(PAIR)[0]


def last_text(text: str) -> str:
    """Return a text, or the second of a pair."""
    return text.rpartition(PAIR)[2]


TEXTS = ExampleForm(read_texts_and_labels, first_text)
PAIRS = TEXTS._replace(of_pairs=True)


def load_labelled(
    config: DataConfig,
    seed: int,
    spool: LineSpool,
    form: ExampleForm = TEXTS,
) -> Corpus[LineSpool, Examples]:
    """Read the labelled texts of a configuration; those for training into a spool."""
    of_pairs = form.of_pairs
    notices: list[str] = []
    sides = config.source, config.target, config.pairs
    records = open_examples(config, config.labelled, sides if of_pairs else None, notices, form)
    if records is None:
        raise ConfigError(
            "data.labelled: give a file of texts and labels (TSV or JSON lines), as in --data FILE"
            + (", or pairs of texts, as in --pairs FILE" if of_pairs else ""),
            "no_data",
        )
    spool.write(records)
    texts, labels = spool.columns
    problem = form.problem
    if problem is None:
        problem = problem_of(labels) if config.problem == "auto" else config.problem
    if of_pairs and problem not in ("contrastive", "regression"):
        raise DataError(
            "the labels of pairs are classes; sentence embeddings need pairs without labels "
            "(--pairs FILE), or with numbers (data.problem=regression)",
            "not_a_number",
        )
    sides = config.valid_source, config.valid_target, config.valid_pairs
    valid_sides = sides if of_pairs else None
    records = open_examples(config, config.valid_labelled, valid_sides, notices, form)
    if records is not None:
        valid = collect(records)
    else:
        n_examples = len(spool)
        by = (
            (form.group, last_text) if of_pairs and config.hold_out_by == "either" else [form.group]
        )
        groups = [Lines(spool.__len__, partial(map, group, texts)) for group in by]
        kept = first_of_classes(groups[0], labels, problem)
        count = held_out_count(n_examples, config.hold_out)
        held_out, n_grouped = draw_groups(groups, count, seed, kept, spool.folder)
        if not held_out:
            raise DataError(
                f"too few examples ({n_examples:,}) to train on and to hold some out with texts of "
                "their own. Give more, or a file for validation: --valid-data FILE.",
                "too_few_examples",
            )
        valid = spool.select(held_out)
        spool.left_out = held_out
        notices.append(held_out_notice(len(valid), n_examples, "examples", n_grouped))
    classes = class_names(labels, problem, len(spool))
    if problem != "spans":
        encode_labels(valid.labels, problem, classes, "the validation data")
    if problem == "regression":
        encode_labels(labels, problem, classes, "the training data")
    return Corpus(spool, valid, tuple(notices), classes, problem=problem)


def open_examples(
    config: DataConfig,
    labelled: Sequence[str],
    sides: Sides | None,
    notices: list[str],
    form: ExampleForm = TEXTS,
) -> Iterator[tuple[str, str]] | None:
    """Return the examples of labelled files, or of files of pairs; None if there are none."""
    if labelled:
        return stream_labelled(labelled, config, notices, form)
    return _unlabelled(config, sides, notices) if sides and any(sides) else None


def _unlabelled(config: DataConfig, sides: Sides, notices: list[str]) -> Iterator[tuple[str, str]]:
    sources, targets, pairs = sides
    reader = open_pairs(config, sources, targets, pairs, "data")
    for first, second in reader:
        yield join_pair(first, second), ""
    notices += reader.notices


def first_of_classes(
    groups: Iterable[str], labels: Iterable[str], problem: Problem
) -> Iterable[str]:
    """Return the group of the first text of each class."""
    first: dict[str, str] = {}
    if problem != "spans":
        for group, label in zip(groups, labels, strict=True):
            for name in names_of(label, problem):
                first.setdefault(name, group)
    return first.values()


def collect(records: Iterable[tuple[str, str]]) -> Examples:
    """Return examples in memory."""
    texts, labels = [], []
    for text, label in records:
        texts.append(text)
        labels.append(label)
    return Examples(texts, labels)


def stream_labelled(
    paths: Sequence[str | Path],
    config: DataConfig,
    notices: list[str],
    form: ExampleForm = TEXTS,
) -> Iterator[tuple[str, str]]:
    """Yield texts with their labels; the last messages are added at the end."""
    bad, n_texts, n_pairs = BadLines(), 0, 0
    for path in paths:
        file = form.read(path, config)
        notices += file.notices
        for line, text, label, problem in file.records:
            has_text = all(part.strip() for part in text.split(PAIR))
            if problem is not None:
                bad.add(problem)
            elif has_text and label.strip():
                n_texts, n_pairs = n_texts + 1, n_pairs + (PAIR in text)
                yield text, label.strip()
            elif text.strip() or label.strip():  # an empty line is neither example nor mistake
                bad.add(BadLine(file.name, line, f"no {'label' if has_text else 'text'}"))
    if form.problem is None and 0 < n_pairs < n_texts:
        raise DataError(
            f"{n_pairs:,} of {n_texts:,} examples are pairs of texts. Name the columns with "
            "--text-column and --text-pair-column.",
            "mixed_pairs",
        )
    bad.check(config.on_bad_line)
    if not n_texts:
        reason = f" ({bad.first[0]})" if bad.first else ""
        raise DataError(f"{paths[0]} has no labelled text{reason}", "no_text")
    notices += skipped_notices(bad.first, count=bad.count)
