"""Encoding of chunks of lines, in this process or in the child processes of `corpus_store`.

Nothing here imports torch, so that child processes start quickly and stay small.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from polyhead.data.question_files import answers_of
from polyhead.data.token_store import CODES, TokenSequences
from polyhead.data.word_pieces import WordEncoder, parts_of_words, windows_of
from polyhead.errors import PolyheadError
from polyhead.special_tokens import BOS, EOS
from polyhead.tokenizers import sentencepiece
from polyhead.tokenizers.base import TextConfig, Tokenizer
from polyhead.tokenizers.char_word import CharWordTokenizer
from polyhead.tokenizers.storage import TokenizerPair, load_tokenizers, train_tokenizers

Kind = Literal["pairs", "running", "parts", "labelled", "tags", "spans"]
NAMES: dict[Kind, tuple[str, ...]] = {  # of the stores, in the order of the columns
    "pairs": ("source", "target"),
    "running": ("text",),
    "parts": ("text",),
    "labelled": ("text", "label"),
    "tags": ("text", "label"),
    "spans": ("text", "label"),
}


class StoreForm(NamedTuple):
    """Form of the examples that are made of lines.

    pairs: source and target, closed by EOS; pairs longer than `max_length` are left out
    running: the ids of all lines, closed by EOS, or by the ids of line ends
    parts: BOS ids EOS, several of a long line and none of an empty one
    labelled: BOS ids EOS, truncated to `max_length`; the number of the class of each
    tags: BOS ids EOS, several of a long sentence; of each token the number of its tag from 1 on, or
        0 if it is not the first of a word
    spans: BOS question EOS context EOS, a window each; the positions of the first and last token of
        the answer, from 1 on
    """

    kind: Kind
    max_length: int
    with_texts: bool = False  # also the texts, as bytes
    classes: Sequence[str] = ()
    stride: int = 0  # of spans

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stores."""
        names = NAMES[self.kind]
        texts = names[:1] if self.kind == "labelled" else names
        return names + (tuple(f"{name}_text" for name in texts) if self.with_texts else ())

    def sizes(self, tokenizers: TokenizerPair) -> list[int]:
        """Return the number of different ids in each store but those of texts."""
        second = {
            "pairs": [len(tokenizers.target)], "labelled": [len(self.classes)],
            "tags": [len(self.classes) + 1], "spans": [self.max_length + 1],
        }  # fmt: skip
        return [len(tokenizers.source), *second.get(self.kind, [])]


def framed(lines: Iterable[Sequence[int]], max_length: int) -> Iterator[list[int]]:
    """Yield encoded lines (each closed by EOS) as BOS ids EOS, truncated to `max_length`."""
    return ([BOS, *ids[:-1][: max_length - 2], EOS] for ids in lines)


def parts_of(lines: Iterable[Sequence[int]], max_length: int) -> Iterator[list[int]]:
    """Yield parts BOS ids EOS of at most `max_length` ids of encoded lines (closed by EOS)."""
    room = max(1, max_length - 2)
    for ids in lines:
        for start in range(0, len(ids) - 1, room):
            yield [BOS, *ids[start : min(start + room, len(ids) - 1)], EOS]


def encode_columns(
    tokenizers: TokenizerPair, columns: Sequence[Sequence[str]], form: StoreForm
) -> tuple[list[TokenSequences], int]:
    """Return the sequences of each store, and how many lines are too long."""
    tokenizer, limit = tokenizers.source, form.max_length
    if form.kind == "running" and tokenizer.reads_line_ends():
        text = tokenizer.encode("".join(f"{line}\n" for line in columns[0]))[:-1]
        return [TokenSequences.of([text], len(tokenizer))], 0
    if form.kind in ("tags", "spans"):
        encode_positions = encode_tags if form.kind == "tags" else encode_spans
        texts, labels, n_too_long = encode_positions(tokenizer, columns, form)
        sides = zip((texts, labels), form.sizes(tokenizers), strict=True)
        return [TokenSequences.of(*side) for side in sides], n_too_long
    ids = [tokenizer.encode_batch(columns[0])]
    n_too_long = 0
    if form.kind == "pairs":
        ids.append(tokenizers.target.encode_batch(columns[1]))
        fits = [n for n, pair in enumerate(zip(*ids, strict=True)) if max(map(len, pair)) <= limit]
        n_too_long = len(columns[0]) - len(fits)
        if n_too_long:
            ids = [[side[n] for n in fits] for side in ids]
            columns = [[side[n] for n in fits] for side in columns]
    sequences: list[Iterable[Sequence[int]]] = [*ids]
    if form.kind == "parts":
        sequences = [parts_of(ids[0], limit)]
    elif form.kind == "labelled":
        n_too_long = sum(len(line) + 1 > limit for line in ids[0])
        numbers = {name: number for number, name in enumerate(form.classes)}
        sequences = [framed(ids[0], limit), ([numbers[label]] for label in columns[1])]
    stores = [
        TokenSequences.of(*side) for side in zip(sequences, form.sizes(tokenizers), strict=True)
    ]
    if form.with_texts:
        stores += [_bytes(columns[n]) for n in range(len(form.names) - len(stores))]
    return stores, n_too_long


Positions = tuple[list[list[int]], list[list[int]], int]  # texts, labels, and those too long


def encode_tags(
    tokenizer: Tokenizer, columns: Sequence[Sequence[str]], form: StoreForm
) -> Positions:
    """Encode words and tags, both joined by tabs."""
    encoder, n_too_long = WordEncoder(tokenizer), 0
    numbers = {name: number for number, name in enumerate(form.classes, start=1)}
    texts: list[list[int]] = []
    labels: list[list[int]] = []
    for words, tags in zip(*columns, strict=True):
        parts = parts_of_words(encoder, words.split("\t"), form.max_length)
        n_too_long += len(parts) > 1
        rest = iter(tags.split("\t"))
        for part in parts:
            label = [0] * len(part.ids)
            for position in part.firsts:
                label[position] = numbers[next(rest)]
            texts.append(part.ids)
            labels.append(label)
    return texts, labels, n_too_long


def encode_spans(
    tokenizer: Tokenizer, columns: Sequence[Sequence[str]], form: StoreForm
) -> Positions:
    """Encode questions with their contexts, joined by a tab, and the first of their answers."""
    encoder, n_too_long = WordEncoder(tokenizer), 0
    texts: list[list[int]] = []
    labels: list[list[int]] = []
    for text, label in zip(*columns, strict=True):
        question, context = text.split("\t")
        windows = windows_of(
            encoder, question, context, answers_of(label),
            max_length=form.max_length, stride=form.stride,
        )  # fmt: skip
        n_too_long += len(windows) > 1
        texts += [window.ids for window in windows]
        labels += [[place + 1 for place in window.span] for window in windows]
    return texts, labels, n_too_long


def _bytes(lines: Sequence[str]) -> TokenSequences:
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
