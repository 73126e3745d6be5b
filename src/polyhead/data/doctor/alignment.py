"""Detection of misaligned lines in parallel text.

A line lost or doubled on one side makes every later pair wrong without any error. But translations
share features that need no dictionary: similar lengths, question marks, numbers and names. The
weight of the features f of a pair of lines is estimated from the corpus itself, as the
log-likelihood ratio

    w(f) = log p(f | lines i and i+d) - log p(f | lines i and j, j some lines away)

for the offset d at which the two sides match best. The best path (Viterbi) through the states "the
target is d lines later", d = -3 … 3, and "no match" then gives the misaligned spans. The cost of
switching states is higher than what noise can gain.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from polyhead.data.line_spool import CountedLines

Numbers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]

OFFSETS = range(-3, 4)
NO_OFFSET = OFFSETS.index(0)  # states of the path: the offsets, and "no match"
FAR = (-23, -17, -11, -7, 7, 11, 17, 23)  # offsets of similar lines that are not translations
BLOCK = 8  # lines per step of the path
SWITCH_COST = 25.0  # nats
WINDOW = 100_000  # lines that are held in memory
MIN_LINES = 100  # fewer are too few to estimate the weights

WORD = re.compile(r"\d+|[a-zà-ɏ]{3,}|[^\W\d_a-zà-ɏ]{3,}")
CLOSING = " \t\r\"'”’»)]」』"
ENDINGS = {".": 1, "。": 1, "?": 2, "？": 2, "!": 3, "！": 3, ":": 4, ",": 4, ";": 4}
N_ENDINGS = 5


class AlignedSpan(NamedTuple):
    """Source lines [start, stop) whose translations are `offset` lines later, or (None) missing."""

    start: int
    stop: int
    offset: int | None


class AlignmentVerdict(NamedTuple):
    """The spans in order, and whether the two sides are related at all."""

    spans: list[AlignedSpan]
    related: bool

    @property
    def misaligned_spans(self) -> list[AlignedSpan]:
        return [span for span in self.spans if span.offset != 0]


def judge_all(sources: CountedLines, targets: CountedLines) -> AlignmentVerdict:
    """Find where equally many lines are aligned and where not, in windows of about `WINDOW` lines.

    Spans that continue in the next window are joined. Memory is that of a window.
    """
    n_windows = max(1, len(sources) // WINDOW)
    edges = np.linspace(0, len(sources), n_windows + 1).astype(np.int64).tolist()
    sides, joined, related = (iter(sources), iter(targets)), [AlignedSpan(0, 0, 0)], []
    for start, stop in pairwise(edges):
        verdict = judge(*(list(islice(side, stop - start)) for side in sides))
        related.append(verdict.related)
        is_lost = n_windows > 1 and not verdict.related
        for span in [AlignedSpan(0, stop - start, None)] if is_lost else verdict.spans:
            if span.offset != joined[-1].offset:
                joined.append(AlignedSpan(start + span.start, start + span.stop, span.offset))
            joined[-1] = joined[-1]._replace(stop=start + span.stop)
    spans = [span for span in joined if span.start < span.stop]
    return AlignmentVerdict(spans, related=any(related))


def judge(sources: Sequence[str], targets: Sequence[str]) -> AlignmentVerdict:
    """Find where the lines are aligned and where not; the two sides may differ in length."""
    n_lines = min(len(sources), len(targets))
    aligned = [AlignedSpan(0, n_lines, 0)]
    if n_lines < MIN_LINES:
        return AlignmentVerdict(aligned, related=True)
    features = PairFeatures(sources, targets)
    tables = features.learn()
    if tables is None:
        return AlignmentVerdict(aligned, related=not features.is_informative)
    scores = np.zeros((len(OFFSETS) + 1, n_lines))
    for state, offset in enumerate(OFFSETS):
        first, codes = features.at(offset)
        for table, code in zip(tables, codes, strict=True):
            scores[state, first : first + len(code)] += table[code][: n_lines - first]
    return AlignmentVerdict(list(spans(best_path(scores), scores)), related=True)


class SideFeatures:
    """Features of the lines of one side; `word[k]` occurs in line `place[k]`."""

    def __init__(self, lines: Sequence[str], vocabulary: dict[str, int]) -> None:
        endings, numbers, words, places = array("q"), array("q"), array("q"), array("q")
        for index, line in enumerate(lines):
            endings.append(ENDINGS.get(line.rstrip(CLOSING)[-1:], 0))
            in_line = set(WORD.findall(line.casefold()))
            numbers.append(any(word[0].isdigit() for word in in_line))
            words.extend(vocabulary.setdefault(word, len(vocabulary)) for word in in_line)
            places.extend([index] * len(in_line))
        self.length = np.log1p(np.array([len(line) for line in lines], dtype=np.float64))
        self.ending, self.has_number, self.word, self.place = (
            np.array(values, dtype=np.int64) for values in (endings, numbers, words, places)
        )

    def keep(self, wanted: npt.NDArray[np.bool_]) -> None:
        kept = wanted[self.word]
        self.word, self.place = self.word[kept], self.place[kept]

    def levels(self, n_levels: int) -> Numbers:
        """Return the lengths as levels of about equal frequency."""
        borders = np.quantile(self.length, np.arange(1, n_levels) / n_levels)
        return np.searchsorted(np.unique(borders), self.length, side="right")


class PairFeatures:
    """Four features of pairs of lines, each a small number."""

    def __init__(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        vocabulary: dict[str, int] = {}
        self.source, self.target = sides = [
            SideFeatures(lines, vocabulary) for lines in (sources, targets)
        ]
        n_lines = min(len(sources), len(targets))
        times = [np.bincount(side.word, minlength=len(vocabulary)) for side in sides]
        is_rare = times[0] + times[1] < max(4, n_lines // 20)
        for side in sides:
            side.keep((times[0] > 0) & (times[1] > 0) & is_rare)
        self.is_number = np.array([word[0].isdigit() for word in vocabulary], dtype=np.bool_)
        self.n_levels = int(np.clip((n_lines / 50) ** 0.5, 2, 8))
        self.levels = [side.levels(self.n_levels) for side in sides]
        self.sizes = (self.n_levels**2, N_ENDINGS**2, 4, 4)
        self.keys = np.sort(self.target.place * len(vocabulary) + self.target.word)
        self.is_informative = all(side.length.std() > 0.15 for side in sides)

    def at(self, offset: int) -> tuple[int, list[Numbers]]:
        """Return the first i and the features of source lines i with target lines i + offset."""
        start = max(0, -offset)
        stop = min(len(self.source.length), len(self.target.length) - offset)
        here, there = slice(start, stop), slice(start + offset, stop + offset)
        numbers, words = (shared[here] for shared in self.shared(offset))
        with_numbers = self.source.has_number[here] + self.target.has_number[there]
        return start, [
            self.levels[0][here] * self.n_levels + self.levels[1][there],
            self.source.ending[here] * N_ENDINGS + self.target.ending[there],
            np.where(numbers > 0, 3, with_numbers),  # none, one side, both but different, shared
            np.minimum(words, 3),
        ]

    def shared(self, offset: int) -> tuple[Numbers, Numbers]:
        """Return how many numbers and words each source line shares with its target line."""
        source, n_words = self.source, len(self.is_number)
        wanted = (source.place + offset) * n_words + source.word
        where = np.searchsorted(self.keys, wanted)
        is_shared = where < len(self.keys)
        is_shared[is_shared] = self.keys[where[is_shared]] == wanted[is_shared]
        number = self.is_number[source.word]
        n = len(source.length)
        return (
            np.bincount(source.place[is_shared & number], minlength=n),
            np.bincount(source.place[is_shared & ~number], minlength=n),
        )

    def learn(self) -> list[Weights] | None:
        """Estimate the weights of each feature; None if the features are not informative."""
        apart = self.counts(FAR)
        n_cells = sum(self.sizes)
        gains, tables = [], []
        for offset in OFFSETS:
            together = self.counts([offset])
            tables.append(
                [log_likelihood_ratios(t, a) for t, a in zip(together, apart, strict=True)]
            )
            pairs = zip(together, tables[-1], strict=True)
            gains.append(float(sum((count * table).sum() for count, table in pairs)))
        best = int(np.argmax(gains))
        # under chance alone, twice the gain is distributed as χ² with that many degrees of freedom
        if 2 * gains[best] < n_cells + 4 * (2 * n_cells) ** 0.5:
            return None
        return tables[best]

    def counts(self, offsets: Sequence[int]) -> list[Numbers]:
        """Count the values of each feature at these offsets."""
        totals = [np.zeros(size, dtype=np.int64) for size in self.sizes]
        for offset in offsets:
            for total, codes in zip(totals, self.at(offset)[1], strict=True):
                total += np.bincount(codes, minlength=len(total))
        return totals


def log_likelihood_ratios(together: Numbers, apart: Numbers) -> Weights:
    """Return the log-likelihood ratios, shrunk towards 0 where counts are small."""
    chance = (apart + 0.5) / (apart + 0.5).sum()
    weight = len(together)
    return np.log((together + weight * chance) / (together.sum() + weight) / chance)


def best_path(scores: Weights) -> Numbers:
    """Return the best state of every block of lines (Viterbi), starting aligned."""
    n_states, n_lines = scores.shape
    n_blocks = -(-n_lines // BLOCK)
    padded = np.pad(scores, ((0, 0), (0, n_blocks * BLOCK - n_lines)))
    blocks = padded.reshape(n_states, n_blocks, BLOCK).sum(-1).T
    total = np.where(np.arange(n_states) == NO_OFFSET, 0.0, -SWITCH_COST)
    previous = np.zeros((n_blocks, n_states), dtype=np.int64)
    states = np.arange(n_states)
    for block in range(n_blocks):
        best = int(total.argmax())
        moved = total[best] - SWITCH_COST
        previous[block] = np.where(total >= moved, states, best)
        total = np.maximum(total, moved) + blocks[block]
    path = np.zeros(n_blocks, dtype=np.int64)
    state = int(total.argmax())
    for block in range(n_blocks - 1, -1, -1):
        path[block] = state
        state = int(previous[block, state])
    return path


def spans(path: Numbers, scores: Weights) -> Iterator[AlignedSpan]:
    """Return the path as spans of lines, with boundaries refined to lines."""
    n_lines = scores.shape[1]
    offsets = [*OFFSETS, None]
    changes = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    start = 0
    for here, following in pairwise(changes[1:]):
        before, after = path[here - 1], path[here]
        low = max(start, (here - 2) * BLOCK)
        high = min(following * BLOCK, (here + 2) * BLOCK, n_lines)
        advantage = np.cumsum(scores[before, low:high] - scores[after, low:high])
        border = low + int(np.argmax(np.concatenate([[0.0], advantage])))
        yield AlignedSpan(start, border, offsets[before])
        start = border
    yield AlignedSpan(start, n_lines, offsets[path[-1]])
