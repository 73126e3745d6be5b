"""How good a classifier is: accuracy, precision, recall and F1 of every class, and who is confused.

    precision_c = right_c / said_c
    recall_c    = right_c / are_c
    F1_c        = 2 right_c / (said_c + are_c)

right_c counts what is c and was called c, said_c all that was called c, are_c all that is c. Where
nothing was called c, precision is 0 (0 / 0 is taken for 0, as is usual). Macro F1 is the plain mean
over the classes: a rare class weighs as much as a common one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polyhead.errors import DataError


@dataclass(frozen=True)
class ClassScore:
    """One class; `count` is how many examples really are of it."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int


@dataclass(frozen=True)
class ClassificationReport:
    """All that is known of a classifier's answers. `confusion[i][j]` counts class i called j."""

    accuracy: float
    macro_f1: float
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        return as_text(self)


def report(right: Sequence[int], said: Sequence[int], names: Sequence[str]) -> ClassificationReport:
    """Compare the classes that a model said with the right ones, both by number."""
    if len(right) != len(said):
        raise DataError(
            f"{len(said)} answers for {len(right)} examples; there must be one for each"
        )
    if not len(right):
        raise DataError("there is no example to evaluate on")
    table = confusion(right, said, len(names))
    hits, are, were_said = table.diagonal(), table.sum(1), table.sum(0)
    precision, recall = _share(hits, were_said), _share(hits, are)
    f1 = _share(2 * hits, are + were_said)
    classes = tuple(
        ClassScore(name, float(precision[i]), float(recall[i]), float(f1[i]), int(are[i]))
        for i, name in enumerate(names)
    )
    seen = (are + were_said) > 0  # a class that nobody is and nobody said is no mistake
    return ClassificationReport(
        float(hits.sum() / table.sum()),
        float(f1[seen].mean()),
        classes,
        tuple(tuple(int(n) for n in row) for row in table),
    )


def confusion(right: Sequence[int], said: Sequence[int], n_classes: int) -> np.ndarray:
    """A table of counts: row i, column j holds how often class i was called j."""
    table = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(table, (np.asarray(right), np.asarray(said)), 1)
    return table


def as_text(found: ClassificationReport, most: int = 20) -> str:
    """A report for people: scores, then a table of all classes, then (if small) the confusion."""
    width = max(len("class"), *(len(one.name) for one in found.classes))
    lines = [
        f"accuracy {found.accuracy:.4f}  macro F1 {found.macro_f1:.4f}",
        "",
        f"{'class':<{width}}  precision  recall      F1    count",
        *(
            f"{one.name:<{width}}  {one.precision:9.4f}  {one.recall:6.4f}  {one.f1:6.4f}  "
            f"{one.count:7,}"
            for one in found.classes
        ),
    ]
    if len(found.classes) <= most:
        cell = max(5, *(len(str(n)) for row in found.confusion for n in row)) + 1
        numbers = "".join(f"{i + 1:>{cell}}" for i in range(len(found.classes)))
        lines += ["", "confusion: rows are the right classes, columns what was said"]
        lines.append(f"{'':<{width + 4}}{numbers}")
        for i, (one, row) in enumerate(zip(found.classes, found.confusion, strict=True), start=1):
            cells = "".join(f"{n:>{cell}}" for n in row)
            lines.append(f"{one.name:<{width}}{i:>4}{cells}")
    return "\n".join(lines)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Part / whole, and 0 where there is no whole."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0)
