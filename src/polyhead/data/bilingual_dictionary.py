"""A dictionary learned from sentence pairs: which word of the other language a word stands for.

    t(f | e) ∝ Σ over pairs and places of f:  t(f | e) / Σ_e' t(f | e')      Brown et al. 1993

IBM Model 1 by expectation and maximisation: every target word is explained by some word of its
source sentence, or by none (an empty word that stands in every sentence). It is used to replace
unknown words (PosUnk): what a model's attention points at is looked up here. The file form is one
word a line: source, tab, target.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from polyhead.errors import DataError

FILE = "dictionary.tsv"
MOST_PAIRS = 50_000  # of sentences that are looked at
MOST_WORDS = 60  # of a longer sentence the beginning is looked at
SURE = 0.3  # a translation less likely than this is none
NO_WORD = 0


def learn_dictionary(
    sources: Sequence[str], targets: Sequence[str], *, rounds: int = 5
) -> dict[str, str]:
    """The likeliest translation of every source word that has a likely one."""
    numbers: tuple[dict[str, int], dict[str, int]] = ({"": NO_WORD}, {})
    pairs = zip(sources[:MOST_PAIRS], targets[:MOST_PAIRS], strict=True)
    sentences = [
        tuple(
            np.array([vocabulary.setdefault(w, len(vocabulary)) for w in words], dtype=np.int64)
            for vocabulary, words in zip(numbers, _words(*pair), strict=True)
        )
        for pair in pairs
    ]
    if not sentences:
        return {}
    # One row for every possible link: its source word, its target word, the place it explains.
    e = np.concatenate([np.tile(s, len(t)) for s, t in sentences])
    f = np.concatenate([np.repeat(t, len(s)) for s, t in sentences])
    lengths = np.concatenate([np.full(len(t), len(s)) for s, t in sentences])
    place = np.repeat(np.arange(len(lengths)), lengths)
    if not len(e):
        return {}
    both, link = np.unique(e * len(numbers[1]) + f, return_inverse=True)
    of_e, of_f = np.divmod(both, len(numbers[1]))
    t = np.ones(len(both))
    for _ in range(rounds):
        share = t[link] / np.bincount(place, t[link])[place]
        counts = np.bincount(link, share, minlength=len(both))
        t = counts / np.bincount(of_e, counts)[of_e]
    names = list(numbers[0]), list(numbers[1])
    found: dict[str, str] = {}
    for row in np.lexsort((of_f, -t, of_e)).tolist():  # the likeliest of each word comes first
        word = names[0][of_e[row]]
        if of_e[row] != NO_WORD and word not in found and t[row] >= SURE:
            found[word] = names[1][of_f[row]]
    return found


def write_dictionary(dictionary: Mapping[str, str], path: Path) -> None:
    """One word a line."""
    lines = (f"{source}\t{target}\n" for source, target in sorted(dictionary.items()))
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def read_dictionary(path: Path) -> dict[str, str]:
    """Read what `write_dictionary` wrote, or a file of one's own; DataError says what is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the dictionary {path} cannot be read: {error}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        source, tab, target = line.partition("\t")
        if not tab or not source.strip() or not target.strip():
            raise DataError(
                f"{path}, line {number}: {line[:40]!r} is no entry; expected a source word, a tab "
                "and a target word"
            )
        found.setdefault(source.strip(), target.strip())
    return found


def _words(source: str, target: str) -> tuple[list[str], list[str]]:
    """The words of both sides, the empty word before those of the source."""
    return ["", *source.split()[:MOST_WORDS]], target.split()[:MOST_WORDS]
