"""Encoding of chunks of lines, in this process or in the child processes of `corpus_store`.

Nothing here imports torch, so that child processes start quickly and stay small.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polyhead.data.labels import N_NUMBERS, PAIR, Problem
from polyhead.data.token_store import CODES, TokenSequences
from polyhead.errors import PolyheadError
from polyhead.plugin_registry import resolve
from polyhead.special_tokens import BOS, EOS
from polyhead.tokenizers import sentencepiece
from polyhead.tokenizers.base import CHUNK, TextConfig, Tokenizer
from polyhead.tokenizers.char_word import CharWordTokenizer
from polyhead.tokenizers.storage import TokenizerPair, load_tokenizers, train_tokenizers

NAMES: dict[str, tuple[str, ...]] = {  # of the stores, in the order of the columns
    "pairs": ("source", "target"),
    "running": ("text",),
    "parts": ("text",),
}


class StoreForm(NamedTuple):
    """Form of the examples that are made of lines.

    pairs: source and target, closed by EOS; pairs longer than `max_length` are left out
    running: the ids of all lines, closed by EOS, or by the ids of line ends
    parts: BOS ids EOS, several of a long line and none of an empty one (`tasks.masked_tokens`)
    others: as the class of `polyhead.tasks` with this name, whose place is `task`, encodes them
    """

    kind: str
    max_length: int
    with_texts: bool = False  # also the texts, as bytes
    classes: Sequence[str] = ()
    problem: Problem = "single_label"
    stride: int = 0  # of windows
    task: str = ""  # "module:Class"; no part of the key of a store

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stores."""
        names = NAMES.get(self.kind, ("text", "label"))
        texts = names if self.kind in NAMES else names[:1]
        return names + (tuple(f"{name}_text" for name in texts) if self.with_texts else ())

    def sizes(self, tokenizers: TokenizerPair) -> list[int]:
        """Return the number of different ids in each store but those of texts."""
        if self.kind == "pairs":
            return [len(tokenizers.source), len(tokenizers.target)]
        special = {"regression": N_NUMBERS, "tags": len(self.classes) + 1,
                   "spans": self.max_length + 1}  # fmt: skip
        n_labels = [special.get(self.problem, len(self.classes))]
        return [len(tokenizers.source), *([] if self.kind in NAMES else n_labels)]


def frame(parts: Sequence[Sequence[int]], max_length: int) -> list[int]:
    """Return an encoded text or pair (each closed by EOS) as BOS ids EOS, or BOS ids EOS ids EOS.

    A pair of more than `max_length` ids is cut where it is longer, as "longest_first" of the
    package `tokenizers` does, which transformers' fast tokenizers use.
    """
    room = max(0, max_length - 1 - len(parts))
    cuts = [room]
    if len(parts) == 2:
        first, second = (len(ids) - 1 for ids in parts)
        shorter = min(first, second, room // 2)
        cuts = [room - shorter, shorter] if first > second else [shorter, room - shorter]
    bodies = ([*ids[:-1][:cut], EOS] for ids, cut in zip(parts, cuts, strict=True))
    return [BOS, *chain.from_iterable(bodies)]


def encode_texts(
    tokenizer: Tokenizer, texts: Sequence[str], max_length: int
) -> Iterator[tuple[list[int], int]]:
    """Yield the framed ids of texts or pairs, and how many they would be without truncation."""
    for start in range(0, len(texts), CHUNK):
        parts = [text.split(PAIR, 1) for text in texts[start : start + CHUNK]]
        encoded = iter(tokenizer.encode_batch([part for both in parts for part in both]))
        for both in parts:
            ids = [next(encoded) for _ in both]
            yield frame(ids, max_length), 1 + sum(map(len, ids))


def encode_columns(
    tokenizers: TokenizerPair, columns: Sequence[Sequence[str]], form: StoreForm
) -> tuple[list[TokenSequences], int]:
    """Return the sequences of each store, and how many lines are too long."""
    tokenizer, limit = tokenizers.source, form.max_length
    if form.kind == "running" and tokenizer.reads_line_ends():
        text = tokenizer.encode("".join(f"{line}\n" for line in columns[0]))[:-1]
        return [TokenSequences.of([text], len(tokenizer))], 0
    if form.task:
        encoded: tuple[list[TokenSequences], int]
        encoded = resolve(form.task)().encode(tokenizers, columns, form)
        return encoded
    n_too_long = 0
    ids = [tokenizer.encode_batch(columns[0])]
    if form.kind == "pairs":
        ids.append(tokenizers.target.encode_batch(columns[1]))
        fits = [n for n, pair in enumerate(zip(*ids, strict=True)) if max(map(len, pair)) <= limit]
        n_too_long = len(columns[0]) - len(fits)
        if n_too_long:
            ids = [[side[n] for n in fits] for side in ids]
            columns = [[side[n] for n in fits] for side in columns]
    stores = [TokenSequences.of(*side) for side in zip(ids, form.sizes(tokenizers), strict=True)]
    if form.with_texts:
        stores += [text_bytes(columns[n]) for n in range(len(form.names) - len(stores))]
    return stores, n_too_long


def text_bytes(lines: Sequence[str]) -> TokenSequences:
    """Return texts as sequences of the bytes of UTF-8."""
    encoded = [line.encode() for line in lines]
    lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
    return TokenSequences(np.frombuffer(b"".join(encoded), CODES[1]), lengths)


def lines_of(content: bytes) -> list[str]:
    """Return the lines of a chunk."""
    return content.decode().split("\n")[:-1]


_LOADED: list[TokenizerPair] = []  # in a child process


def load(_contents: Sequence[bytes], folder: str) -> tuple[None, Sequence[bytes]]:
    """Load the tokenizers of this process."""
    sentencepiece.THREADS = 1  # there are as many processes as processors
    _LOADED[:] = [load_tokenizers(Path(folder))]
    return None, ()


def encode(contents: Sequence[bytes], *form: Any) -> tuple[int, list[bytes]]:
    """Encode the columns of a chunk; return the ids and the lengths of each store."""
    stores, n_too_long = encode_columns(
        _LOADED[0], [lines_of(content) for content in contents], StoreForm(*form)
    )
    return n_too_long, [a.tobytes() for store in stores for a in (store.ids, store.lengths)]


def train(
    _contents: Sequence[bytes], paths: Sequence[str], config: dict[str, Any]
) -> tuple[list[str], list[bytes]]:
    """Train tokenizers on files of lines; return the model or the units of each.

    Of an error of the user, the class, the code and the message are returned.
    """
    try:
        first, second = (lines_of(Path(path).read_bytes()) for path in paths)
        pair = train_tokenizers(first, second, TextConfig(**config))
    except PolyheadError as error:
        return [type(error).__name__, str(error), error.code], []
    sides = [pair.source] if pair.config.joint else [pair.source, pair.target]
    return [], [
        side.model
        if isinstance(side, sentencepiece.SentencePieceTokenizer)
        else json.dumps(side.units).encode()
        for side in sides
        if isinstance(side, sentencepiece.SentencePieceTokenizer | CharWordTokenizer)
    ]
