"""Corpora of training and validation data, and the choice of examples that are held out."""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from polyhead.atomic_file import os_errors_as_polyhead_errors

MAX_SHARE_OF_PAIRS = 0.05  # a small corpus gives at most this share of its sentence pairs
MIN_CANDIDATES = 1_000  # for the held-out texts
MAX_SHARE = 0.1  # the same for lines, labelled texts and images

CHUNK, N_WRITTEN = 1 << 20, 1 << 14  # digests that are compared, and written, at once
LARGEST = np.uint64(2**64 - 1)

Numbers = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]
Train = TypeVar("Train")
Valid = TypeVar("Valid")


@dataclass(frozen=True)
class Corpus(Generic[Train, Valid]):
    """Examples for training and for validation, messages about them, and names of classes.

    languages: of source and target, "" where they are unknown.
    problem: the kind of the labels of texts (`labels.Problem`).
    """

    train: Train
    valid: Valid
    notices: tuple[str, ...]
    classes: tuple[str, ...] = ()
    languages: tuple[str, str] = ("", "")
    problem: str = ""


def drawn_for_training(
    n_examples: int, count: int | None, seed: int, *, in_order: bool = False
) -> Numbers | None:
    """Return the numbers of at most `count` examples, ascending; None if all are used.

    Larger counts include smaller ones. in_order: the first ones, as lines of text belong together.
    """
    if count is None or n_examples <= count:
        return None
    if in_order:
        return np.arange(count)
    return np.sort(np.random.default_rng([seed, n_examples]).permutation(n_examples)[:count])


def held_out_count(n_examples: int, limit: int | None, max_share: float = MAX_SHARE) -> int:
    """Return how many examples to hold out: at most `limit` and `max_share`, at least one."""
    count = int(n_examples * max_share)
    return max(1, count if limit is None else min(limit, count))


class Drawn(NamedTuple):
    """The numbers of the examples to hold out, ascending, and how many of them share a text."""

    numbers: list[int]
    n_grouped: int


def draw_groups(
    columns: Sequence[Iterable[str]],
    count: int,
    seed: int,
    never: Iterable[str] = (),
    folder: Path | None = None,
) -> Drawn:
    """Draw at most `count` examples; those that share a text in any column are drawn together.

    columns: the texts of all examples by which they belong together, such as source and target.
    never: examples whose first text is one of these are not drawn, nor any that belong to them.
    folder: for temporary files; memory depends on `count` only.

    The groups come in the order of the smallest digest among their first texts, so that the choice
    does not depend on the order of the examples, and changes little when the corpus grows.
    """
    digests = [_digests(texts, seed, folder) for texts in columns]
    excluded = np.fromiter(_numbers(never, seed), np.uint64)
    n_first, start = MIN_CANDIDATES + 4 * count, np.uint64(0)
    drawn: list[int] = []
    n_grouped = 0
    while True:
        first = _smallest(digests[0], n_first, start)
        numbers, texts, groups = _grow(digests, first, count - len(drawn))
        sizes = np.bincount(groups)
        order = np.full(len(sizes), LARGEST)
        np.minimum.at(order, groups, texts[0])
        order[groups[np.isin(texts[0], excluded)]] = LARGEST
        for group in np.argsort(order, kind="stable").tolist():
            # earlier groups had their turn; of later ones, some may not be known
            if start <= order[group] <= first[-1] and len(drawn) + sizes[group] <= count:
                drawn += numbers[groups == group].tolist()
                n_grouped += int(sizes[group]) if sizes[group] > 1 else 0
        if len(drawn) == count or len(first) < n_first:
            return Drawn(sorted(drawn), n_grouped)
        n_first, start = min(8 * n_first, CHUNK), first[-1] + np.uint64(1)


def _numbers(texts: Iterable[str], seed: int) -> Iterator[int]:
    """Yield a number for each text, equal for texts that are equal but for case and the like."""
    for text in texts:
        content = f"{seed} {normalized(text)}".encode("utf-8", "surrogatepass")
        yield int.from_bytes(hashlib.sha256(content).digest()[:8], "big")


def _digests(texts: Iterable[str], seed: int, folder: Path | None) -> Digests:
    """Return the numbers of texts, mapped from a temporary file."""
    numbers = _numbers(texts, seed)
    place = Path(gettempdir()) if folder is None else folder
    with os_errors_as_polyhead_errors(place), TemporaryFile(dir=place) as file:
        while len(part := np.fromiter(islice(numbers, N_WRITTEN), np.uint64)):
            file.write(part.data)
        return np.memmap(file, np.uint64, "r")


