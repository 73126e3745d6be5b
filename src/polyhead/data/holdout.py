"""Corpora of training and validation data, and the choice of examples that are held out."""

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

MAX_SHARE_OF_PAIRS = 0.05  # a small corpus gives at most this share of its sentence pairs
MIN_CANDIDATES = 1_000  # for the held-out texts
MAX_SHARE = 0.1  # the same for lines, labelled texts and images

Numbers = npt.NDArray[np.int64]
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


class Examples(Protocol):
    """Examples of which some can be chosen by their numbers."""

    def __len__(self) -> int: ...

    def select(self, numbers: list[int], /) -> Any: ...


def limit_training(
    corpus: Corpus[Examples | list[str], Valid], count: int | None, seed: int
) -> Corpus[Any, Valid]:
    """Return a corpus with at most `count` training examples; larger counts include smaller ones.

    Of plain text, which is a list, the first lines are kept: they belong together.
    """
    train = corpus.train
    if count is None or len(train) <= count:
        return corpus
    if isinstance(train, list):
        return replace(corpus, train=train[:count])
    drawn = np.random.default_rng([seed, len(train)]).permutation(len(train))[:count]
    return replace(corpus, train=train.select(sorted(drawn.tolist())))


def held_out_count(n_examples: int, limit: int | None, max_share: float = MAX_SHARE) -> int:
    """Return how many examples to hold out: at most `limit` and `max_share`, at least one."""
    count = int(n_examples * max_share)
    return max(1, count if limit is None else min(limit, count))


def draw_texts(texts: Iterable[str], count: int, seed: int, never: Iterable[str] = ()) -> list[int]:
    """Draw the numbers of at most `count` texts, ascending; equal texts are drawn together.

    texts: are iterated over, more than once if many are equal; memory depends on `count` only.

    Texts equal to those in `never` are not drawn. The choice changes little when the corpus grows:
    it is that of the smallest digests.
    """
    excluded = {_digest(text, seed) for text in never}
    n_candidates = MIN_CANDIDATES + 4 * count
    while True:
        groups, are_all = _smallest(texts, count, seed, n_candidates)
        drawn: list[int] = []
        for digest in sorted(groups.keys() - excluded):
            if len(drawn) + len(groups[digest]) <= count:
                drawn += groups[digest]
        if are_all or len(drawn) == count:
            return sorted(drawn)
        n_candidates *= 8


def _smallest(
    texts: Iterable[str], count: int, seed: int, n_groups: int
) -> tuple[dict[bytes, list[int]], bool]:
    """Return the numbers of equal texts by their digests, and whether these are all.

    At least the `n_groups` smallest digests are kept, and of each at most `count` + 1 numbers.
    """
    groups: dict[bytes, list[int]] = {}
    largest: bytes | None = None
    for number, text in enumerate(texts):
        digest = _digest(text, seed)
        if largest is not None and digest > largest:
            continue
        group = groups.setdefault(digest, [])
        if len(group) <= count:
            group.append(number)
        if len(groups) > 2 * n_groups:
            smallest = sorted(groups)[:n_groups]
            groups, largest = {digest: groups[digest] for digest in smallest}, smallest[-1]
    return groups, largest is None


def _digest(text: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {normalized(text)}".encode("utf-8", "surrogatepass")).digest()


def draw_per_class(labels: Numbers, count: int, seed: int) -> Numbers:
    """Draw about `count` examples, at most a tenth, evenly from all classes of two or more."""
    share = min(count / len(labels), MAX_SHARE)
    rng = np.random.default_rng([seed, len(labels)])
    drawn = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        drawn.append(members[: min(max(1, round(share * len(members))), len(members) - 1)])
    return np.sort(np.concatenate(drawn))


def normalized(text: str) -> str:
    """Return a text without differences of case, white space and Unicode composition."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def held_out_notice(n_held_out: int, n_examples: int, kind: str) -> str:
    """Return the message that some of the training data are held out."""
    return (
        f"no validation data given: {n_held_out:,} of {n_examples:,} {kind} are held out for "
        "validation and not trained on"
    )
