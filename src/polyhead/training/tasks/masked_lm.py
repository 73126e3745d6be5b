"""Masked language modeling (BERT) and replaced-token detection (ELECTRA)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from polyhead.data.batches.masked import (
    MaskedBatch,
    MaskedBatches,
    Masker,
    split_sequences,
    validation_batches,
)
from polyhead.data.plain_text import PlainCorpus, load_plain
from polyhead.errors import ConfigError
from polyhead.metrics.masked_tokens import MASKING, score_masked_tokens, score_replaced_tokens
from polyhead.special_tokens import PAD
from polyhead.training.config import RunConfig
from polyhead.training.finetune import (
    adopt_config,
    pretrained_fingerprint,
    read_pretrained,
    with_pretrained_sizes,
)
from polyhead.training.losses import MaskedTokenLoss, ReplacedTokenLoss
from polyhead.training.run_dir import RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import (
    TaskData,
    TaskSetup,
    check_lengths,
    check_no_sampling,
    load_or_train_tokenizers,
)


@dataclass(frozen=True)
class MaskedTexts:
    """Validation texts whose masked positions never change."""

    task: str
    batches: Sequence[MaskedBatch]

    def validate(self, model: Any, _step: int) -> dict[str, float]:
        """Return loss and accuracy, of ELECTRA also precision, recall and AUC."""
        score = score_masked_tokens if self.task == "masked_lm" else score_replaced_tokens
        return score(self.batches, model)


@dataclass(frozen=True)
class MaskedLMTask:
    """Predict masked tokens (BERT), and detect which tokens were replaced (ELECTRA)."""

    def read_data(self, config: RunConfig) -> TaskData[PlainCorpus]:
        """Read the training and the validation text, of which at most `data.hold_out` lines."""
        pretrained = read_pretrained(config)
        check_no_sampling(config)
        check_lengths(config, with_pretrained_sizes(config, pretrained).model)
        if config.train.compile and config.task != "masked_lm":
            raise ConfigError(
                f"train.compile is not supported for {config.family}. Leave it out.", "no_compile"
            )
        text = load_plain(config.data, most=config.data.hold_out)
        fingerprints = {
            "training": fingerprint(text.train),
            "validation": fingerprint(text.valid),
            **pretrained_fingerprint(pretrained),
        }
        return TaskData(text, fingerprints, text.notices, pretrained)

    def setup(
        self, config: RunConfig, run_dir: RunDir, data: TaskData[PlainCorpus], log: RunLog
    ) -> TaskSetup:
        """Encode the text; masked positions are drawn again in every epoch.

        The id of [MASK] is the one after the tokenizer's last.
        """
        text = data.corpus
        config = adopt_config(config, data.pretrained, run_dir)
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, text.train, (), config.text, log)
        tokenizer = tokenizers.source
        masking = replace(MASKING[config.task], share=config.data.blanks)
        masker = Masker(masking, mask=len(tokenizer), vocab=len(tokenizer) + 1)
        config = replace(config, model=replace(config.model, vocab=masker.vocab))
        log.stage("encoding the text")
        max_length, max_tokens = config.data.max_length, config.train.max_tokens
        train = split_sequences(tokenizer.encode_batch(text.train), max_length)
        valid = split_sequences(tokenizer.encode_batch(text.valid), max_length)
        n_tokens = sum(map(len, train))
        return TaskSetup(
            config,
            tokenizers,
            MaskedBatches(train, masker, max_tokens, config.train.seed),
            MaskedTokenLoss() if config.task == "masked_lm" else ReplacedTokenLoss(PAD),
            MaskedTexts(config.task, validation_batches(valid, masker, max_tokens)),
            f"{len(train):,} training sequences of {n_tokens:,} tokens, {len(valid):,} for "
            f"validation; vocabulary {len(tokenizer):,}",
        )
