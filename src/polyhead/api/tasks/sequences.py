"""Plain lines as the two pre-training tasks want them: a tokenizer, sequences, blanks."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from polyhead.api.reports import Journal
from polyhead.api.run import Run
from polyhead.api.runs import fingerprint
from polyhead.api.tasks.vocabulary import tokenizers_of
from polyhead.data.corpus import load_plain
from polyhead.data.lines import Lines
from polyhead.data.masking import MaskingConfig
from polyhead.data.sequences import BlankBatch, Blanking, Sequences, fixed_batches, pieces_of
from polyhead.errors import ConfigError
from polyhead.layers.positions import ENDING
from polyhead.text.tokenizer import Tokenizers

SHORTEST = 3  # BOS, EOS, and something between them


@dataclass(frozen=True)
class Material:
    """What a pre-training task has made of its text: `valid` always has the same blanks."""

    run: Run
    tokenizers: Tokenizers
    train: Sequences
    valid: list[BlankBatch]
    summary: str


def read_lines(run: Run) -> Lines:
    """The training and the validation text, once it is clear that the model can read it.

    At most `data.hold_out` lines are kept back, as of sentence pairs: both tasks validate often.
    """
    check_lengths(run, run.model)
    if run.train.compile and run.family != "bert":
        raise ConfigError(f"train.compile: not for the family {run.family}; leave it out")
    return load_plain(run.data, most=run.data.hold_out)


def check_lengths(run: Run, model: Any) -> None:
    """Sequences must be long enough to hold something and short enough for the model's positions.

    `model` is the configuration of what reads them: the run's own, or that of its encoder.
    """
    asked = run.data.max_length
    if asked < SHORTEST:
        raise ConfigError(
            f"data.max_length = {asked}: expected at least {SHORTEST}, two of which stand for the "
            "beginning and the end"
        )
    if model.positions in ENDING and asked > model.max_length:
        raise ConfigError(
            f"data.max_length = {asked}: the model learns only {model.max_length} positions; lower "
            "data.max_length or give the model more"
        )


def fingerprints_of(material: Lines) -> dict[str, str]:
    """Both texts."""
    return {"training": fingerprint(material.train), "validation": fingerprint(material.valid)}


def material_of(
    run: Run, folder: Path, lines: Lines, masking: MaskingConfig, journal: Journal
) -> Material:
    """Learn a vocabulary, encode, cut. [MASK] is one id after the tokenizer's last."""
    tokenizers = tokenizers_of(folder, lines.train, (), run.text, journal)
    tokenizer = tokenizers.source
    blanking = Blanking(masking, mask=len(tokenizer), vocab=len(tokenizer) + 1)
    sizes: dict[str, Any] = {"vocab": blanking.vocab}
    run = replace(run, model=replace(run.model, **sizes))
    journal.stage("encoding the text")
    max_length, max_tokens = run.data.max_length, run.train.max_tokens
    train = pieces_of(tokenizer.encode_batch(lines.train), max_length)
    valid = pieces_of(tokenizer.encode_batch(lines.valid), max_length)
    n_tokens = sum(map(len, train))
    return Material(
        run,
        tokenizers,
        Sequences(train, blanking, max_tokens, run.train.seed),
        fixed_batches(valid, blanking, max_tokens),
        f"{len(train):,} training sequences of {n_tokens:,} tokens, {len(valid):,} for "
        f"validation; vocabulary {len(tokenizer):,}",
    )
