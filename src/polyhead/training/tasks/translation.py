"""Translation: sentence pairs, cross-entropy of the next target token, BLEU."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.atomic_file import os_errors_as_polyhead_errors, write_text
from polyhead.checkpoint.languages import run_languages
from polyhead.data.batches.resampling import SubwordSampler
from polyhead.data.batches.translation import TranslationBatch, TranslationBatches
from polyhead.data.bilingual_dictionary import FILE, learn_dictionary, write_dictionary
from polyhead.data.config import DataConfig
from polyhead.data.corpus_store import all_too_long
from polyhead.data.line_encoder import StoreForm, encode_columns
from polyhead.data.parallel import load_parallel
from polyhead.data.stored_text import (
    CorpusReader,
    StoredText,
    TextCorpus,
    open_store,
    read_corpus,
)
from polyhead.data.token_store import TokenSequences
from polyhead.decoding.batch import batches as batches_of_sources
from polyhead.decoding.batch import decode_all
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import sample
from polyhead.metrics.bleu import quick_bleu
from polyhead.metrics.named_metrics import MetricName, registered_metric
from polyhead.special_tokens import PAD
from polyhead.tasks.base import Outputs
from polyhead.tasks.losses import Objective, TranslationLoss
from polyhead.tasks.reward import ExpectedReward
from polyhead.tokenizers.storage import TokenizerPair
from polyhead.training.config import RunConfig
from polyhead.training.processes import Processes
from polyhead.training.run_dir import SAMPLES, RunDir
from polyhead.training.run_log import RunLog
from polyhead.training.small_data import adapt, check_enough, warn_if_few
from polyhead.training.tasks.base import (
    MAX_LINES,
    TaskSetup,
    load_or_train_tokenizers,
)


class TranslationTask:
    """Translate source sentences into target sentences."""

    def read_data(self, config: RunConfig) -> tuple[TextCorpus, dict[str, str]]:
        corpus, fingerprints = read_parallel_corpus(config.data, config.train.seed)
        check_enough(corpus.train.facts.n_train)
        return corpus, fingerprints

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: TextCorpus, log: RunLog
    ) -> TaskSetup:
        train, valid = corpus.train, corpus.valid
        warn_if_few(config, len(train), log)
        config = adapt(config, train, log)
        tokenizers = load_or_train_tokenizers(
            run_dir.tokenizer, train.texts, train.labels, config.text, log
        )
        sizes = {"source_vocab": len(tokenizers.source), "target_vocab": len(tokenizers.target)}
        config = replace(config, model=replace(config.model, **sizes))
        path = run_dir.path / FILE
        if config.text.kind == "words" and not path.exists():
            log.stage("learning a dictionary for unknown words")
            first = islice(zip(*train.columns, strict=True), MAX_LINES)
            sources, targets = map(list, zip(*first, strict=True))
            sources = [tokenizers.source.normalise(line) for line in sources]
            targets = [tokenizers.target.normalise(line) for line in targets]
            write_dictionary(learn_dictionary(sources, targets), path)
        log.stage("encoding the text")
        max_length, max_tokens = config.data.max_length, config.train.max_tokens
        pairs = encode_training(tokenizers, run_dir.tokenizer, train, max_length, log)
        held_out, n_left_out = encode_columns(
            tokenizers, valid.columns, StoreForm("pairs", max_length)
        )
        if n_left_out == len(valid):
            raise all_too_long(n_left_out, "validation", max_length)
        _notice_left_out(n_left_out, "validation", max_length, log)
        n_translated, seed = config.train.bleu_sentences, config.train.seed
        sampler = make_sampler(tokenizers, pairs, seed, max_length)
        valid_pairs = HeldOutPairs(
            run_dir.path / SAMPLES,
            tokenizers,
            TranslationBatches(held_out[0], held_out[1], max_tokens, 0).of_epoch(0),
            valid.texts[:n_translated],
            valid.labels[:n_translated],
            config.train.judge_by,
        )
        return TaskSetup(
            config,
            tokenizers,
            TranslationBatches(pairs.source, pairs.target, max_tokens, seed, sampler),
            objective_of(config),
            valid_pairs.validate,
            f"{len(pairs.source):,} training pairs, {len(valid):,} for validation; vocabulary "
            f"{len(tokenizers.target):,}",
            {"languages": name_languages(config, corpus, run_dir, log)},
            replace(valid_pairs, sources=valid.texts, targets=valid.labels).outputs,
        )


def read_parallel_corpus(data: DataConfig, seed: int) -> tuple[TextCorpus, dict[str, str]]:
    """Return sentence pairs and their fingerprints."""
    reader = CorpusReader(
        lambda spool: load_parallel(data, seed, spool), by_side=True, is_scattered=True
    )
    return read_corpus(data, "translation", seed, reader)


def name_languages(
    config: RunConfig, corpus: TextCorpus, run_dir: RunDir, log: RunLog
) -> list[str]:
    """Return the languages as configured, as the run has them, or as the data says."""
    before = run_languages(run_dir.checkpoints)
    given = config.data.source_language, config.data.target_language
    languages = [g or b or c for g, b, c in zip(given, before, corpus.languages, strict=True)]
    if all(languages):
        log.notice(f"languages: {' to '.join(languages)}")
    else:
        unknown = " and ".join(
            side for side, name in zip(("source", "target"), languages, strict=True) if not name
        )
        log.notice(
            f"{unknown} language unknown; name both with --languages ko-en, or later with: "
            f"polyhead languages {run_dir.path} ko-en"
        )
    return languages


def objective_of(config: RunConfig) -> Objective:
    """Return the likelihood, or the mixture of expected reward and likelihood."""
    if config.train.reward.samples:
        return ExpectedReward(config.train.reward, draw)
    return TranslationLoss(PAD, config.train.smoothing)


def draw(model: Any, source: Tensor, samples: int) -> Tensor:
    """Sample translations of each source, seeded by torch's global generator."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    options = DecodeConfig(sample=True, n_best=samples)
    sampled = sample(model, source, options, torch.Generator().manual_seed(seed))
    length = int((sampled.tokens != PAD).any(0).any(0).sum())
    return sampled.tokens[:, :, :length].clone()


