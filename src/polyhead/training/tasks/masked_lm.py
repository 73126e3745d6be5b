"""Masked language modeling (BERT) and replaced-token detection (ELECTRA)."""

from dataclasses import replace

from polyhead.data.batches.masked import MaskedBatches, Masker, split_sequences, validation_batches
from polyhead.data.line_encoder import StoreForm
from polyhead.data.plain_text import load_plain
from polyhead.data.stored_text import CorpusReader, TextCorpus, open_store, read_corpus
from polyhead.metrics.masked_tokens import MASKING, score_masked_tokens, score_replaced_tokens
from polyhead.special_tokens import PAD
from polyhead.tasks.losses import MaskedTokenLoss, ReplacedTokenLoss
from polyhead.tokenizers.base import encode_lines
from polyhead.training.config import RunConfig
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers


class MaskedLMTask:
    """Predict masked tokens (BERT), and detect which tokens were replaced (ELECTRA)."""

    def read_data(self, config: RunConfig) -> tuple[TextCorpus, dict[str, str]]:
        data = config.data
        reader = CorpusReader(
            lambda spool: load_plain(data, spool, data.hold_out), n_columns=1, is_scattered=True
        )
        return read_corpus(data, config.task, config.train.seed, reader)

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: TextCorpus, log: RunLog
    ) -> TaskSetup:
        """Encode the text; masks are drawn again in every epoch, except in validation."""
        # The id of [MASK] is the one after the tokenizer's last.
        texts = corpus.train.texts
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, texts, (), config.text, log)
        tokenizer, is_bert = tokenizers.source, config.task == "masked_lm"
        masking = replace(MASKING[config.task], share=config.data.blanks)
        masker = Masker(masking, mask=len(tokenizer), vocab=len(tokenizer) + 1)
        config = replace(config, model=replace(config.model, vocab=masker.vocab))
        log.stage("encoding the text")
        max_length, max_tokens = config.data.max_length, config.train.max_tokens
        valid = split_sequences(
            encode_lines(tokenizer, corpus.valid.texts), max_length, len(tokenizer)
        )
        form = StoreForm("parts", max_length)
        train = open_store(corpus.train, run_dir.tokenizer, form, log)[0]["text"]
        batches = validation_batches(valid, masker, max_tokens)
        score = score_masked_tokens if is_bert else score_replaced_tokens
        return TaskSetup(
            config,
            tokenizers,
            MaskedBatches(train, masker, max_tokens, config.train.seed),
            MaskedTokenLoss() if is_bert else ReplacedTokenLoss(PAD),
            lambda model, _step, processes: score(batches, model, processes.map),
            f"{len(train):,} training sequences of {train.lengths.sum():,} tokens, "
            f"{len(valid):,} for validation; vocabulary {len(tokenizer):,}",
        )
