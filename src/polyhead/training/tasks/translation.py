"""Translation: sentence pairs, cross-entropy of the next target token, BLEU."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyhead.atomic_file import os_errors_as_polyhead_errors, write_text
from polyhead.checkpoint.languages import run_languages
from polyhead.data.batches.translation import Pair, TranslationBatch, TranslationBatches
from polyhead.data.bilingual_dictionary import FILE, learn_dictionary, write_dictionary
from polyhead.data.parallel import Pairs, ParallelCorpus, load_parallel
from polyhead.decoding.batch import batches as batches_of_sources
from polyhead.decoding.batch import decode_all
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import sample
from polyhead.errors import DataError
from polyhead.metrics.bleu import quick_bleu
from polyhead.special_tokens import PAD
from polyhead.tokenizers.storage import TokenizerPair
from polyhead.training.config import RunConfig
from polyhead.training.losses import Objective, TranslationLoss
from polyhead.training.processes import Processes
from polyhead.training.reward import ExpectedReward
from polyhead.training.run_dir import SAMPLES, RunDir, fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.small_data import adapt, check_enough, warn_if_few
from polyhead.training.tasks.base import TaskSetup, load_or_train_tokenizers


class TranslationTask:
    """Translate source sentences into target sentences."""

    def read_data(self, config: RunConfig) -> tuple[ParallelCorpus, dict[str, str]]:
        corpus = load_parallel(config.data, config.train.seed)
        check_enough(len(corpus.train))
        return corpus, {
            "training source": fingerprint(corpus.train.sources),
            "training target": fingerprint(corpus.train.targets),
            "validation source": fingerprint(corpus.valid.sources),
            "validation target": fingerprint(corpus.valid.targets),
        }

    def setup(
        self, config: RunConfig, run_dir: RunDir, corpus: ParallelCorpus, log: RunLog
    ) -> TaskSetup:
        train, valid = corpus.train, corpus.valid
        warn_if_few(config, len(train), log)
        config = adapt(config, train, log)
        tokenizers = load_or_train_tokenizers(
            run_dir.tokenizer, train.sources, train.targets, config.text, log
        )
        sizes = {"source_vocab": len(tokenizers.source), "target_vocab": len(tokenizers.target)}
        config = replace(config, model=replace(config.model, **sizes))
        path = run_dir.path / FILE
        if config.text.kind == "words" and not path.exists():
            log.stage("learning a dictionary for unknown words")
            sources = [tokenizers.source.normalise(line) for line in train.sources]
            targets = [tokenizers.target.normalise(line) for line in train.targets]
            write_dictionary(learn_dictionary(sources, targets), path)
        log.stage("encoding the text")
        max_length, max_tokens = config.data.max_length, config.train.max_tokens
        pairs = encode_pairs(tokenizers, train, max_length, "training", log)
        sampler = PairSampler(tokenizers, pairs, config.train.seed, max_length)
        valid_ids = encode_pairs(tokenizers, valid, max_length, "validation", log).ids
        n_translated = config.train.bleu_sentences
        return TaskSetup(
            config,
            tokenizers,
            TranslationBatches(sampler, max_tokens, config.train.seed),
            objective_of(config),
            HeldOutPairs(
                run_dir.path / SAMPLES,
                tokenizers,
                TranslationBatches(lambda _: valid_ids, max_tokens, seed=0).of_epoch(0),
                valid.sources[:n_translated],
                valid.targets[:n_translated],
            ).validate,
            f"{len(pairs.ids):,} training pairs, {len(valid):,} for validation; vocabulary "
            f"{len(tokenizers.target):,}",
            {"languages": name_languages(config, corpus, run_dir, log)},
        )


def name_languages(
    config: RunConfig, corpus: ParallelCorpus, run_dir: RunDir, log: RunLog
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
    """Sentence pairs within the length limit, as text and as ids."""

    sources: list[str]
    targets: list[str]
    ids: list[Pair]


def encode_pairs(
    tokenizers: TokenizerPair, pairs: Pairs, max_length: int, part: str, log: RunLog
) -> EncodedPairs:
    """Encode pairs without those that are too long; DataError if all are."""
    source = tokenizers.source.encode_batch(pairs.sources)
    target = tokenizers.target.encode_batch(pairs.targets)
    fits = [i for i in range(len(source)) if max(len(source[i]), len(target[i])) <= max_length]
    if not fits:
        raise DataError(
            f"all {len(source):,} {part} pairs are longer than {max_length} tokens. Raise "
            "data.max_length.",
            "all_too_long",
        )
    if len(fits) < len(source):
        log.notice(
            f"{len(source) - len(fits):,} {part} pairs longer than {max_length} tokens are left out"
        )
    return EncodedPairs(
        [pairs.sources[i] for i in fits],
        [pairs.targets[i] for i in fits],
        [(source[i], target[i]) for i in fits],
    )


@dataclass(frozen=True)
class PairSampler:
    """The ids of all pairs in an epoch: constant, or sampled again if `text.sampling` is set."""

    tokenizers: TokenizerPair
    pairs: EncodedPairs
    seed: int
    max_length: int

    def __call__(self, epoch: int) -> Sequence[Pair]:
        if not self.tokenizers.config.sampling:
            return self.pairs.ids
        generator = random.Random(f"{self.seed} {epoch}")
        source, target = self.tokenizers.source, self.tokenizers.target
        sampled = [
            (source.encode(s, sample=generator), target.encode(t, sample=generator))
            for s, t in zip(self.pairs.sources, self.pairs.targets, strict=True)
        ]
        return [  # sampling may exceed the length limit
            pair if max(map(len, pair)) <= self.max_length else unsampled
            for pair, unsampled in zip(sampled, self.pairs.ids, strict=True)
        ]


@dataclass(frozen=True)
class HeldOutPairs:
    """Validation pairs: all for the loss, the first `bleu_sentences` for BLEU."""

    samples: Path
    tokenizers: TokenizerPair
    batches: list[TranslationBatch]
    sources: list[str]
    targets: list[str]

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
            if processes.is_first:
                self.write_samples(texts, step)
        return metrics

    def translate(self, model: Any, processes: Processes) -> list[str]:
        """Return the translations of the first sentences by greedy search."""
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

    def write_samples(self, texts: Sequence[str], step: int) -> None:
        """Write sources, references and translations to a file of samples/."""
        triples = zip(self.sources, self.targets, texts, strict=True)
        samples = "\n".join(
            f"{source}\n  = {target}\n  > {text}" for source, target, text in triples
        )
        with os_errors_as_polyhead_errors(self.samples):
            self.samples.mkdir(exist_ok=True)
        write_text(self.samples / f"step-{step:08d}.txt", samples + "\n")