@dataclass(frozen=True)
class EncodedPairs:
    """The ids of the pairs within the length limit, and their texts if they are sampled."""

    source: TokenSequences
    target: TokenSequences
    texts: Sequence[TokenSequences]


def encode_training(
    tokenizers: TokenizerPair, tokenizer: Path, train: StoredText, max_length: int, log: RunLog
) -> EncodedPairs:
    """Encode the training pairs, without those that are too long.

    tokenizer: directory of the tokenizers.
    """
    form = StoreForm("pairs", max_length, bool(tokenizers.config.sampling))
    stores, counts = open_store(train, tokenizer, form, log)
    _notice_left_out(counts["n_too_long"], "training", max_length, log)
    source, target, *texts = (stores[name] for name in form.names)
    return EncodedPairs(source, target, texts)


def make_sampler(
    tokenizers: TokenizerPair, pairs: EncodedPairs, seed: int, max_length: int
) -> SubwordSampler | None:
    """Return what samples the subwords of the pairs, if configured."""
    sides = [tokenizers.source, tokenizers.target]
    return SubwordSampler(sides, pairs.texts, seed, max_length) if pairs.texts else None


def _notice_left_out(n_pairs: int, part: str, max_length: int, log: RunLog) -> None:
    if n_pairs:
        log.notice(f"{n_pairs:,} {part} pairs longer than {max_length} tokens are left out")


@dataclass(frozen=True)
class HeldOutPairs:
    """Validation pairs: all for the loss, the first `bleu_sentences` for BLEU."""

    samples: Path
    tokenizers: TokenizerPair
    batches: list[TranslationBatch]
    sources: list[str]
    targets: list[str]
    judge_by: MetricName = "loss"

    @torch.inference_mode()
    def validate(self, model: Any, step: int, processes: Processes) -> dict[str, float]:
        """Return loss, perplexity and BLEU; write the translations to samples/."""
        device, objective = next(model.parameters()).device, TranslationLoss(PAD)

        def score(batch: TranslationBatch) -> tuple[float, int]:
            loss = objective(model, batch.to(device))
            return loss.total.item(), loss.count

        total, count = map(sum, zip(*processes.map(score, self.batches), strict=True))
        metrics = {"loss": total / count, "perplexity": math.exp(min(700.0, total / count))}
        if self.sources:
            texts = self.translate(model, processes)
            metrics["bleu"] = quick_bleu(texts, self.targets)
            metrics |= registered_metric(self.judge_by, texts, self.targets)
            if processes.is_first:
                self.write_samples(texts, step)
        return metrics

    @torch.inference_mode()
    def outputs(self, model: Any, processes: Processes) -> Outputs:
        """Return the translations of all sentences, each on one line."""
        texts = self.translate(model, processes)
        return Outputs([" ".join(text.split("\n")) for text in texts], self.targets)

    def translate(self, model: Any, processes: Processes) -> list[str]:
        """Return the translations of the sentences by greedy search."""
        device, options = next(model.parameters()).device, DecodeConfig(beam=1)
        ids = self.tokenizers.source.encode_batch(self.sources)

        def decode(batch: list[int]) -> list[str]:
            outputs = decode_all(model, [ids[i] for i in batch], options, device=device)
            return [self.tokenizers.target.decode(best[0].ids) for best in outputs]

        numbers = list(batches_of_sources(ids, options))
        texts = [""] * len(ids)
        for batch, decoded in zip(
            numbers, processes.map(decode, numbers, decoding=True), strict=True
        ):
            for number, text in zip(batch, decoded, strict=True):
                texts[number] = text
        return texts

    def write_samples(self, texts: list[str], step: int) -> None:
        """Write sources, references and translations to a file of samples/."""
        triples = zip(self.sources, self.targets, texts, strict=True)
        samples = "\n".join(
            f"{source}\n  = {target}\n  > {text}" for source, target, text in triples
        )
        with os_errors_as_polyhead_errors(self.samples):
            self.samples.mkdir(exist_ok=True)
        write_text(self.samples / f"step-{step:08d}.txt", samples + "\n")
