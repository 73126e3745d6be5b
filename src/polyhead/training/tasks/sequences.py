"""Pre-training on plain lines: a tokenizer, sequences, blanks; the task of BERT and of ELECTRA."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from polyhead.data.batches.masked import (
    MaskedBatch,
    MaskedBatches,
    Masker,
    MaskingConfig,
    split_sequences,
    validation_batches,
)
from polyhead.data.config import load_plain
from polyhead.data.plain_text import Lines
from polyhead.errors import ConfigError
from polyhead.layers.positions import BOUNDED_POSITIONS
from polyhead.tokenizers.storage import Tokenizers
from polyhead.training.config import RunConfig
from polyhead.training.finetune import (
    Material,
    PretrainedModel,
    read_own,
    resized,
    set_all,
    take_tokenizers,
)
from polyhead.training.losses import Objective
from polyhead.training.run_dir import fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup
from polyhead.training.tasks.vocabulary import tokenizers_of

SHORTEST = 3  # BOS, EOS, and something between them


@dataclass(frozen=True)
class Pretraining:
    """For models that learn from blanks.

    examine: measures a model on the validation batches, which always have the same blanks.
    """

    masking: MaskingConfig
    objective: Objective
    examine: Callable[[list[MaskedBatch], Any, int], dict[str, float]]

    def read(self, run: RunConfig) -> Material[Lines]:
        """The training and the validation text, once it is clear that the model can read it.

        At most `data.hold_out` lines are kept back, as of sentence pairs: validation is frequent.
        """
        whole = read_own(run)
        refuse_sampling(run)
        check_lengths(run, resized(run, whole).model)
        if run.train.compile and run.family != "bert":
            raise ConfigError(f"train.compile: not for the family {run.family}; leave it out")
        text = load_plain(run.data, most=run.data.hold_out)
        return Material(text, whole, text.notices)

    def fingerprints(self, material: Material[Lines]) -> dict[str, str]:
        """Both texts, and the model to go on from."""
        text = material.data
        found = {"training": fingerprint(text.train), "validation": fingerprint(text.valid)}
        return found | material.fingerprints

    def prepare(
        self, run: RunConfig, folder: Path, material: Material[Lines], journal: RunLog
    ) -> TaskSetup:
        """A tokenizer, and sequences whose blanks are drawn anew in every epoch.

        [MASK] is one id after the tokenizer's last.
        """
        run, tokenizers = vocabulary(run, folder, material, journal)
        tokenizer = tokenizers.source
        masking = replace(self.masking, share=run.data.blanks)
        blanking = Masker(masking, mask=len(tokenizer), vocab=len(tokenizer) + 1)
        sizes: dict[str, Any] = {"vocab": blanking.vocab}
        run = replace(run, model=replace(run.model, **sizes))
        journal.stage("encoding the text")
        max_length, max_tokens = run.data.max_length, run.train.max_tokens
        train = split_sequences(tokenizer.encode_batch(material.data.train), max_length)
        valid = split_sequences(tokenizer.encode_batch(material.data.valid), max_length)
        n_tokens = sum(map(len, train))
        return TaskSetup(
            run,
            tokenizers,
            MaskedBatches(train, blanking, max_tokens, run.train.seed),
            self.objective,
            partial(self.examine, validation_batches(valid, blanking, max_tokens)),
            f"{len(train):,} training sequences of {n_tokens:,} tokens, {len(valid):,} for "
            f"validation; vocabulary {len(tokenizer):,}",
            begin=beginning_with(material.whole, journal),
            trained=material.whole is not None,
        )


def vocabulary(
    run: RunConfig, folder: Path, material: Material[Lines], journal: RunLog
) -> tuple[RunConfig, Tokenizers]:
    """The tokenizers, learned or those of the model to go on from; the run with its sizes."""
    whole = material.whole
    if whole is not None:
        run = take_tokenizers(resized(run, whole), whole.saved, folder)
    return run, tokenizers_of(folder, material.data.train, (), run.text, journal)


def beginning_with(
    whole: PretrainedModel | None, journal: RunLog
) -> Callable[[nn.Module], None] | None:
    """How a new model begins, if not from nothing."""
    return None if whole is None else partial(set_all, whole.saved, whole.path, journal)


def check_lengths(run: RunConfig, model: Any) -> None:
    """Sequences must be long enough to hold something and short enough for the model's positions.

    `model` is the configuration of what reads them: the run's own, or that of its encoder.
    """
    asked = run.data.max_length
    if asked < SHORTEST:
        raise ConfigError(
            f"data.max_length = {asked}: expected at least {SHORTEST}, two of which stand for the "
            "beginning and the end"
        )
    check_places(run, model)


def refuse_sampling(run: RunConfig) -> None:
    """Plain text is cut once; an option that would do nothing is not accepted."""
    if run.text.sampling:
        raise ConfigError(
            f"text.sampling = {run.text.sampling}: only translators and classifiers cut their text "
            "anew in every epoch; leave it out"
        )


def check_places(run: RunConfig, model: Any) -> None:
    """Sequences must not be longer than the positions that a model has learned."""
    asked = run.data.max_length
    if model.positions in BOUNDED_POSITIONS and asked > model.max_length:
        raise ConfigError(
            f"data.max_length = {asked}: the model learns only {model.max_length} positions; lower "
            "data.max_length or give the model more"
        )
