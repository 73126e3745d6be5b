"""Tiny runs on pairs, several labels, numbers and sentence pairs, shared by all tests."""

import random

import pytest
from pretrained import STACK

from polyhead.training.config import read_run
from polyhead.training.trainer import train

WORDS = ("apple", "pear", "car", "bus", "tree", "house")
SIZES = tuple(f"model.encoder.stack.{size}" for size in STACK)
FEW = (
    *SIZES, "text.vocab=340", "train.max_tokens=400", "train.steps=6", "train.validate_every=3",
    "train.save_every=3", "train.schedule.warmup=2",
)  # fmt: skip
FILES = {  # recipe, option and header of each
    "pairs": ("classify-small", "labelled", "sentence1\tsentence2\tlabel"),
    "labels": ("classify-small", "labelled", "text\tlabels"),
    "numbers": ("classify-small", "labelled", "text\tscore"),
    "graded": ("embed-small", "labelled", "sentence1\tsentence2\tscore"),
    "sentences": ("embed-small", "pairs", "sentence1\tsentence2"),
}


def rows_of(kind, n=60):
    """Return rows of words: pairs of equal words or not, words that occur, and how many."""
    drawn = random.Random(3)
    for number in range(n):
        words = [drawn.choice(WORDS) for _ in range(drawn.randint(2, 5))]
        first, other = f"{' '.join(words)} {number}", drawn.choice(WORDS)
        known = [word for word in WORDS[:3] if word in words]
        yield (
            first,
            *{
                "pairs": (first if number % 2 else other, "yes" if number % 2 else "no"),
                "labels": ("|".join(known) or "[]",),
                "numbers": (f"{len(words) * 100 + 0.5}",),
                "graded": (other, f"{5 * (other in words)}.5"),
                "sentences": (first.upper(),),
            }[kind],
        )


def write_rows(folder, kind):
    """Write a file of a kind and return its option and path."""
    path = folder / f"{kind}.tsv"
    lines = [FILES[kind][2], *("\t".join(row) for row in rows_of(kind))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def configure(folder, kind, *overrides):
    """Return the configuration of a tiny run on data of a kind."""
    recipe, option, _ = FILES[kind]
    return read_run(recipe, (*FEW, *overrides), {option: [str(write_rows(folder, kind))]})


@pytest.fixture(scope="session")
def text_heads(tmp_path_factory):
    """Return a finished run of each kind."""
    folder = tmp_path_factory.mktemp("heads")
    for kind in FILES:
        train(configure(folder, kind), folder / kind)
    return {kind: folder / kind for kind in FILES}
