"""Translation: sentence pairs, cross-entropy of the next target token, BLEU."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from polyhead.checkpoint import atomic_dir as store
from polyhead.checkpoint.model_dir import SavedModel
from polyhead.data import bilingual_dictionary as lexicon
from polyhead.data import config as corpus
from polyhead.data.batches.translation import Pair, TranslationBatch, TranslationBatches
from polyhead.data.config import Corpus
from polyhead.data.parallel import Pairs
from polyhead.decoding.batch import decode_all
from polyhead.decoding.config import DecodeConfig
from polyhead.decoding.sampling import sample
from polyhead.errors import DataError
from polyhead.metrics.bleu import quick_bleu
from polyhead.tokenizers.storage import PAD, Tokenizers
from polyhead.training.config import RunConfig
from polyhead.training.finetune import another_family, read_whole, set_all, take_over
from polyhead.training.losses import Objective, TranslationLoss
from polyhead.training.pretrained_encoder import check_blocks, copy_blocks, read_initial
from polyhead.training.reward import ExpectedReward
from polyhead.training.run_dir import fingerprint
from polyhead.training.run_log import RunLog
from polyhead.training.tasks.base import TaskSetup
from polyhead.training.tasks.vocabulary import tokenizers_of

SAMPLES = "samples"


@dataclass(frozen=True)
class TranslationTask:
    """For models that read a source and write a target."""

    def read(self, run: RunConfig) -> Corpus:
        """Both sides of the training and the validation text; what is begun from must fit."""
        if read_whole(run) is None and run.train.init is not None:
            _check_encoder(run)
        return corpus.load(run.data, run.train.seed)

    def fingerprints(self, material: Corpus) -> dict[str, str]:
        """All four texts."""
        return {
            "training source": fingerprint(material.train.sources),
            "training target": fingerprint(material.train.targets),
            "validation source": fingerprint(material.valid.sources),
            "validation target": fingerprint(material.valid.targets),
        }

    def prepare(self, run: RunConfig, folder: Path, material: Corpus, journal: RunLog) -> TaskSetup:
        """Tokenizers, pairs as ids, batches of equal length."""
        train, valid = material.train, material.valid
        whole = read_whole(run)
        if whole is not None:
            run = take_over(run, whole, folder)
        tokenizers = tokenizers_of(folder, train.sources, train.targets, run.text, journal)
        sizes = {"source_vocab": len(tokenizers.source), "target_vocab": len(tokenizers.target)}
        run = replace(run, model=replace(run.model, **sizes))
        if run.text.kind == "words":
            _write_dictionary(folder, tokenizers, train, journal)
        journal.stage("encoding the text")
        pairs = _encode(tokenizers, train, run.data.max_length, "training", journal)
        encoder = Encoder(tokenizers, pairs, run.train.seed, run.data.max_length)
        checked = _encode(tokenizers, valid, run.data.max_length, "validation", journal)
        epochs = TranslationBatches(lambda _: checked.ids, run.train.max_tokens, seed=0)
        examination = Examination(
            folder,
            tokenizers,
            [epochs[(0, i)] for i in range(epochs.n_batches(0))],
            valid.sources[: run.train.bleu_sentences],
            valid.targets[: run.train.bleu_sentences],
        )
        return TaskSetup(
            run,
            tokenizers,
            TranslationBatches(encoder, run.train.max_tokens, run.train.seed),
            objective_of(run),
            partial(examine, examination),
            f"{len(pairs.ids):,} training pairs, {len(valid):,} for validation; vocabulary "
            f"{len(tokenizers.target):,}",
            begin=_beginning(run, whole, journal),
            trained=whole is not None,
        )


def _check_encoder(run: RunConfig) -> None:
    """Only a Transformer can begin from the blocks of another family's encoder."""
    if run.family != "transformer":
        raise another_family(run)
    initial = read_initial(run.train.init)
    assert initial is not None
    check_blocks(initial, run.model.encoder_stack, run.model.positions)


def objective_of(run: RunConfig) -> Objective:
    """Likelihood, or a mixture of reward and likelihood."""
    if run.train.reward.samples:
        return ExpectedReward(run.train.reward, draw)
    return TranslationLoss(PAD, run.train.smoothing)


