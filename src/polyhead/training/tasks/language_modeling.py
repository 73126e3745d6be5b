"""Language modeling: running text, cross-entropy of the next token, bits per character."""

from dataclasses import replace

from polyhead.data.batches.language_model import WindowBatches
from polyhead.data.plain_text import PlainCorpus, load_plain
from polyhead.metrics.perplexity import encode_running_text, text_windows
from polyhead.training.config import RunConfig
from polyhead.training.losses import NextTokenLoss
from polyhead.training.run_dir import RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers


class LanguageModelingTask:
    """Predict the next token of plain text."""

    def read_data(self, config: RunConfig) -> tuple[PlainCorpus, dict[str, str]]:
        text = load_plain(config.data)
        return text, {"training": fingerprint(text.train), "validation": fingerprint(text.valid)}

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: PlainCorpus, log: RunLog
    ) -> TaskSetup:
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, corpus.train, (), config.text, log)
        tokenizer = tokenizers.source
        config = replace(config, model=replace(config.model, vocab=len(tokenizer)))
        log.stage("encoding the text")
        train = encode_running_text(tokenizer, corpus.train)
        length, max_tokens = config.data.max_length, config.train.max_tokens
        valid = text_windows(tokenizer, corpus.valid, length, max_tokens)
        return TaskSetup(
            config,
            tokenizers,
            WindowBatches(train, length, max_tokens, config.train.seed),
            NextTokenLoss(config.train.smoothing),
            lambda model, _step, processes: valid.validate(model, processes.map),
            f"{len(train):,} training tokens, {valid.n_tokens:,} for validation; vocabulary "
            f"{len(tokenizer):,}",
        )
