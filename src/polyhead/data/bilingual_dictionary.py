"""Bilingual dictionary learned from sentence pairs, for the replacement of unknown words (PosUnk).

    t(f | e) ∝ Σ over pairs and positions of f:  t(f | e) / Σ_e' t(f | e')      Brown et al. 1993

IBM Model 1 by expectation maximization, with an empty word in every source sentence. The file has
one entry per line: source word, tab, target word.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from polyhead.atomic_file import write_text
from polyhead.errors import DataError

FILE = "dictionary.tsv"
MAX_PAIRS = 50_000
MAX_WORDS = 60  # longer sentences are truncated
MIN_PROBABILITY = 0.3  # of a translation
NO_WORD = 0


def learn_dictionary(
    sources: Sequence[str], targets: Sequence[str], *, rounds: int = 5
) -> dict[str, str]:
    """Return the most probable translation of every source word that has a probable one."""
    numbers: tuple[dict[str, int], dict[str, int]] = ({"": NO_WORD}, {})
    sentences = [
        tuple(
            np.array([vocabulary.setdefault(w, len(vocabulary)) for w in words], dtype=np.int64)
            for vocabulary, words in (
                (numbers[0], ["", *source.split()[:MAX_WORDS]]),  # the empty word first
                (numbers[1], target.split()[:MAX_WORDS]),
            )
        )
        for source, target in zip(sources[:MAX_PAIRS], targets[:MAX_PAIRS], strict=True)
    ]
    if not sentences:
        return {}
    # One row for every possible link: its source word, its target word, the target position.
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
    dictionary: dict[str, str] = {}
    for row in np.lexsort((of_f, -t, of_e)).tolist():  # the most probable of each word first
        word = names[0][of_e[row]]
        if of_e[row] != NO_WORD and word not in dictionary and t[row] >= MIN_PROBABILITY:
            dictionary[word] = names[1][of_f[row]]
    return dictionary


def write_dictionary(dictionary: Mapping[str, str], path: Path) -> None:
    """Write a dictionary, sorted."""
    lines = (f"{source}\t{target}\n" for source, target in sorted(dictionary.items()))
    write_text(path, "".join(lines))


def read_dictionary(path: Path) -> dict[str, str]:
    """Read a dictionary, written by `write_dictionary` or by hand."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})", "cannot_read") from None
    dictionary: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        source, tab, target = line.partition("\t")
        if not tab or not source.strip() or not target.strip():
            raise DataError(
                f"{path}:{number}: {line[:40]!r} is not an entry; expected a source word, a tab, "
                "and a target word",
                "bad_line",
            )
        dictionary.setdefault(source.strip(), target.strip())
    return dictionary
