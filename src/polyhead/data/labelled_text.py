"""Texts with their classes, one record each: tab-separated columns, or JSON.

    지루하지는 않다<TAB>0                          .tsv: text, then label; or named by its header
    {"text": "지루하지는 않다", "label": 0}         .jsonl; a label may be text or a whole number

The classes are the labels that occur in the training data, in order.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from polyhead.data.config import DataConfig, make_missing
from polyhead.data.holdout import draw_texts, held_out_count, held_out_notice, normalized
from polyhead.data.locate import find_all
from polyhead.data.records import Keys, records_of
from polyhead.data.text_files import (
    BadLine,
    TextFile,
    check_bad_lines,
    read_text,
    skipped_notices,
)
from polyhead.errors import ConfigError, DataError

MAX_CLASSES = 1000
TEXT, LABEL = "text", "label"  # default names


@dataclass(frozen=True)
class LabelledExamples:
    """Texts; text n belongs to class `labels[n]`."""

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabelledCorpus:
    """Labelled texts for training and for validation, the names of the classes, and messages."""

    train: LabelledExamples
    valid: LabelledExamples
    classes: tuple[str, ...]
    notices: tuple[str, ...]


def load_labelled(config: DataConfig, seed: int) -> LabelledCorpus:
    """Read the labelled texts of a configuration."""
    if not config.labelled:
        raise ConfigError(
            "data.labelled: give a file of texts and labels (TSV or JSON lines), as in --data FILE",
            "no_data",
        )
    make_missing(config)
    notices: list[str] = []
    train = read_labelled(find_all(config.labelled), config, notices)
    if config.valid_labelled:
        valid = read_labelled(find_all(config.valid_labelled), config, notices)
    else:
        n_examples = len(train)
        train, valid = _hold_out(train, config.hold_out, seed)
        notices.append(held_out_notice(len(valid), n_examples, "examples"))
    classes = classes_of(train)
    class_numbers(valid.labels, classes, "the validation data")
    return LabelledCorpus(train, valid, classes, tuple(notices))


def read_labelled(
    paths: Sequence[Path], config: DataConfig, notices: list[str]
) -> LabelledExamples:
    """Read labelled texts; bad lines are skipped or an error, as configured."""
    texts, labels, bad = [], [], []
    for path in paths:
        text = read_text(path, encoding=config.encoding)
        notices += text.notices
        keys = keys_of(text, config.text_key, config.label_key)
        for record in records_of(_with_text_labels(text, keys.target), keys):
            problem = record.bad or _missing(record.source, record.target, text.name, record.line)
            if problem is None:
                texts.append(record.source)
                labels.append(record.target.strip())
            elif record.bad or record.source.strip() or record.target.strip():
                bad.append(problem)  # an empty line is neither an example nor a mistake
    check_bad_lines(bad, config.on_bad_line)
    if not texts:
        reason = f" ({bad[0]})" if bad else ""
        raise DataError(f"{paths[0]} has no labelled text{reason}", "no_text")
    notices += skipped_notices(bad)
    return LabelledExamples(texts, labels)


def keys_of(text: TextFile, text_key: str | None, label_key: str | None) -> Keys:
    """Return the names of text and label; unnamed columns are the first and the second."""
    if not text.name.lower().removesuffix(".gz").endswith(".tsv"):
        return Keys(text_key or TEXT, label_key or LABEL)
    header = text.lines[0].split("\t") if text.lines else []
    if text_key is None and TEXT in header:
        text_key = TEXT
    if label_key is None and LABEL in header and (text_key is None or not text_key.isdecimal()):
        label_key = LABEL
    return Keys(text_key, label_key)


def classes_of(examples: LabelledExamples) -> tuple[str, ...]:
    """Return all labels in order: by value if all are numbers, otherwise alphabetically."""
    names = set(examples.labels)
    if len(names) < 2:
        raise DataError(
            f"all {len(examples):,} examples have the label {examples.labels[0]!r}; a classifier "
            "needs at least 2 classes",
            "too_few_classes",
        )
    if len(names) > MAX_CLASSES:
        raise DataError(
            f"{len(names):,} different labels, at most {MAX_CLASSES:,} are supported. Name the "
            "column of the labels with data.label_key.",
            "too_many_classes",
        )
    are_numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if are_numbers else 0, name)))


def class_numbers(labels: Sequence[str], classes: Sequence[str], where: str) -> list[int]:
    """Return the numbers of the classes of labels."""
    numbers = {name: number for number, name in enumerate(classes)}
    for label in labels:
        if label not in numbers:
            known = ", ".join(map(repr, classes[:8])) + (" …" if len(classes) > 8 else "")
            raise DataError(
                f"{where}: unknown class {label!r}; the training data had {known}", "unknown_class"
            )
    return [numbers[label] for label in labels]


def _missing(text: str, label: str, name: str, line: int) -> BadLine | None:
    for value, kind in ((text, "text"), (label, "label")):
        if not value.strip():
            return BadLine(name, line, f"no {kind}")
    return None


def _with_text_labels(text: TextFile, key: str | None) -> TextFile:
    """Convert labels of JSON lines that are numbers to text: {"label": 0} means "0"."""
    if key is None or not text.name.lower().removesuffix(".gz").endswith(".jsonl"):
        return text
    return replace(text, lines=[_with_text_label(line, key) for line in text.lines])


def _with_text_label(line: str, key: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return line  # reported when the records are read
    if isinstance(value, dict) and isinstance(value.get(key), int):
        return json.dumps(value | {key: str(value[key])}, ensure_ascii=False)
    return line


def _hold_out(
    examples: LabelledExamples, limit: int, seed: int
) -> tuple[LabelledExamples, LabelledExamples]:
    """Split into training and held-out examples.

    Equal texts stay together, and of every class one is trained on.
    """
    count = held_out_count(len(examples), limit)
    first = dict(zip(reversed(examples.labels), reversed(examples.texts), strict=True))
    never = {normalized(text) for text in first.values()}
    held_out = set(draw_texts(examples.texts, count, seed, never=never))
    if not held_out:
        raise DataError(
            f"too few examples ({len(examples):,}) to train on and to hold some out with texts of "
            "their own. Give more, or a file for validation: --valid-data FILE.",
            "too_few_examples",
        )
    train, valid = (
        LabelledExamples(
            [text for n, text in enumerate(examples.texts) if (n in held_out) == is_held_out],
            [label for n, label in enumerate(examples.labels) if (n in held_out) == is_held_out],
        )
        for is_held_out in (False, True)
    )
    return train, valid
