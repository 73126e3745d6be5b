"""Perplexity and bits per character of a language model on running text."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from polyhead.data.batches.epoch_plan import plan_by_length
from polyhead.data.batches.language_model import LanguageBatch, consecutive_windows
from polyhead.data.token_store import Ids, TokenSequences
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.special_tokens import EOS, UNK
from polyhead.tokenizers.base import Tokenizer, encode_lines

B = TypeVar("B")
R = TypeVar("R")
MAX_TOKENS = 8192  # of a batch of sequences that are read alone


@runtime_checkable
class MapBatches(Protocol):
    """A function that applies another to all batches; several processes may share them."""

    def __call__(self, function: Callable[[B], R], batches: Sequence[B], /) -> list[R]: ...


def map_here(function: Callable[[B], R], batches: Sequence[B]) -> list[R]:
    """Apply a function to all batches in this process."""
    return list(map(function, batches))


def map_by_length(
    function: Callable[[list[int]], list[R]],
    lengths: Sequence[int],
    map_batches: MapBatches,
) -> list[R]:
    """Apply a function to batches of sequences, given by number; return the results in order."""
    numbers = np.array(lengths, dtype=np.int64)
    batches = [batch.tolist() for batch in plan_by_length([numbers], MAX_TOKENS, seed=0)]
    results = chain.from_iterable(map_batches(function, batches))
    by_number = dict(zip(chain.from_iterable(batches), results, strict=True))
    return [by_number[number] for number in range(len(lengths))]


@dataclass(frozen=True)
class TextWindows:
    """A text in windows, in which a model predicts every token once."""

    batches: list[LanguageBatch]
    n_tokens: int
    n_characters: int  # of the text as it is encoded; an end of line counts as one
    n_unknown: int  # tokens outside the vocabulary, whose bits mean little

    @torch.inference_mode()
    def validate(
        self,
        model: Any,
        map_batches: MapBatches = map_here,
        progress: Callable[[int], None] = lambda _: None,
    ) -> dict[str, float]:
        """Return loss (nats per token), perplexity and bits per character."""
        device = next(model.parameters()).device

        def score(batch: LanguageBatch) -> float:
            total = next_token_nll(model, batch.to(device)).item()
            progress(batch.labels.numel())
            return total

        return self.scores(sum(map_batches(score, self.batches)))

    def scores(self, total: float) -> dict[str, float]:
        """Return the metrics of a summed loss in nats."""
        loss = total / self.n_tokens
        return {
            "loss": loss,
            "perplexity": math.exp(min(700.0, loss)),
            "bits_per_character": total / math.log(2) / self.n_characters,
        }

    @property
    def ids(self) -> list[int]:
        """All ids of the text, after the first one that is read."""
        first = int(self.batches[0].ids[0, 0])
        return [first, *(id for batch in self.batches for id in batch.labels.flatten().tolist())]


def next_token_nll(model: Any, batch: LanguageBatch, smoothing: float = 0.0) -> Tensor:
    """Return the summed cross-entropy of all labels, with label smoothing."""
    states = model.hidden(batch.ids).flatten(0, 1)
    layer = model.to_logits
    labels = batch.labels.flatten()
    return linear_cross_entropy(states, layer.weight, layer.bias, labels, smoothing)


def encode_running_text(tokenizer: Tokenizer, lines: Sequence[str]) -> Ids:
    """Encode a text as one sequence; each line ends with its line end, or with EOS."""
    if tokenizer.reads_line_ends():
        text = tokenizer.encode("".join(f"{line}\n" for line in lines))[:-1]
        return TokenSequences.of([text], len(tokenizer)).ids
    return TokenSequences.of(encode_lines(tokenizer, lines), len(tokenizer)).ids


def text_windows(
    tokenizer: Tokenizer, lines: Sequence[str], length: int, max_tokens: int
) -> TextWindows:
    """Cut a text into windows of `length` tokens. An EOS precedes its first token."""
    text = encode_running_text(tokenizer, lines).astype(np.int64)
    stream = torch.from_numpy(np.concatenate([[EOS], text]))
    n_characters = sum(len(tokenizer.normalise(line)) + 1 for line in lines)
    n_unknown = int((stream == UNK).sum())
    return TextWindows(
        consecutive_windows(stream, length, max_tokens), len(stream) - 1, n_characters, n_unknown
    )