def draw(model: Any, source: Tensor, samples: int) -> Tensor:
    """Sentences that a model makes up for each source; torch's own seed decides which."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    options = DecodeConfig(sample=True, n_best=samples)
    found = sample(model, source, options, torch.Generator().manual_seed(seed))
    longest = int((found.tokens != PAD).any(0).any(0).sum())
    return found.tokens[:, :, :longest].clone()


def _write_dictionary(folder: Path, tokenizers: Tokenizers, train: Pairs, journal: RunLog) -> None:
    """What unknown words may be replaced by, learned once from the training text."""
    place = folder / lexicon.FILE
    if place.exists():
        return
    journal.stage("learning a dictionary for unknown words")
    sources = [tokenizers.source.normalise(line) for line in train.sources]
    targets = [tokenizers.target.normalise(line) for line in train.targets]
    with store.os_errors_as_polyhead_errors(place):
        lexicon.write_dictionary(lexicon.learn_dictionary(sources, targets), place)


def _beginning(
    run: RunConfig, whole: SavedModel | None, journal: RunLog
) -> Callable[[nn.Module], None] | None:
    """How a new model begins, if not from nothing."""
    if run.train.init is None:
        return None
    if whole is not None:
        return partial(set_all, whole, run.train.init, journal)
    return partial(_begin, run.train.init, journal)


def _begin(path: str, journal: RunLog, model: Any) -> None:
    """Give the encoder the blocks of a pre-trained one."""
    initial = read_initial(path)
    assert initial is not None
    taken = copy_blocks(initial, model)
    journal.notice(f"{taken} tensors of the encoder are those of {path}; all others are new")


@dataclass(frozen=True)
class Encoded:
    """The pairs that are short enough, as text and as ids."""

    sources: list[str]
    targets: list[str]
    ids: list[Pair]


def _encode(
    tokenizers: Tokenizers, pairs: Pairs, max_length: int, what: str, journal: RunLog
) -> Encoded:
    source = tokenizers.source.encode_batch(pairs.sources)
    target = tokenizers.target.encode_batch(pairs.targets)
    fits = [i for i in range(len(source)) if max(len(source[i]), len(target[i])) <= max_length]
    left_out = len(source) - len(fits)
    if not fits:
        raise DataError(
            f"all {len(source):,} {what} pairs are longer than {max_length} tokens; "
            "raise data.max_length"
        )
    if left_out:
        journal.notice(f"{left_out:,} {what} pairs longer than {max_length} tokens are left out")
    return Encoded(
        [pairs.sources[i] for i in fits],
        [pairs.targets[i] for i in fits],
        [(source[i], target[i]) for i in fits],
    )


@dataclass(frozen=True)
class Encoder:
    """The ids of an epoch: always the same, or cut anew each time if subwords are sampled."""

    tokenizers: Tokenizers
    pairs: Encoded
    seed: int
    max_length: int

    def __call__(self, epoch: int) -> Sequence[Pair]:
        if not self.tokenizers.config.sampling:
            return self.pairs.ids
        draw = random.Random(f"{self.seed} {epoch}")
        source, target = self.tokenizers.source, self.tokenizers.target
        cut = [
            (source.encode(s, sample=draw), target.encode(t, sample=draw))
            for s, t in zip(self.pairs.sources, self.pairs.targets, strict=True)
        ]
        return [  # a pair that was cut too finely is taken uncut
            pair if max(map(len, pair)) <= self.max_length else uncut
            for pair, uncut in zip(cut, self.pairs.ids, strict=True)
        ]


@dataclass(frozen=True)
class Examination:
    """What a model is asked at each validation: everything for the loss, a few lines for BLEU."""

    folder: Path
    tokenizers: Tokenizers
    batches: list[TranslationBatch]
    sources: list[str]
    targets: list[str]


@torch.inference_mode()
def examine(asked: Examination, model: Any, step: int) -> dict[str, float]:
    """Loss on the whole validation set, BLEU on its first sentences."""
    loss = valid_loss(model, asked.batches)
    metrics = {"loss": loss, "perplexity": math.exp(min(700.0, loss))}
    if asked.sources:
        outputs = translate_quickly(asked, model)
        metrics["bleu"] = quick_bleu(outputs, asked.targets)
        _write_samples(asked, step, outputs)
    return metrics


def valid_loss(model: Any, batches: Sequence[TranslationBatch]) -> float:
    """The mean loss per token, without label smoothing and without dropout."""
    device = next(model.eval().parameters()).device
    objective, total, count = TranslationLoss(PAD), 0.0, 0
    for batch in batches:
        loss = objective(model, batch.to(device))
        total, count = total + loss.total.item(), count + loss.count
    return total / count


def translate_quickly(asked: Examination, model: Any) -> list[str]:
    """Greedy translations of the first validation sentences."""
    ids = asked.tokenizers.source.encode_batch(asked.sources)
    device = next(model.parameters()).device
    outputs = decode_all(model, ids, DecodeConfig(beam=1), device=device)
    return [asked.tokenizers.target.decode(best[0].ids) for best in outputs]


def _write_samples(asked: Examination, step: int, outputs: Sequence[str]) -> None:
    """What the model says by now, beside what it should say."""
    place = asked.folder / SAMPLES
    triples = zip(asked.sources, asked.targets, outputs, strict=True)
    text = "\n".join(f"{source}\n  = {right}\n  > {said}" for source, right, said in triples)
    with store.os_errors_as_polyhead_errors(place):
        place.mkdir(exist_ok=True)
    store.write_text(place / f"step-{step:08d}.txt", text + "\n")
