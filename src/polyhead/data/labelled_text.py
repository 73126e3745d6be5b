"""Texts with their classes, one record each, in any format of `tables`.

The classes are the labels that occur in the training data, in order.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyhead.data.columns import read_columns
from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus, draw_texts, held_out_count, held_out_notice, normalized
from polyhead.data.schedules.generator import make_missing
from polyhead.data.tables import shorten
from polyhead.data.text_files import BadLine, check_bad_lines, skipped_notices
from polyhead.errors import ConfigError, DataError

MAX_CLASSES = 1000


@dataclass(frozen=True)
class LabelledExamples:
    """Texts; text n belongs to class `labels[n]`."""

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def select(self, numbers: Collection[int]) -> "LabelledExamples":
        """Return the examples with these numbers."""
        return LabelledExamples([self.texts[n] for n in numbers], [self.labels[n] for n in numbers])


LabelledCorpus = Corpus[LabelledExamples]


def load_labelled(config: DataConfig, seed: int) -> LabelledCorpus:
    """Read the labelled texts of a configuration."""
    if not config.labelled:
        raise ConfigError(
            "data.labelled: give a file of texts and labels (TSV or JSON lines), as in --data FILE",
            "no_data",
        )
    make_missing(config)
    notices: list[str] = []
    train = read_labelled(config.labelled, config, notices)
    if config.valid_labelled:
        valid = read_labelled(config.valid_labelled, config, notices)
    else:
        n_examples = len(train)
        train, valid = _hold_out(train, config.hold_out, seed)
        notices.append(held_out_notice(len(valid), n_examples, "examples"))
    classes = classes_of(train)
    class_numbers(valid.labels, classes, "the validation data")
    return LabelledCorpus(train, valid, tuple(notices), classes)


def read_labelled(
    paths: Sequence[str | Path], config: DataConfig, notices: list[str]
) -> LabelledExamples:
    """Read labelled texts; bad lines are skipped or an error, as configured."""
    texts, labels, bad = [], [], []
    keys = (config.text_key, config.label_key)
    for path in paths:
        file = read_columns(path, ("text", "label"), keys, config.encoding)
        notices += file.notices
        for line, text, label, problem in file.records:
            if problem is not None:
                bad.append(problem)
            elif text.strip() and label.strip():
                texts.append(text)
                labels.append(label.strip())
            elif text.strip() or label.strip():  # an empty line is neither example nor mistake
                missing = "label" if text.strip() else "text"
                bad.append(BadLine(file.name, line, f"no {missing}"))
    check_bad_lines(bad, config.on_bad_line)
    if not texts:
        reason = f" ({bad[0]})" if bad else ""
        raise DataError(f"{paths[0]} has no labelled text{reason}", "no_text")
    notices += skipped_notices(bad)
    return LabelledExamples(texts, labels)


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
            "column of the labels with --label-column.",
            "too_many_classes",
        )
    are_numbers = all(name.isdecimal() for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if are_numbers else 0, name)))


def class_numbers(labels: Sequence[str], classes: Sequence[str], where: str) -> list[int]:
    """Return the numbers of the classes of labels."""
    numbers = {name: number for number, name in enumerate(classes)}
    for label in labels:
        if label not in numbers:
            raise DataError(
                f"{where}: unknown class {label!r}; the training data had {shorten(classes)}",
                "unknown_class",
            )
    return [numbers[label] for label in labels]


def _hold_out(
    examples: LabelledExamples, limit: int, seed: int
) -> tuple[LabelledExamples, LabelledExamples]:
    """Split into training and held-out examples.

    Equal texts stay together, and of every class one is trained on.
    """
    count = held_out_count(len(examples), limit)
    first = dict(zip(reversed(examples.labels), reversed(examples.texts), strict=True))
    never = {normalized(text) for text in first.values()}
    held_out = dict.fromkeys(draw_texts(examples.texts, count, seed, never=never))
    if not held_out:
        raise DataError(
            f"too few examples ({len(examples):,}) to train on and to hold some out with texts of "
            "their own. Give more, or a file for validation: --valid-data FILE.",
            "too_few_examples",
        )
    kept = [number for number in range(len(examples)) if number not in held_out]
    return examples.select(kept), examples.select(held_out)
