"""Labels of texts: a class, several classes or a number, as the labels or `data.problem` say.

    single_label    a class
    multi_label     classes divided by |, or a JSON list, which may be empty: news|sport, ["news"]
    regression      a number
    contrastive     no labels, of pairs of texts that belong together
    tags            a tag for each word (`tasks.tagging`), with tabs between them
    spans           answers as JSON (`tasks.question_answering`)

A pair of texts is one text everywhere in a corpus, with `PAIR` between its parts.
"""

import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from polyhead.data.tables import shorten
from polyhead.data.token_store import TokenSequences
from polyhead.errors import DataError

Problem = Literal["single_label", "multi_label", "regression", "contrastive", "tags", "spans"]
PAIR = "\t"
SEPARATOR = "|"
NO_ANSWER = "no answer"
MAX_CLASSES = 1000
FEW = 20  # whole numbers that are classes without a setting
N_NUMBERS = 1 << 31  # ids of a store of numbers: the bits of float32


def join_pair(first: str, second: str) -> str:
    """Return a pair of texts as one text."""
    return f"{first.replace(PAIR, ' ')}{PAIR}{second.replace(PAIR, ' ')}"


def problem_of(labels: Iterable[str]) -> Problem:
    """Return what the labels are; DataError if they may be two things."""
    names = set(labels)
    if names == {""}:
        return "contrastive"
    if any(_json_names(name) is not None for name in names):
        return "multi_label"
    numbers = [_number(name) for name in names]
    if None not in numbers:
        are_whole = all(number is not None and number.is_integer() for number in numbers)
        if not are_whole or len(names) > MAX_CLASSES:
            return "regression"
        if len(names) > FEW:
            raise _ambiguous(f"{len(names):,} different whole numbers", "regression")
        return "single_label"
    parts = {part for name in names if SEPARATOR in name for part in split_label(name)}
    if parts and not parts & names and len(parts) >= len(names):
        raise _ambiguous(f"divided by {SEPARATOR}, such as {shorten([min(names)])}", "multi_label")
    return "multi_label" if parts else "single_label"


def _ambiguous(description: str, other: Problem) -> DataError:
    return DataError(
        f"the labels are {description}. Set data.problem=single_label if each is a class, or "
        f"data.problem={other}.",
        "ambiguous_labels",
    )


def split_label(label: str) -> list[str]:
    """Return the classes of a label of several."""
    names = _json_names(label)
    if names is not None:
        return names
    return [name.strip() for name in label.split(SEPARATOR) if name.strip()]


def names_of(label: str, problem: Problem) -> list[str]:
    """Return the names of the classes of a label."""
    match problem:
        case "regression" | "contrastive":
            return []
        case "multi_label":
            return split_label(label)
        case "tags":
            return label.split(PAIR)
        case "spans":
            return [NO_ANSWER if label == "[]" else "answer"]
    return [label] if label else []


def _json_names(label: str) -> list[str] | None:
    try:
        names = json.loads(label) if label.startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return [str(name).strip() for name in names] if isinstance(names, list) else None


def _number(label: str) -> float | None:
    try:
        number = float(np.float32(label))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def class_names(labels: Iterable[str], problem: Problem, n_examples: int) -> tuple[str, ...]:
    """Return the names of the classes; none of numbers, of spans one or two."""
    names = {name for label in labels for name in names_of(label, problem)}
    if problem in ("regression", "contrastive", "spans"):
        return tuple(sorted(names))
    return classes_of(names, n_examples)


def classes_of(labels: Iterable[str], n_examples: int) -> tuple[str, ...]:
    """Return all labels in order; see `in_order`."""
    names = set(labels)
    if len(names) < 2:
        raise DataError(
            f"all {n_examples:,} examples have the label {shorten([*names])}; a classifier needs "
            "at least 2 classes",
            "too_few_classes",
        )
    if len(names) > MAX_CLASSES:
        raise DataError(
            f"{len(names):,} different labels, at most {MAX_CLASSES:,} are supported. Name the "
            "column of the labels with --label-column.",
            "too_many_classes",
        )
    return in_order(names)


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Return names of classes by value if all are numbers, otherwise alphabetically."""
    are_numbers = all(name.isdecimal() and len(name) < 20 for name in names)
    return tuple(sorted(names, key=lambda name: (int(name) if are_numbers else 0, name)))


def encode_labels(
    labels: Iterable[str], problem: Problem, classes: Sequence[str], where: str = "the data"
) -> TokenSequences:
    """Return the numbers of the classes of each label, or the bits of its number."""
    numbers = {name: number for number, name in enumerate(classes)}

    def ids(label: str) -> list[int]:
        if problem == "regression":
            number = _number(label)
            if number is None:
                raise DataError(
                    f"{where}: the label {shorten([label])} is not a number. Remove it, or set "
                    "data.problem=single_label.",
                    "not_a_number",
                )
            return [int(np.float32(number).view(np.int32))]
        names = names_of(label, problem)
        unknown = next((name for name in names if name not in numbers), None)
        if unknown is not None:
            raise DataError(
                f"{where}: class {shorten([unknown])} is unknown; training had {shorten(classes)}",
                "unknown_class",
            )
        return [numbers[name] for name in names]

    n_ids = N_NUMBERS if problem == "regression" else len(classes)
    return TokenSequences.of(map(ids, labels), n_ids)


def label_values(
    labels: TokenSequences, problem: Problem
) -> npt.NDArray[np.generic] | TokenSequences:
    """Return a class or a number for each example, or its classes."""
    if problem == "multi_label":
        return labels
    if problem == "contrastive":
        return np.zeros(len(labels), np.float32)
    return labels.ids.view(np.float32) if problem == "regression" else labels.ids


def class_numbers(labels: Sequence[str], classes: Sequence[str], where: str) -> list[int]:
    """Return the numbers of the classes of labels, each of one class."""
    return encode_labels(labels, "single_label", classes, where).ids.tolist()
