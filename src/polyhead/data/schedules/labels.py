"""Korean sentences of the corpus "schedules", labelled with their topic.

    text                                     label
    회의는 3시에 시작해요.                     events

The topics share their words, so that a classifier has to read the sentence. As in `generator`,
every second sentence of the validation and the test set has a held-out combination of words.
"""

import random
from pathlib import Path

from polyhead.data.schedules.generator import Sentence, draw_splits, pick, write_files
from polyhead.data.schedules.patterns import TOPICS, Pattern, patterns_of

HEADER = "text\tlabel\n"


def generate(
    n_train: int = 2_000, n_valid: int = 400, n_test: int = 400, seed: int = 1
) -> dict[str, list[tuple[str, str]]]:
    """Return disjoint sets of texts with labels, the same for the same arguments."""
    sizes = {"test": n_test, "valid": n_valid, "train": n_train}
    splits = draw_splits(sizes, f"schedules kinds {{split}} {seed}", pick_by_topic, sides=1)
    return {split: [_example(sentence) for sentence in splits[split]] for split in splits}


def pick_by_topic(rng: random.Random) -> Pattern:
    """Draw a topic, then one of its patterns."""
    return pick(rng, patterns_of(pick(rng, sorted(TOPICS))))


def _example(sentence: Sentence) -> tuple[str, str]:
    return sentence.pair[0], sentence.topic


def write(folder: Path) -> list[Path]:
    """Write train-kinds.tsv, valid-kinds.tsv and test-kinds.tsv."""
    return write_files(
        folder,
        {
            f"{split}-kinds.tsv": HEADER + "".join(f"{text}\t{label}\n" for text, label in examples)
            for split, examples in generate().items()
        },
    )
