"""Texts with their classes, one record each, in any format of `tables`.

The classes are the labels that occur in the training data, in order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from polyhead.data.columns import TwoColumns, read_columns
from polyhead.data.config import DataConfig
from polyhead.data.holdout import Corpus, draw_texts, held_out_count, held_out_notice
from polyhead.data.line_spool import LineSpool, SpooledExamples
from polyhead.data.schedules.generator import make_missing
from polyhead.data.tables import shorten
from polyhead.data.text_files import BadLine, BadLines, skipped_notices
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

    def without(self, numbers: Iterable[int]) -> "LabelledExamples":
        """Return all but the examples with these numbers."""
        left_out = set(numbers)
        return self.select([n for n in range(len(self)) if n not in left_out])


SpooledTexts = SpooledExamples[LabelledExamples]
LabelledCorpus = Corpus[LabelledExamples | SpooledTexts, LabelledExamples]


class ExampleForm(NamedTuple):
    """Form of labelled examples, each a text and a label of one line.

    read: returns the examples of a file.
    classes: the names of the classes in a label.
    group: texts of the same group are held out together.
    are_closed: the classes are at least two, and validation has no others.
    """

    read: Callable[[str | Path, DataConfig], TwoColumns]
    classes: Callable[[str], Sequence[str]] = lambda label: (label.strip(),)
    group: Callable[[str], str] = lambda text: text
    are_closed: bool = True


ONE_CLASS = ExampleForm(
    lambda path, config: read_columns(
        path, ("text", "label"), (config.text_key, config.label_key), config.encoding
    )
)


class _Groups:
    """The group of every text, computed anew in every iteration."""

    def __init__(self, form: ExampleForm, texts: Iterable[str]) -> None:
        self.form, self.texts = form, texts

    def __iter__(self) -> Iterator[str]:
        return map(self.form.group, self.texts)


def load_labelled(
    config: DataConfig, seed: int, spool: LineSpool | None = None, form: ExampleForm = ONE_CLASS
) -> LabelledCorpus:
    """Read the labelled texts of a configuration; those for training into a spool, if given."""
    if not config.labelled:
        raise ConfigError(
            "data.labelled: give a file of texts and labels (TSV or JSON lines), as in --data FILE",
            "no_data",
        )
    make_missing(config)
    notices: list[str] = []
    train: LabelledExamples | SpooledTexts
    if spool is None:
        train = read_labelled(config.labelled, config, notices, form)
    else:
        examples = stream_labelled(config.labelled, config, notices, form)
        train = SpooledExamples(spool, examples, LabelledExamples)
    if config.valid_labelled:
        valid = read_labelled(config.valid_labelled, config, notices, form)
    else:
        n_examples = len(train)
        first: dict[str, str] = {}  # text of each class
        groups = _Groups(form, train.texts)
        for group, label in zip(groups, train.labels, strict=True):
            for name in form.classes(label) if form.are_closed else ():
                first.setdefault(name, group)
        held_out = draw_labelled(groups, n_examples, config.hold_out, seed, first.values())
        valid = train.select(held_out)
        train = train.without(held_out)
        notices.append(held_out_notice(len(valid), n_examples, "examples"))
    names = chain.from_iterable(map(form.classes, train.labels))
    classes = classes_of(names, len(train)) if form.are_closed else tuple(sorted(set(names)))
    if form.are_closed:
        names = chain.from_iterable(map(form.classes, valid.labels))
        class_numbers(list(dict.fromkeys(names)), classes, "the validation data")
    return LabelledCorpus(train, valid, tuple(notices), classes)


def read_labelled(
    paths: Sequence[str | Path],
    config: DataConfig,
    notices: list[str],
    form: ExampleForm = ONE_CLASS,
) -> LabelledExamples:
    """Read labelled texts; bad lines are skipped or an error, as configured."""
    texts, labels = [], []
    for text, label in stream_labelled(paths, config, notices, form):
        texts.append(text)
        labels.append(label)
    return LabelledExamples(texts, labels)


def stream_labelled(
    paths: Sequence[str | Path],
    config: DataConfig,
    notices: list[str],
    form: ExampleForm = ONE_CLASS,
) -> Iterator[tuple[str, str]]:
    """Yield texts with their labels; the last messages are added at the end."""
    bad, n_texts = BadLines(), 0
    for path in paths:
        file = form.read(path, config)
        notices += file.notices
        for line, text, label, problem in file.records:
            if problem is not None:
                bad.add(problem)
            elif text.strip() and label.strip():
                n_texts += 1
                yield text, label.strip()
            elif text.strip() or label.strip():  # an empty line is neither example nor mistake
                missing = "label" if text.strip() else "text"
                bad.add(BadLine(file.name, line, f"no {missing}"))
    bad.check(config.on_bad_line)
    if not n_texts:
        reason = f" ({bad.first[0]})" if bad.first else ""
        raise DataError(f"{paths[0]} has no labelled text{reason}", "no_text")
    notices += skipped_notices(bad.first, count=bad.count)


def classes_of(labels: Iterable[str], n_examples: int) -> tuple[str, ...]:
    """Return all labels in order: by value if all are numbers, otherwise alphabetically."""
    names = set(labels)
    if len(names) < 2:
        raise DataError(
            f"all {n_examples:,} examples have the label {names.pop()!r}; a classifier needs at "
            "least 2 classes",
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


def draw_labelled(
    texts: Iterable[str], n_texts: int, limit: int, seed: int, never: Iterable[str]
) -> list[int]:
    """Draw the numbers of the examples to hold out.

    never: the first text of every class. Equal texts stay together.
    """
    held_out = draw_texts(texts, held_out_count(n_texts, limit), seed, never=never)
    if not held_out:
        raise DataError(
            f"too few examples ({n_texts:,}) to train on and to hold some out with texts of "
            "their own. Give more, or a file for validation: --valid-data FILE.",
            "too_few_examples",
        )
    return held_out
