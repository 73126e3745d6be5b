"""Do line n of the one side and line n of the other still belong together?

A line lost or doubled on one side turns every later pair into nonsense, and nothing fails: the
loss is merely bad. But translations leave signs that need no dictionary: a long line stays long, a
question stays a question, numbers and names are kept. What the signs f of a pair of lines are
worth is learnt from the corpus itself, as the log-likelihood ratio

    w(f) = log p(f | lines i and i+d) - log p(f | lines i and j, j some lines away)

for the offset d at which the two sides fit best. Then the best path (Viterbi) through the states
"the target is d lines later", d = -3 … 3, and "nothing fits" tells where the sides part. To change
the state costs so much that noise cannot pay for it.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]

OFFSETS = range(-3, 4)
NO_OFFSET, NOTHING_FITS = OFFSETS.index(0), len(OFFSETS)  # states of the path
FAR = (-23, -17, -11, -7, 7, 11, 17, 23)  # lines apart: near enough to be alike, never translations
BLOCK = 8  # lines that the path goes at a time
PRICE = 25.0  # nats, for changing the state
MIN_LINES = 100  # with fewer there is nothing to learn from

WORD = re.compile(r"\d+|[a-zà-ɏ]{3,}|[^\W\d_a-zà-ɏ]{3,}")
CLOSING = " \t\r\"'”’»)]」』"
ENDINGS = {".": 1, "。": 1, "?": 2, "？": 2, "!": 3, "！": 3, ":": 4, ",": 4, ";": 4}
N_ENDINGS = 5


class AlignedSpan(NamedTuple):
    """Source lines, counted from 0, whose translations lie `offset` lines later; `stop` is not in.

    An offset of None means that no offset fits.
    """

    start: int
    stop: int
    offset: int | None


class AlignmentVerdict(NamedTuple):
    """The stretches, first to last, and whether the two sides show any sign of kinship at all."""

    stretches: list[AlignedSpan]
    related: bool

    @property
    def parted(self) -> list[AlignedSpan]:
        """The stretches that are out of step."""
        return [stretch for stretch in self.stretches if stretch.offset != 0]


def judge(sources: Sequence[str], targets: Sequence[str]) -> AlignmentVerdict:
    """Find where the lines are in step and where not; the two sides may differ in length."""
    n_lines = min(len(sources), len(targets))
    in_step = [AlignedSpan(0, n_lines, 0)]
    if n_lines < MIN_LINES:
        return AlignmentVerdict(in_step, related=True)
    signs = PairFeatures(sources, targets)
    tables = signs.learn()
    if tables is None:
        return AlignmentVerdict(in_step, related=not signs.telling)
    scores = np.zeros((len(OFFSETS) + 1, n_lines))
    for state, offset in enumerate(OFFSETS):
        first, codes = signs.at(offset)
        for table, code in zip(tables, codes, strict=True):
            scores[state, first : first + len(code)] += table[code][: n_lines - first]
    return AlignmentVerdict(list(stretches(best_path(scores), scores)), related=True)


class SideFeatures:
    """What is looked at in the lines of one side. `word[k]` stands in line `place[k]`."""

    def __init__(self, lines: Sequence[str], vocabulary: dict[str, int]) -> None:
        ending, number, word, place = array("q"), array("b"), array("q"), array("q")
        for index, line in enumerate(lines):
            ending.append(ENDINGS.get(line.rstrip(CLOSING)[-1:], 0))
            found = set(WORD.findall(line.casefold()))
            number.append(any(each[0].isdigit() for each in found))
            word.extend(vocabulary.setdefault(each, len(vocabulary)) for each in found)
            place.extend([index] * len(found))
        self.length = np.log1p(np.array([len(line) for line in lines], dtype=np.float64))
        self.ending = np.array(ending, dtype=np.int64)
        self.has_number = np.array(number, dtype=np.int64)
        self.word = np.array(word, dtype=np.int64)
        self.place = np.array(place, dtype=np.int64)

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        """Forget all other words."""
        kept = wanted[self.word]
        self.word, self.place = self.word[kept], self.place[kept]

    def levels(self, n_levels: int) -> Numbers:
        """The lengths as a few levels that are about equally frequent."""
        borders = np.quantile(self.length, np.arange(1, n_levels) / n_levels)
        return np.searchsorted(np.unique(borders), self.length, side="right")


class PairFeatures:
    """The signs of pairs of lines, one small number for each of four questions."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        vocabulary: dict[str, int] = {}
        self.source, self.target = (
            SideFeatures(sources, vocabulary),
            SideFeatures(targets, vocabulary),
        )
        sides = (self.source, self.target)
        n_lines = min(len(sources), len(targets))
        times = [np.bincount(side.word, minlength=len(vocabulary)) for side in sides]
        telling = (times[0] > 0) & (times[1] > 0) & (times[0] + times[1] < max(4, n_lines // 20))
        for side in sides:
            side.keep(telling)
        self.is_number = np.array([word[0].isdigit() for word in vocabulary], dtype=np.bool_)
        self.n_levels = int(np.clip((n_lines / 50) ** 0.5, 2, 8))
        self.levels = [side.levels(self.n_levels) for side in sides]
        self.sizes = (self.n_levels**2, N_ENDINGS**2, 4, 4)
        self.keys = np.sort(self.target.place * len(vocabulary) + self.target.word)
        self.telling = all(side.length.std() > 0.15 for side in sides)

    def at(self, offset: int) -> tuple[int, list[Numbers]]:
        """The signs of source lines i with target lines i + offset, and the first such i."""
        start = max(0, -offset)
        stop = min(len(self.source.length), len(self.target.length) - offset)
        here, there = slice(start, stop), slice(start + offset, stop + offset)
        numbers, words = (shared[here] for shared in self.shared(offset))
        with_numbers = self.source.has_number[here] + self.target.has_number[there]
        return start, [
            self.levels[0][here] * self.n_levels + self.levels[1][there],
            self.source.ending[here] * N_ENDINGS + self.target.ending[there],
            np.where(numbers > 0, 3, with_numbers),  # none, one side, both but others, the same
            np.minimum(words, 3),
        ]

    def shared(self, offset: int) -> tuple[Numbers, Numbers]:
        """For each source line, how many numbers and how many words the other line has too."""
        source, n_words = self.source, len(self.is_number)
        wanted = (source.place + offset) * n_words + source.word
        where = np.searchsorted(self.keys, wanted)
        found = where < len(self.keys)
        found[found] = self.keys[where[found]] == wanted[found]
        number = self.is_number[source.word]
        n = len(source.length)
        return (
            np.bincount(source.place[found & number], minlength=n),
            np.bincount(source.place[found & ~number], minlength=n),
        )

    def learn(self) -> list[Weights] | None:
        """For each question, what each answer is worth; None if the answers say nothing."""
        apart = self.counts(FAR)
        n_cells = sum(self.sizes)
        gains, tables = [], []
        for offset in OFFSETS:
            together = self.counts([offset])
            tables.append([worth(t, a) for t, a in zip(together, apart, strict=True)])
            pairs = zip(together, tables[-1], strict=True)
            gains.append(float(sum((count * table).sum() for count, table in pairs)))
        best = int(np.argmax(gains))
        # under chance alone, twice the gain is distributed as χ² with that many degrees of freedom
        if 2 * gains[best] < n_cells + 4 * (2 * n_cells) ** 0.5:
            return None
        return tables[best]

    def counts(self, offsets: Sequence[int]) -> list[Numbers]:
        """How often each answer occurs at these offsets, for each question."""
        totals = [np.zeros(size, dtype=np.int64) for size in self.sizes]
        for offset in offsets:
            for total, codes in zip(totals, self.at(offset)[1], strict=True):
                total += np.bincount(codes, minlength=len(total))
        return totals


def worth(together: Numbers, apart: Numbers) -> Weights:
    """The log-likelihood ratios; where little was seen they are drawn towards nothing."""
    chance = (apart + 0.5) / (apart + 0.5).sum()
    weight = len(together)
    return np.log((together + weight * chance) / (together.sum() + weight) / chance)


def best_path(scores: Weights) -> Numbers:
    """The best state of every block of lines (Viterbi), starting in step."""
    n_states, n_lines = scores.shape
    n_blocks = -(-n_lines // BLOCK)
    padded = np.pad(scores, ((0, 0), (0, n_blocks * BLOCK - n_lines)))
    blocks = padded.reshape(n_states, n_blocks, BLOCK).sum(-1).T
    total = np.where(np.arange(n_states) == NO_OFFSET, 0.0, -PRICE)
    came_from = np.zeros((n_blocks, n_states), dtype=np.int64)
    states = np.arange(n_states)
    for block in range(n_blocks):
        leader = int(total.argmax())
        moved = total[leader] - PRICE
        came_from[block] = np.where(total >= moved, states, leader)
        total = np.maximum(total, moved) + blocks[block]
    path = np.zeros(n_blocks, dtype=np.int64)
    state = int(total.argmax())
    for block in range(n_blocks - 1, -1, -1):
        path[block] = state
        state = int(came_from[block, state])
    return path


def stretches(path: Numbers, scores: Weights) -> Iterator[AlignedSpan]:
    """The path as stretches of lines, each border moved to where the lines themselves put it."""
    n_lines = scores.shape[1]
    changes = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    start = 0
    for here, following in pairwise(changes[1:]):
        before, after = path[here - 1], path[here]
        low = max(start, (here - 2) * BLOCK)
        high = min(following * BLOCK, (here + 2) * BLOCK, n_lines)
        advantage = np.cumsum(scores[before, low:high] - scores[after, low:high])
        border = low + int(np.argmax(np.concatenate([[0.0], advantage])))
        yield AlignedSpan(start, border, offset_of(int(before)))
        start = border
    yield AlignedSpan(start, n_lines, offset_of(int(path[-1])))


def offset_of(state: int) -> int | None:
    """The offset that a state stands for."""
    return None if state == NOTHING_FITS else OFFSETS[state]