def _smallest(digests: Digests, count: int, least: np.uint64) -> Digests:
    """Return the `count` smallest different numbers from `least` on, or all."""
    smallest = np.empty(0, np.uint64)
    for start in range(0, len(digests), CHUNK):
        part = digests[start : start + CHUNK]
        smallest = np.unique(np.append(smallest, part[part >= least]))[:count]
    return smallest


def _grow(
    columns: Sequence[Digests], first: Digests, most: int
) -> tuple[Numbers, Digests, Numbers]:
    """Return the groups with the texts `first`, complete, without those of more than `most`.

    Returns the numbers of their examples, their texts in every column, and the group of each.
    """
    nothing = np.empty(0, np.uint64)
    known = [first, *[nothing] * (len(columns) - 1)]
    too_often = [nothing] * len(columns)  # texts of groups that are too large
    while True:
        numbers, texts = _examples_with(columns, known, most)
        groups = _joined(texts)
        is_large = np.bincount(groups) > most
        for side, of_side in enumerate(texts):
            is_large[groups[np.isin(of_side, too_often[side])]] = True
        left_out = is_large[groups]
        too_often = [np.union1d(o, t[left_out]) for o, t in zip(too_often, texts, strict=True)]
        before, known = known, [np.unique(of_side[~left_out]) for of_side in texts]
        if all(map(np.array_equal, before, known)):
            return numbers, texts, groups


def _examples_with(
    columns: Sequence[Digests], known: Sequence[Digests], most: int
) -> tuple[Numbers, Digests]:
    """Return the examples with a known text, and their texts; of a text at least `most` + 1."""
    numbers, rows = [], []
    counts = [np.zeros(len(texts), np.int64) for texts in known]
    for start in range(0, len(columns[0]), CHUNK):
        part = np.stack([column[start : start + CHUNK] for column in columns])
        is_wanted = np.zeros(part.shape[1], np.bool_)
        for of_side, texts, seen in zip(part, known, counts, strict=True):
            if len(texts):
                at = np.minimum(np.searchsorted(texts, of_side), len(texts) - 1)
                is_known = (texts[at] == of_side) & (seen[at] <= most)
                seen += np.bincount(at[is_known], minlength=len(texts))
                is_wanted |= is_known
        numbers.append(np.flatnonzero(is_wanted) + start)
        rows.append(part[:, is_wanted])
    return np.concatenate(numbers), np.concatenate(rows, axis=1)


def _joined(texts: Digests) -> Numbers:
    """Return the number of each example's group: examples that share a text have the same."""
    groups = np.arange(texts.shape[1])
    ranks = [np.unique(of_side, return_inverse=True)[1] for of_side in texts]
    while True:
        before = groups
        for rank in ranks:
            lowest = np.full(len(groups), len(groups))
            np.minimum.at(lowest, rank, groups)
            groups = lowest[rank]
        groups = groups[groups]
        if np.array_equal(groups, before):
            return np.unique(groups, return_inverse=True)[1]


def draw_per_class(labels: Numbers, count: int, seed: int, contents: Digests) -> Drawn:
    """Draw about `count` examples, at most a tenth, evenly from all classes of two or more.

    contents: numbers of the contents of the examples. Equal ones are drawn together, and not if
    they have several classes.
    """
    share = min(count / len(labels), MAX_SHARE)
    rng = np.random.default_rng([seed, len(labels)])
    _, first, content, copies = np.unique(
        contents, return_index=True, return_inverse=True, return_counts=True
    )
    copies[content[labels != labels[first][content]]] = len(labels)  # too many to be drawn
    drawn: list[int] = []
    for label in np.unique(labels):
        n_members = (labels == label).sum()
        left = min(max(1, round(share * n_members)), n_members - 1)
        for member in rng.permutation(np.sort(first[labels[first] == label])):
            if left and copies[content[member]] <= left:
                drawn.append(content[member])
                left -= copies[content[member]]
    numbers = np.flatnonzero(np.isin(content, drawn))
    return Drawn(numbers.tolist(), int(copies[drawn][copies[drawn] > 1].sum()))


def normalized(text: str) -> str:
    """Return a text without differences of case, white space and Unicode composition."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def held_out_notice(n_held_out: int, n_examples: int, kind: str, n_grouped: int = 0) -> str:
    """Return the message that some of the training data are held out, and how many together."""
    grouped = f"; {n_grouped:,} of these share a text or an image with others" if n_grouped else ""
    return (
        f"no validation data given: {n_held_out:,} of {n_examples:,} {kind} are held out for "
        f"validation and not trained on{grouped}"
    )
