"""Generator of the embedded corpus "schedules": Korean-English sentences about people and events.

Held-out combinations: of the combinations of a person and a place, an event and a weekday, and a
pattern and an event, one in ten never occurs in the training set. SHA-256 of their names selects
them, for every seed alike. Every second sentence of the validation and the test set contains such a
combination, the others none. No sentence occurs in two sets, in either language.

Sentences are drawn with `random.Random.random`, which is stable between versions of Python. The
test and validation sets do not depend on the size of the training set.
"""

import hashlib
import os
import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeVar

from polyhead.atomic_file import sync
from polyhead.data.config import DataConfig
from polyhead.data.locate import find, home
from polyhead.data.schedules.fillers import fillers
from polyhead.data.schedules.patterns import (
    TOPICS,
    Attribute,
    Filler,
    Pattern,
    all_patterns,
    kind_of,
    patterns_of,
)
from polyhead.errors import ConfigError, DataError

Pair = tuple[str, str]  # Korean, English
Choice = TypeVar("Choice")

HELD_OUT_KINDS = (("person", "place"), ("event", "weekday"), ("pattern", "event"))
HELD_OUT_ONE_IN = 10
MAX_TRIES = 20_000  # failed draws before the patterns count as exhausted


class Splits(NamedTuple):
    """The training, validation and test set of sentence pairs."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


class Sentence(NamedTuple):
    """A sentence pair, its topic, and whether it has a held-out combination."""

    pair: Pair
    topic: str
    is_held_out: bool


def generate(n_train: int = 12_000, n_valid: int = 500, n_test: int = 500, seed: int = 1) -> Splits:
    """Generate the corpus; the same arguments always give the same sentences."""
    sizes = {"test": n_test, "valid": n_valid, "train": n_train}
    splits = draw_splits(
        sizes, f"schedules {{split}} {seed}", lambda rng: pick(rng, all_patterns())
    )
    return Splits(**{name: [sentence.pair for sentence in splits[name]] for name in Splits._fields})


def write(
    folder: Path, n_train: int = 12_000, n_valid: int = 500, n_test: int = 500, seed: int = 1
) -> list[Path]:
    """Write the corpus as parallel files train, valid and test, .ko and .en, with a README.md."""
    splits = generate(n_train, n_valid, n_test, seed)
    texts = {
        f"{split}.{language}": "".join(f"{pair[side]}\n" for pair in pairs)
        for split, pairs in splits._asdict().items()
        for side, language in enumerate(("ko", "en"))
    }
    readme = (files(__package__) / "readme.txt").read_text(encoding="utf-8")
    texts["README.md"] = readme.format(n_train=n_train, n_valid=n_valid, n_test=n_test, seed=seed)
    return write_files(folder, texts)


def generate_labelled(
    n_train: int = 2_000, n_valid: int = 400, n_test: int = 400, seed: int = 1
) -> dict[str, list[tuple[str, str]]]:
    """Return disjoint sets of Korean texts with their topics, the same for the same arguments."""
    sizes = {"test": n_test, "valid": n_valid, "train": n_train}
    splits = draw_splits(
        sizes,
        f"schedules kinds {{split}} {seed}",
        lambda rng: pick(rng, patterns_of(pick(rng, sorted(TOPICS)))),
        sides=1,
    )
    return {name: [(s.pair[0], s.topic) for s in splits[name]] for name in splits}


def write_labelled(folder: Path) -> list[Path]:
    """Write train-kinds.tsv, valid-kinds.tsv and test-kinds.tsv."""
    texts = {
        f"{split}-kinds.tsv": "".join(f"{text}\t{label}\n" for text, label in examples)
        for split, examples in generate_labelled().items()
    }
    return write_files(folder, {name: "text\tlabel\n" + text for name, text in texts.items()})


def draw_splits(
    sizes: Mapping[str, int],
    seed: str,  # a template with {split}
    pick_pattern: Callable[[random.Random], Pattern],
    *,
    sides: int = 2,
) -> dict[str, list[Sentence]]:
    """Draw the sets one after another; no text of the first `sides` languages occurs twice."""
    seen: set[str] = set()
    splits: dict[str, list[Sentence]] = {}
    for split, size in sizes.items():
        if size < 0:
            raise DataError(f"n_{split}: {size} is negative", "negative_size")
        rng = random.Random(seed.format(split=split))
        sentences = splits[split] = []
        for number in range(size):
            wants_held_out = split != "train" and number % 2 == 0
            for _ in range(MAX_TRIES):
                sentence = compose(pick_pattern(rng), rng)
                is_new = seen.isdisjoint(sentence.pair[:sides])
                if sentence.is_held_out == wants_held_out and is_new:
                    break
            else:
                raise DataError(
                    f"{split}: {size:,} sentences requested, but only {number:,} can be generated",
                    "corpus_exhausted",
                )
            seen.update(sentence.pair[:sides])
            sentences.append(sentence)
    return splits


def compose(pattern: Pattern, rng: random.Random) -> Sentence:
    """Fill the pattern at random, with no word in it twice."""
    chosen: dict[str, Filler] = {}
    for slot in pattern.slots:
        choices = fillers()[kind_of(slot)]
        filler = pick(rng, choices)
        while any(  # equal, or with a shared attribute: 책 두 권, 책 세 권
            filler == other or not set(filler.attributes).isdisjoint(other.attributes)
            for other in chosen.values()
        ):
            filler = pick(rng, choices)
        chosen[slot] = filler
    source, target = pattern.fill(chosen)
    pair = unicodedata.normalize("NFC", source), unicodedata.normalize("NFC", target)
    attributes = [("pattern", pattern.korean)]
    attributes += [attribute for filler in chosen.values() for attribute in filler.attributes]
    has_held_out = any(
        is_held_out(first, second)
        for first, second in product(attributes, attributes)
        if (first[0], second[0]) in HELD_OUT_KINDS
    )
    return Sentence(pair, pattern.topic, has_held_out)


@cache
def is_held_out(first: Attribute, second: Attribute) -> bool:
    """Return whether a combination of two attributes is a held-out one."""
    digest = hashlib.sha256("\0".join((*first, *second)).encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0


def pick(rng: random.Random, choices: Sequence[Choice]) -> Choice:
    """Draw one; `random.choice` may draw differently in another version of Python."""
    return choices[int(rng.random() * len(choices))]


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write all files under temporary names, then remove the old ones and rename the new.

    A process that is killed leaves some files missing, but never files of two corpora.
    """
    unfinished = {folder / name: folder / f".{name}.unfinished" for name in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for path, text in zip(unfinished.values(), texts.values(), strict=True):
                path.write_text(text, encoding="utf-8", newline="\n")
                sync(path)
            for path in unfinished:
                path.unlink(missing_ok=True)
            for path, temporary in unfinished.items():
                os.replace(temporary, path)
        finally:
            for temporary in unfinished.values():
                temporary.unlink(missing_ok=True)
    except OSError as error:
        message = f"{folder}: cannot be written ({error.strerror}). Choose another directory."
        raise DataError(message, "cannot_write") from None
    return list(unfinished)


def make_missing(config: DataConfig) -> None:
    """Generate the embedded corpus if a configuration uses it and its files do not exist."""
    if config.corpus is None:
        return
    if config.corpus != "schedules":
        raise ConfigError(
            f"data.corpus = {config.corpus!r}: only 'schedules' can be generated", "unknown_corpus"
        )
    files = (
        *config.source, *config.target, *config.pairs,
        *config.valid_source, *config.valid_target, *config.valid_pairs,
        *config.text, *config.valid_text, *config.labelled, *config.valid_labelled,
    )  # fmt: skip
    try:
        for name in files:
            find(name)
    except DataError:
        write(home() / "schedules")
        if config.labelled:
            write_labelled(home() / "schedules")
