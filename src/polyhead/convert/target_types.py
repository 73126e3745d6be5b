"""Types of an export target: what it can write, what it wrote, and a reader of that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from polyhead.checkpoint.model_dir import SavedModel
from polyhead.convert.parity import Parity
from polyhead.special_tokens import BOS
from polyhead.tokenizers.base import TextConfig

FLOAT = "float32"
IDS_ONLY = "not written: tokens of the model are ids as decimal numbers"
MAX_LENGTH = 256  # ids of a text that is compared


class Example(NamedTuple):
    """Our ids of one text: read, and predicted; or the pixels of an image, from -1 to 1.

    A translator reads `source`, closed by EOS, and predicts `target`, closed by EOS, after BOS. A
    language model predicts `target[i]` after `source[: i + 1]`. Other models have no target.
    """

    source: Any
    target: list[int]


@dataclass(frozen=True)
class Reader:
    """An exported model, run by the library that it was written for, in one thread.

    outputs: one tensor per example of a batch. With targets: log p of each target id, among all
        ids but PAD and BOS (`token_log_p`). Without: the logits of the classes, or of each token.
    search: the best output of each source, without EOS, by a beam (1: greedy) and the largest
        number of ids; scores are sums of log p, without a length penalty. None if it has no search.
    beams: the sizes that `search` takes; the first is 1.
    longest: the number of ids that it can read, or write.
    states: True if `outputs` has hidden states of the last layer, for models without a head there.
    """

    outputs: Callable[[Sequence[Example]], Sequence[Tensor]]
    search: Callable[[Sequence[list[int]], int, int], list[list[int]]] | None = None
    beams: tuple[int, ...] = (1, 4)
    longest: int = MAX_LENGTH
    states: bool = False


def token_log_p(
    logits: Float[Tensor, "batch length vocab"], examples: Sequence[Example]
) -> list[Float[Tensor, "target"]]:
    """Return log p of each target id; PAD and BOS, which are never written, have no share."""
    log_p = logits[..., BOS + 1 :].float().log_softmax(-1)
    return [
        log_p[i, torch.arange(len(example.target)), torch.tensor(example.target) - BOS - 1]
        for i, example in enumerate(examples)
    ]


@dataclass(frozen=True)
class Written:
    """Description of what a target wrote.

    parity: of a comparison that the target has made itself, on random inputs.
    obstacle: the reason why there was none.
    """

    architecture: str
    tokenizer: str
    notes: tuple[str, ...] = ()
    parity: Parity | None = None
    obstacle: str | None = None


@dataclass(frozen=True)
class Target:
    """A library or program that models are written for.

    extra, packages: extra of polyhead, and its packages, without which nothing is written.
    architecture: the name there of a model with this family, configuration and tokenizer (None for
        images); CheckpointError if it cannot be expressed there.
    write: write a model into a directory, in a compute type; the last argument is called with lines
        about the progress.
    open: read what was written; MissingError if the library is not installed.
    library: its name on the Hugging Face Hub.
    compute_types: of the weights; the first is the default.
    """

    name: str
    title: str
    architecture: Callable[[str, Any, TextConfig | None], str]
    write: Callable[[SavedModel, Path, str, Callable[[str], None]], Written]
    open: Callable[[SavedModel, Path, str], Reader] | None = None
    library: str = "transformers"
    extra: str = "hf"
    packages: tuple[str, ...] = ()
    compute_types: tuple[str, ...] = (FLOAT,)
