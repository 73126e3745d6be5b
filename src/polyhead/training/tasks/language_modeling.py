"""Language modelling: running text, cross-entropy of the next token, bits per character."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from polyhead.data.batches.language_model import (
    LanguageBatch,
    WindowBatches,
    consecutive_windows,
    join_lines,
)
from polyhead.data.config import load_plain
from polyhead.data.plain_text import Lines
from polyhead.tokenizers.storage import EOS, UNK, Tokenizer
from polyhead.training.config import RunConfig
from polyhead.training.finetune import Material, read_own, resized
from polyhead.training.losses import NextTokenLoss
from polyhead.training.run_dir import fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup
from polyhead.training.tasks.sequences import (
    beginning_with,
    check_places,
    refuse_sampling,
    vocabulary,
)


@dataclass(frozen=True)
class LanguageModelingTask:
    """For models that go on with a text."""

    def read(self, run: RunConfig) -> Material[Lines]:
        """The training and the validation text, and the model to go on from."""
        consecutive_windows = read_own(run)
        refuse_sampling(run)
        check_places(run, resized(run, consecutive_windows).model)
        text = load_plain(run.data)
        return Material(text, consecutive_windows, text.notices)

    def fingerprints(self, material: Material[Lines]) -> dict[str, str]:
        """Both texts, and the model to go on from."""
        text = material.data
        return {
            "training": fingerprint(text.train),
            "validation": fingerprint(text.valid),
            **material.fingerprints,
        }

    def prepare(
        self, run: RunConfig, folder: Path, material: Material[Lines], journal: RunLog
    ) -> TaskSetup:
        """A tokenizer, the text as one row of ids, windows of it."""
        run, tokenizers = vocabulary(run, folder, material, journal)
        tokenizer = tokenizers.source
        run = replace(run, model=replace(run.model, vocab=len(tokenizer)))
        journal.stage("encoding the text")
        train = running(tokenizer, material.data.train)
        length, max_tokens = run.data.max_length, run.train.max_tokens
        asked = examination(tokenizer, material.data.valid, length, max_tokens)
        return TaskSetup(
            run,
            tokenizers,
            WindowBatches(train, length, max_tokens, run.train.seed),
            NextTokenLoss(run.train.smoothing),
            partial(examine, asked),
            f"{len(train):,} training tokens, {asked.n_tokens:,} for validation; vocabulary "
            f"{len(tokenizer):,}",
            begin=beginning_with(material.whole, journal),
            trained=material.whole is not None,
        )


@dataclass(frozen=True)
class Examination:
    """A text that a model is to predict from its first token to its last, window by window."""

    batches: list[LanguageBatch]
    n_tokens: int
    n_characters: int  # of the text as it is encoded; an end of line is one
    n_unknown: int  # tokens that stand for text outside the vocabulary: their bits mean little


def running(tokenizer: Tokenizer, lines: Sequence[str]) -> Int[Tensor, "token"]:
    """A text in one row: each line is closed by an EOS, or by its line end if that has an id."""
    if tokenizer.reads_line_ends():
        return join_lines([tokenizer.encode("".join(f"{line}\n" for line in lines))[:-1]])
    return join_lines(tokenizer.encode_batch(lines))


def examination(
    tokenizer: Tokenizer, lines: Sequence[str], length: int, max_tokens: int
) -> Examination:
    """Cut a text into windows of `length` tokens. Before its first token stands an EOS."""
    stream = torch.cat([torch.tensor([EOS]), running(tokenizer, lines)])
    n_characters = sum(len(tokenizer.normalise(line)) + 1 for line in lines)
    n_unknown = int((stream == UNK).sum())
    return Examination(
        consecutive_windows(stream, length, max_tokens), len(stream) - 1, n_characters, n_unknown
    )


@torch.inference_mode()
def examine(
    asked: Examination,
    model: Any,
    _step: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> dict[str, float]:
    """One pass over the whole text, the same every time: every token is predicted once.

    The loss is in nats per token. Bits per character do not depend on how text was cut into tokens.
    """
    total, count = 0.0, 0
    device = next(model.parameters()).device
    for batch in asked.batches:
        loss = NextTokenLoss()(model, batch.to(device))
        total, count = total + loss.total.item(), count + loss.count
        progress(loss.count)
    loss_per_token = total / count
    return {
        "loss": loss_per_token,
        "perplexity": math.exp(min(700.0, loss_per_token)),
        "bits_per_character": total / math.log(2) / asked.n_characters,
    }
