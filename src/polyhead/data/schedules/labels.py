"""The embedded corpus with classes: Korean sentences, and what they are about.

    text                                     label
    회의는 3시에 시작해요.                     events

The class is the group of patterns that a sentence comes from: events, people, places or amounts.
Words are shared between the groups, so that a sentence must be read to be told. As in `schedules`,
every second sentence of the validation and the test set has a combination of words that never
occurs in the training set.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from polyhead.data.schedules.generator import MAX_TRIES, compose, pick, replace_all
from polyhead.data.schedules.patterns import Pattern, read_patterns
from polyhead.data.schedules.patterns_amounts import AMOUNTS
from polyhead.data.schedules.patterns_events import EVENTS
from polyhead.data.schedules.patterns_people import PEOPLE
from polyhead.data.schedules.patterns_places import PLACES
from polyhead.errors import DataError

KINDS = {"amounts": AMOUNTS, "events": EVENTS, "people": PEOPLE, "places": PLACES}
HEADING = "text\tlabel\n"

Labelled = tuple[str, str]  # text, label


def generate(
    n_train: int = 2_000, n_valid: int = 400, n_test: int = 400, seed: int = 1
) -> dict[str, list[Labelled]]:
    """The three sets, no sentence in two of them; the same arguments give the same sentences."""
    groups = [(label, read_patterns(text)) for label, text in KINDS.items()]
    seen: set[str] = set()
    mixed = {"test": n_test, "valid": n_valid}
    found = {
        split: _draw(split, [n % 2 == 0 for n in range(size)], groups, seed, seen)
        for split, size in mixed.items()
    }
    return {"train": _draw("train", [False] * n_train, groups, seed, seen), **found}


def _draw(
    split: str,
    wanted: Sequence[bool],
    groups: Sequence[tuple[str, tuple[Pattern, ...]]],
    seed: int,
    seen: set[str],
) -> list[Labelled]:
    """One new sentence for each of `wanted`, which says if it is to be a held-out one."""
    dice = random.Random(f"schedules kinds {split} {seed}")
    examples: list[Labelled] = []
    for is_held_out in wanted:
        for _ in range(MAX_TRIES):
            label, patterns = pick(dice, groups)
            (text, _), found = compose(pick(dice, patterns), dice)
            if found == is_held_out and text not in seen:
                break
        else:
            raise DataError(f"{split}: no more than {len(examples):,} sentences can be made")
        seen.add(text)
        examples.append((text, label))
    return examples


def write(folder: Path) -> list[Path]:
    """Write train-kinds.tsv, valid-kinds.tsv and test-kinds.tsv."""
    texts = {
        folder / f"{split}-kinds.tsv": HEADING + "".join(f"{t}\t{c}\n" for t, c in examples)
        for split, examples in generate().items()
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return replace_all(texts)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be written ({error.strerror}); give another folder"
        ) from None
