"""Language modeling: running text, cross-entropy of the next token, bits per character."""

from dataclasses import replace
from typing import Any

from polyhead.data.batches.language_model import WindowBatches
from polyhead.data.line_encoder import StoreForm
from polyhead.data.plain_text import load_plain
from polyhead.data.stored_text import (
    PlainCorpus,
    StoredText,
    open_store,
    plain_reader,
    read_corpus,
)
from polyhead.metrics.perplexity import encode_running_text, text_windows
from polyhead.tasks.losses import NextTokenLoss
from polyhead.training.config import RunConfig
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers


class LanguageModelingTask:
    """Predict the next token of plain text."""

    def read_data(self, config: RunConfig) -> tuple[PlainCorpus, dict[str, str]]:
        reader = plain_reader(lambda spool: load_plain(config.data, spool=spool))
        return read_corpus(config.data, config.task, config.train.seed, reader)

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: PlainCorpus, log: RunLog
    ) -> TaskSetup:
        lines = corpus.train.texts if isinstance(corpus.train, StoredText) else corpus.train
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, lines, (), config.text, log)
        tokenizer = tokenizers.source
        config = replace(config, model=replace(config.model, vocab=len(tokenizer)))
        log.stage("encoding the text")
        if isinstance(corpus.train, StoredText):
            form = StoreForm("running", 0)
            train: Any = open_store(corpus.train, run_dir.tokenizer, form, log)[0]["text"]
        else:
            train = encode_running_text(tokenizer, corpus.train)
        length, max_tokens = config.data.max_length, config.train.max_tokens
        batches = WindowBatches(train, length, max_tokens, config.train.seed)
        valid = text_windows(tokenizer, corpus.valid, length, max_tokens)
        return TaskSetup(
            config,
            tokenizers,
            batches,
            NextTokenLoss(config.train.smoothing),
            lambda model, _step, processes: valid.validate(model, processes.map),
            f"{len(batches.stream):,} training tokens, {valid.n_tokens:,} for validation; "
            f"vocabulary {len(tokenizer):,}",
        )
