"""Subword regularization: different segmentations of the same word, by the caller's generator.

    BPE-dropout (Provilkov et al. 2020, algorithm 1)   each merge is skipped with probability p
    unigram     (Kudo 2018, eq. 8)                     P(x₁ … x_m) ∝ Π p(xᵢ)^α over segmentations

SentencePiece's own generator cannot be seeded again: a resumed training would see other pieces.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from random import Random

UNKNOWN_PENALTY = 10.0  # of a character without a piece, below the worst score
CACHE_SIZE, MAX_CACHED_LENGTH = 8192, 16  # words, and characters of each


@dataclass(frozen=True)
class BPEDropout:
    """Byte-pair encoding with dropout; `scores` orders the merges by their result."""

    scores: Mapping[str, float]

    def cut(self, word: str, random: Random, probability: float) -> list[str]:
        """Merge neighbours, best score first and leftmost among equals, skipping some for good."""
        parts = list(word)  # a merged part is followed by ""
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
                continue  # one of the two was merged with its other neighbour
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


class UnigramLattice:
    """Unigram language model: independent pieces and their log-probabilities."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        """Use these pieces; the lattices of short words are cached."""
        self.scores = scores
        self.longest = max(map(len, scores))
        self.unknown = min(scores.values()) - UNKNOWN_PENALTY
        self.cached_forward = lru_cache(CACHE_SIZE)(self.forward)

    def cut(self, word: str, random: Random, alpha: float) -> list[str]:
        """Draw a segmentation of a word with probability ∝ Π p(piece)^α."""
        # The last piece is drawn first, by the total weight of all segmentations that end with it.
        arcs = (self.cached_forward if len(word) <= MAX_CACHED_LENGTH else self.forward)(
            word, alpha
        )
        pieces = []
        end = len(word)
        while end:
            start = _draw(arcs[end], random)
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def forward(self, word: str, alpha: float) -> list[list[tuple[int, float]]]:
        """Return for each end position the starts of pieces that end there, with probabilities."""
        totals = [0.0]  # log weight of all segmentations of each prefix
        arcs: list[list[tuple[int, float]]] = [[]]
        for end in range(1, len(word) + 1):
            weights = {
                start: totals[start] + alpha * score
                for start in range(max(0, end - self.longest), end - 1)
                if (score := self.scores.get(word[start:end])) is not None
            }
            alone = self.scores.get(
                word[end - 1], self.unknown
            )  # so that every word can be segmented
            weights[end - 1] = totals[end - 1] + alpha * alone
            top = max(weights.values())
            total = top + math.log(sum(math.exp(weight - top) for weight in weights.values()))
            totals.append(total)
            arcs.append([(start, math.exp(weight - total)) for start, weight in weights.items()])
        return arcs


def _draw(arcs: list[tuple[int, float]], random: Random) -> int:
    """Draw a start by its probability."""
    left = random.random()
    for start, probability in arcs:
        left -= probability
        if left < 0:
            return start
    return arcs[-1][0]  # the probabilities sum to slightly less than one
