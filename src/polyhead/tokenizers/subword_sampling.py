"""Subword regularisation: cutting the same word into different pieces.

    BPE-dropout (Provilkov et al. 2020, algorithm 1)   each merge is left out with probability p
    unigram     (Kudo 2018, eq. 8)                     P(x₁ … x_m) ∝ Π p(xᵢ)^α over all cuts

SentencePiece samples too, but from one hidden generator per thread that cannot be seeded again, so
that a resumed training would see other pieces. Here the caller owns the generator.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from random import Random

UNKNOWN_PENALTY = 10.0  # a character without a piece is this much worse than the worst piece
MAX_KEPT, MAX_KEPT_LENGTH = 8192, 16  # words, and characters of each


@dataclass(frozen=True)
class Merges:
    """Byte-pair encoding: the pieces that two neighbours may become, and how early."""

    scores: Mapping[str, float]

    def cut(self, word: str, random: Random, probability: float) -> list[str]:
        """Merge neighbours, best score first and leftmost among equals, leaving some out.

        A merge that was left out does not come back; a new neighbour makes a new merge. With
        probability 0 this is plain byte-pair encoding, with 1 the characters remain.
        """
        parts = list(word)  # a merged part stands at its first place and leaves "" behind
        before = list(range(-1, len(parts) - 1))
        after = list(range(1, len(parts) + 1))
        agenda = [
            (-self.scores[merged], left, merged)
            for left in range(len(word) - 1)
            if (merged := word[left : left + 2]) in self.scores
        ]
        heapify(agenda)
        while agenda:
            _, left, merged = heappop(agenda)
            right = after[left]
            if not parts[left] or right == len(parts) or parts[left] + parts[right] != merged:
                continue  # one of the two has been merged with its other neighbour meanwhile
            if random.random() < probability:
                continue
            parts[left], parts[right] = merged, ""
            after[left] = after[right]
            if after[left] < len(parts):
                before[after[left]] = left
            for start in (before[left], left):
                if start >= 0 and after[start] < len(parts):
                    merged = parts[start] + parts[after[start]]
                    if merged in self.scores:
                        heappush(agenda, (-self.scores[merged], start, merged))
        return [part for part in parts if part]


class Lattice:
    """A unigram language model: pieces and their log-probabilities, independent of each other."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """Take the pieces; what frequent words are made of is kept, since it is asked for often."""
        self.scores = scores
        self.longest = max(map(len, scores))
        self.unknown = min(scores.values()) - UNKNOWN_PENALTY
        self.sum_up = lru_cache(MAX_KEPT)(self.forward)

    def cut(self, word: str, random: Random, alpha: float) -> list[str]:
        """One of all ways to cut a word, drawn with probability ∝ Π p(piece)^α.

        The last piece is drawn first, by the total weight of all cuts that end with it, then the
        one before.
        """
        arcs = (self.sum_up if len(word) <= MAX_KEPT_LENGTH else self.forward)(word, alpha)
        pieces = []
        end = len(word)
        while end:
            start = draw(arcs[end], random)
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def forward(self, word: str, alpha: float) -> list[list[tuple[int, float]]]:
        """For each end in the word, the starts of the pieces that end there, with probabilities."""
        totals = [0.0]  # the logarithm of the weight of all cuts of each beginning
        arcs: list[list[tuple[int, float]]] = [[]]
        for end in range(1, len(word) + 1):
            weights = {
                start: totals[start] + alpha * score
                for start in range(max(0, end - self.longest), end - 1)
                if (score := self.scores.get(word[start:end])) is not None
            }
            alone = self.scores.get(word[end - 1], self.unknown)  # so that every word can be cut
            weights[end - 1] = totals[end - 1] + alpha * alone
            top = max(weights.values())
            total = top + math.log(sum(math.exp(weight - top) for weight in weights.values()))
            totals.append(total)
            arcs.append([(start, math.exp(weight - total)) for start, weight in weights.items()])
        return arcs


def draw(arcs: list[tuple[int, float]], random: Random) -> int:
    """One start, by its probability."""
    left = random.random()
    for start, probability in arcs:
        left -= probability
        if left < 0:
            return start
    return arcs[-1][0]  # the probabilities summed to a rounding error less than one
