"""Language modeling: running text, cross-entropy of the next token, bits per character."""

from dataclasses import replace

from polyhead.data.batches.language_model import WindowBatches
from polyhead.data.line_encoder import StoreForm
from polyhead.data.plain_text import load_plain
from polyhead.data.stored_text import CorpusReader, TextCorpus, open_store, read_corpus
from polyhead.metrics.perplexity import text_windows
from polyhead.tasks.losses import NextTokenLoss
from polyhead.training.config import RunConfig
from polyhead.training.run_dir import RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers


class LanguageModelingTask:
    """Predict the next token of plain text."""

    def read_data(self, config: RunConfig) -> tuple[TextCorpus, dict[str, str]]:
        reader = CorpusReader(lambda spool: load_plain(config.data, spool), n_columns=1)
        return read_corpus(config.data, config.task, config.train.seed, reader)

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: TextCorpus, log: RunLog
    ) -> TaskSetup:
        texts = corpus.train.texts
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, texts, (), config.text, log)
        tokenizer = tokenizers.source
        config = replace(config, model=replace(config.model, vocab=len(tokenizer)))
        log.stage("encoding the text")
        stores, _ = open_store(corpus.train, run_dir.tokenizer, StoreForm("running", 0), log)
        length, max_tokens = config.data.max_length, config.train.max_tokens
        batches = WindowBatches(stores["text"], length, max_tokens, config.train.seed)
        valid = text_windows(tokenizer, corpus.valid.texts, length, max_tokens)
        return TaskSetup(
            config,
            tokenizers,
            batches,
            NextTokenLoss(config.train.smoothing),
            lambda model, _step, processes: valid.validate(model, processes.map),
            f"{len(batches.stream):,} training tokens, {valid.n_tokens:,} for validation; "
            f"vocabulary {len(tokenizer):,}",
        )
