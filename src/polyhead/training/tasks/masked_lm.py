"""Masked language modeling (BERT) and replaced-token detection (ELECTRA)."""

from dataclasses import replace

from polyhead.data.batches.masked import MaskedBatches, Masker, split_sequences, validation_batches
from polyhead.data.plain_text import PlainCorpus, load_plain
from polyhead.metrics.masked_tokens import MASKING, score_masked_tokens, score_replaced_tokens
from polyhead.special_tokens import PAD
from polyhead.tokenizers.base import encode_lines
from polyhead.training.config import RunConfig
from polyhead.training.losses import MaskedTokenLoss, ReplacedTokenLoss
from polyhead.training.run_dir import RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers


class MaskedLMTask:
    """Predict masked tokens (BERT), and detect which tokens were replaced (ELECTRA)."""

    def read_data(self, config: RunConfig) -> tuple[PlainCorpus, dict[str, str]]:
        text = load_plain(config.data, most=config.data.hold_out)
        return text, {"training": fingerprint(text.train), "validation": fingerprint(text.valid)}

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: PlainCorpus, log: RunLog
    ) -> TaskSetup:
        """Encode the text; masks are drawn again in every epoch, except in validation."""
        # The id of [MASK] is the one after the tokenizer's last.
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, corpus.train, (), config.text, log)
        tokenizer, is_bert = tokenizers.source, config.task == "masked_lm"
        masking = replace(MASKING[config.task], share=config.data.blanks)
        masker = Masker(masking, mask=len(tokenizer), vocab=len(tokenizer) + 1)
        config = replace(config, model=replace(config.model, vocab=masker.vocab))
        log.stage("encoding the text")
        max_length, max_tokens = config.data.max_length, config.train.max_tokens
        train, valid = (
            split_sequences(encode_lines(tokenizer, lines), max_length, len(tokenizer))
            for lines in (corpus.train, corpus.valid)
        )
        batches = validation_batches(valid, masker, max_tokens)
        score = score_masked_tokens if is_bert else score_replaced_tokens
        return TaskSetup(
            config,
            tokenizers,
            MaskedBatches(train, masker, max_tokens, config.train.seed),
            MaskedTokenLoss() if is_bert else ReplacedTokenLoss(PAD),
            lambda model, _step: score(batches, model),
            f"{len(train):,} training sequences of {train.lengths.sum():,} tokens, "
            f"{len(valid):,} for validation; vocabulary {len(tokenizer):,}",
        )
