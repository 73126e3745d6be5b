"""Subword sampling (`text.sampling`): other ids of the same texts in every epoch.

Texts are encoded when their batch is made, hence in the worker processes of a loader, with a seed
of their own. Batches are planned by the lengths without sampling: sampled texts have more tokens,
and by so much a batch may exceed `max_tokens`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from polyhead.data.labels import PAIR
from polyhead.data.token_store import TokenSequences
from polyhead.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class SubwordSampler:
    """Random ids of texts; a function of the seed, the epoch and the number of the example."""

    tokenizers: Sequence[Tokenizer]  # of the sides of an example, such as source and target
    texts: Sequence[TokenSequences]  # of each side, bytes of UTF-8
    seed: int
    max_length: int
    of_pairs: bool = False  # one side, whose texts are pairs: two in a draw

    def draw(self, number: int, epoch: int) -> list[list[int]]:
        """Return ids of each side of an example, closed by EOS; they may exceed `max_length`."""
        random = Random(f"{self.seed} {epoch} {number}")
        if self.of_pairs:
            parts = _text(self.texts[0], number).split(PAIR)
            return [self.tokenizers[0].encode(part, sample=random) for part in parts]
        sides = zip(self.tokenizers, self.texts, strict=True)
        return [encoder.encode(_text(texts, number), sample=random) for encoder, texts in sides]


def _text(texts: TokenSequences, number: int) -> str:
    return texts[number].astype(np.uint8).tobytes().decode()
