"""Pre-training on plain lines: a tokenizer, sequences, blanks; the task of BERT and of ELECTRA."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from polyhead.api.reports import Journal
from polyhead.api.run import Run
from polyhead.api.runs import fingerprint
from polyhead.api.tasks.contract import Prepared
from polyhead.api.tasks.vocabulary import tokenizers_of
from polyhead.data.corpus import load_plain
from polyhead.data.lines import Lines
from polyhead.data.masking import MaskingConfig
from polyhead.data.sequences import BlankBatch, Blanking, Sequences, fixed_batches, pieces_of
from polyhead.errors import ConfigError
from polyhead.layers.positions import ENDING
from polyhead.train.objectives import Objective

SHORTEST = 3  # BOS, EOS, and something between them


@dataclass(frozen=True)
class Pretraining:
    """For models that learn from blanks.

    examine: measures a model on the validation batches, which always have the same blanks.
    """

    use: str
    masking: MaskingConfig
    objective: Objective
    examine: Callable[[list[BlankBatch], Any, int], dict[str, float]]

    def read(self, run: Run) -> Lines:
        """The training and the validation text, once it is clear that the model can read it.

        At most `data.hold_out` lines are kept back, as of sentence pairs: validation is frequent.
        """
        check_lengths(run, run.model)
        if run.train.compile and run.family != "bert":
            raise ConfigError(f"train.compile: not for the family {run.family}; leave it out")
        return load_plain(run.data, most=run.data.hold_out)

    def fingerprints(self, material: Lines) -> dict[str, str]:
        """Both texts."""
        return {"training": fingerprint(material.train), "validation": fingerprint(material.valid)}

    def prepare(self, run: Run, folder: Path, material: Lines, journal: Journal) -> Prepared:
        """A tokenizer, and sequences whose blanks are drawn anew in every epoch.

        [MASK] is one id after the tokenizer's last.
        """
        tokenizers = tokenizers_of(folder, material.train, (), run.text, journal)
        tokenizer = tokenizers.source
        masking = replace(self.masking, share=run.data.blanks)
        blanking = Blanking(masking, mask=len(tokenizer), vocab=len(tokenizer) + 1)
        sizes: dict[str, Any] = {"vocab": blanking.vocab}
        run = replace(run, model=replace(run.model, **sizes))
        journal.stage("encoding the text")
        max_length, max_tokens = run.data.max_length, run.train.max_tokens
        train = pieces_of(tokenizer.encode_batch(material.train), max_length)
        valid = pieces_of(tokenizer.encode_batch(material.valid), max_length)
        n_tokens = sum(map(len, train))
        return Prepared(
            run,
            tokenizers,
            Sequences(train, blanking, max_tokens, run.train.seed),
            self.objective,
            partial(self.examine, fixed_batches(valid, blanking, max_tokens)),
            f"{len(train):,} training sequences of {n_tokens:,} tokens, {len(valid):,} for "
            f"validation; vocabulary {len(tokenizer):,}",
        )


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
