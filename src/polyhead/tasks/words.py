"""Words of a text, and their ids with the places of their characters.

Words are encoded one by one, so that a word has the same ids in training and in use, and so that
offsets stay exact where normalisation changes the length of another word.
"""

import re
from typing import Any, NamedTuple

from polyhead.data.config import WordRule
from polyhead.special_tokens import UNK
from polyhead.tasks.base import TrainingCorpus, Used
from polyhead.tokenizers.base import Tokenizer

MARKS = r"!-/:-@\[-`{-~¡-¿‐-‧‰-⁞、-〃〈-】〔-〟！-／：-＠［-｀｛-･"
RULES: dict[WordRule, re.Pattern[str]] = {
    "spaces": re.compile(r"\S+"),
    "punctuation": re.compile(rf"[^\s{MARKS}](?:\S*[^\s{MARKS}])?|\S"),
    "characters": re.compile(r"\S"),
}
MAX_KNOWN = 200_000  # words that are kept


def split_words(text: str, rule: WordRule) -> list[tuple[int, int]]:
    """Return the places of the words of a text: their first character and the end."""
    return [match.span() for match in RULES[rule].finditer(text)]


class PieceOfWord(NamedTuple):
    """An id, and the characters of a word that it stands for."""

    id: int
    start: int
    end: int


class WordEncoder:
    """Encoder of single words, which keeps those that it has seen."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, tuple[PieceOfWord, ...]] = {}

    def __call__(self, word: str) -> tuple[PieceOfWord, ...]:
        """Return the pieces of a word, at least one; where offsets are unknown, all of it."""
        known = self.known.get(word)  # another thread may clear them
        if known is None:
            if len(self.known) >= MAX_KNOWN:
                self.known.clear()
            n = len(word)
            is_exact = len(self.tokenizer.normalise(word)) == n
            cut = self.tokenizer.pieces(word)
            pieces = [PieceOfWord(p.id, *((p.start, p.end) if is_exact else (0, n))) for p in cut]
            known = self.known[word] = tuple(pieces) or (PieceOfWord(UNK, 0, n),)
        return known


def word_encoder(used: Used) -> WordEncoder:
    """Return the encoder of a model, which keeps words between calls."""
    encoder: WordEncoder = used.kept.setdefault("words", WordEncoder(used.tokenizers.source))
    return encoder


def position_batches(data: TrainingCorpus) -> Any:
    """Return training batches of texts with labels of positions, which count from 1 on."""
    from polyhead.data.batches.labelled import PositionBatches

    train, stores = data.config.train, data.stores
    return PositionBatches(stores["text"], stores["label"], train.max_tokens, train.seed)
