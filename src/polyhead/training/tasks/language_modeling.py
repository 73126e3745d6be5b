"""Language modeling: running text, cross-entropy of the next token, bits per character."""

from dataclasses import dataclass, replace

from polyhead.data.batches.language_model import WindowBatches
from polyhead.data.plain_text import PlainCorpus, load_plain
from polyhead.metrics.perplexity import encode_running_text, text_windows
from polyhead.training.config import RunConfig, check_positions
from polyhead.training.finetune import (
    adopt_config,
    pretrained_fingerprint,
    read_pretrained,
    with_pretrained_sizes,
)
from polyhead.training.losses import NextTokenLoss
from polyhead.training.run_dir import RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import (
    TaskData,
    TaskSetup,
    check_no_sampling,
    load_or_train_tokenizers,
)


@dataclass(frozen=True)
class LanguageModelingTask:
    """Predict the next token of plain text."""

    def read_data(self, config: RunConfig) -> TaskData[PlainCorpus]:
        """Read the training and the validation text."""
        pretrained = read_pretrained(config)
        check_no_sampling(config)
        check_positions(with_pretrained_sizes(config, pretrained).model, config.data.max_length)
        text = load_plain(config.data)
        fingerprints = {
            "training": fingerprint(text.train),
            "validation": fingerprint(text.valid),
            **pretrained_fingerprint(pretrained),
        }
        return TaskData(text, fingerprints, text.notices, pretrained)

    def setup(
        self, config: RunConfig, run_dir: RunDir, data: TaskData[PlainCorpus], log: RunLog
    ) -> TaskSetup:
        """Encode the text as one sequence of ids and cut it into windows."""
        text = data.corpus
        config = adopt_config(config, data.pretrained, run_dir)
        tokenizers = load_or_train_tokenizers(run_dir.tokenizer, text.train, (), config.text, log)
        tokenizer = tokenizers.source
        config = replace(config, model=replace(config.model, vocab=len(tokenizer)))
        log.stage("encoding the text")
        train = encode_running_text(tokenizer, text.train)
        length, max_tokens = config.data.max_length, config.train.max_tokens
        valid = text_windows(tokenizer, text.valid, length, max_tokens)
        return TaskSetup(
            config,
            tokenizers,
            WindowBatches(train, length, max_tokens, config.train.seed),
            NextTokenLoss(config.train.smoothing),
            valid,
            f"{len(train):,} training tokens, {valid.n_tokens:,} for validation; vocabulary "
            f"{len(tokenizer):,}",
        )
