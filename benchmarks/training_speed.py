"""Training speed on Multi30k, German to English: real tokens (source and target) per second.

    polyhead                 our loop, our batches
    marian                   transformers' MarianMTModel, a plain loop, random batches
    torch                    torch.nn.Transformer, a plain loop, OUR batches
    torch-as-built           the same, with the masks and the dropout that its users get
    marian-our-batches       how much of marian's distance is only padding; run if asked for

All have the same size, begin with the same weights, and run in one process, one after the other in
every round: whatever the machine does, it does to all of them. The peers are given every advantage
that is fair: our settings of the memory allocator (unless --plain-malloc), a fused optimiser, one
shared embedding, no label smoothing for Marian (its own loss has none). Padding is never counted.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import peers
import torch
from measuring import Contestant
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.translation import (
    Pair,
    TranslationBatch,
    TranslationBatches,
    collate,
)
from polyhead.data.locate import find
from polyhead.data.parallel import read_parallel
from polyhead.data.token_store import TokenSequences
from polyhead.devices import keep_freed_memory
from polyhead.errors import ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.special_tokens import PAD
from polyhead.tasks.losses import TranslationLoss
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.loop import Progress, TrainConfig, train_loop
from polyhead.training.optim import OptimizerConfig, build_optimizer

SEED, RATE, NEVER = 1, 3e-4, 10**9
IGNORED = -100  # the label that transformers takes for "nothing to predict here"
BARS = {"marian": 2.2, "torch": 1.2, "torch-as-built": 1.2}
BETAS, EPSILON = (0.9, 0.98), 1e-9


@dataclass(frozen=True)
class Task:
    """Task of all systems, and the work of one round."""

    pairs: list[Pair]
    model: TransformerConfig
    max_tokens: int = 4096
    steps: int = 20
    smoothing: float = 0.1
    clip_norm: float = 1.0
    attention: str = "sdpa"  # how transformers is to compute it

    def fresh_model(self) -> Transformer:
        """Return a model with the weights that all systems use."""
        torch.manual_seed(SEED)
        return Transformer(self.model).train()

    def our_epochs(self) -> TranslationBatches:
        """Batches of sentences of equal length."""
        vocabularies = self.model.source_vocab, self.model.target_vocab
        sides = zip(zip(*self.pairs, strict=True), vocabularies, strict=True)
        source, target = (TokenSequences.of(ids, n_ids) for ids, n_ids in sides)
        return TranslationBatches(source, target, self.max_tokens, SEED)

    def our_batches(self) -> Iterator[TranslationBatch]:
        """Batches of sentences of equal length, for ever."""
        return (batch for _, batch in self.our_epochs().batches(DataPosition()))

    def random_batches(self) -> Iterator[TranslationBatch]:
        """Yield batches of `DataLoader(shuffle=True)` forever, on average as large as ours."""
        size = random_batch_size(self.pairs, self.max_tokens)
        order = torch.Generator().manual_seed(SEED)
        loader: DataLoader[Any] = DataLoader(
            self.pairs,  # type: ignore[arg-type]
            batch_size=size,
            shuffle=True,
            collate_fn=collate,
            generator=order,
        )
        while True:
            yield from loader


def random_batch_size(pairs: Sequence[Pair], max_tokens: int, draws: int = 200) -> int:
    """Return how many random sentences take `max_tokens` padded tokens on average."""
    lengths = np.array([(len(source), len(target)) for source, target in pairs])
    rng = np.random.default_rng(SEED)
    mean = lengths.sum(1).mean()  # no batch is larger than one without any padding
    drawn = rng.choice(lengths, size=(draws, max(1, int(max_tokens / mean))))
    widths = np.maximum.accumulate(drawn, axis=1).sum(2).mean(0)  # by the number of sentences
    fits = widths * np.arange(1, len(widths) + 1) <= max_tokens
    return max(1, int(fits.sum()))


def polyhead_contestant(task: Task) -> Contestant:
    """Return the loop that `polyhead train` runs, without its validations and checkpoints."""
    model = task.fresh_model()
    adam = build_optimizer(
        model, OptimizerConfig(beta_1=BETAS[0], beta_2=BETAS[1], epsilon=EPSILON)
    )
    batches = task.our_epochs().batches(DataPosition())
    objective, progress = TranslationLoss(PAD, task.smoothing), Progress()
    plan = TrainConfig(
        clip_norm=task.clip_norm,
        smoothing=task.smoothing,
        max_tokens=task.max_tokens,
        validate_every=NEVER,
        save_every=NEVER,
    )

    def work() -> int:
        before = progress.tokens
        config = replace(plan, steps=progress.step + task.steps)
        for _ in train_loop(model, objective, batches, adam, lambda _: RATE, config, progress):
            pass
        return progress.tokens - before

    return Contestant("polyhead", work)


def marian_contestant(task: Task, name: str) -> Contestant:
    """Return a loop as in transformers' own examples: the model computes its loss."""
    model = peers.to_marian(task.fresh_model(), task.model, attention=task.attention)
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, fused=True)
    ours = name == "marian-our-batches"
    batches = task.our_batches() if ours else task.random_batches()
    return Contestant(name, plain_loop(task, model, adam, partial(marian_loss, model), batches))


def marian_loss(marian: Any, batch: TranslationBatch) -> torch.Tensor:
    """Return the mean over all predictions, as the model computes it."""
    labels = batch.labels.masked_fill(batch.labels == PAD, IGNORED)
    real = (batch.source != PAD).long()
    return marian(input_ids=batch.source, attention_mask=real, labels=labels).loss


def torch_contestant(task: Task, name: str) -> Contestant:
    """torch.nn.Transformer and F.cross_entropy."""
    as_built = name == "torch-as-built"
    model = peers.to_torch(task.fresh_model(), task.model, as_built=as_built)
    adam = torch.optim.Adam(model.parameters(), lr=RATE, betas=BETAS, eps=EPSILON, fused=True)
    loss = partial(torch_loss, model, task.smoothing)
    return Contestant(name, plain_loop(task, model, adam, loss, task.our_batches()))


def torch_loss(model: nn.Module, smoothing: float, batch: TranslationBatch) -> torch.Tensor:
    """Return the mean over all predictions, with label smoothing."""
    logits = model(batch.source, batch.target).flatten(0, 1)
    labels = batch.labels.flatten()
    return F.cross_entropy(logits, labels, ignore_index=PAD, label_smoothing=smoothing)


def plain_loop(
    task: Task,
    model: nn.Module,
    adam: torch.optim.Optimizer,
    loss: Callable[[TranslationBatch], torch.Tensor],
    batches: Iterator[TranslationBatch],
) -> Callable[[], int]:
    """Train with a plain loop; return the number of real tokens."""

    def work() -> int:
        tokens = 0
        for batch in islice(batches, task.steps):
            loss(batch).backward()
            clip_grad_norm_(model.parameters(), task.clip_norm)
            adam.step()
            adam.zero_grad(set_to_none=True)
            tokens += batch.n_tokens
        return tokens

    return work


CONTESTANTS: dict[str, Callable[[Task, str], Contestant]] = {
    "polyhead": lambda task, _: polyhead_contestant(task),
    "marian": marian_contestant,
    "torch": torch_contestant,
    "torch-as-built": torch_contestant,
    "marian-our-batches": marian_contestant,
}
USUAL = ("polyhead", "marian", "torch", "torch-as-built")


def read_task(words: argparse.Namespace) -> Task:
    """Multi30k with one joint vocabulary, and the small model of the comparison."""
    files = [find(Path(f"multi30k/train.{language}.gz")) for language in ("de", "en")]
    text = read_parallel(files[:1], files[1:])
    sources, targets = text.sources[: words.sentences], text.targets[: words.sentences]
    tokenizers = train_tokenizers(sources, targets, TextConfig(vocab=words.vocab))
    encoded = zip(
        tokenizers.source.encode_batch(sources),
        tokenizers.target.encode_batch(targets),
        strict=True,
    )
    vocab = len(tokenizers.target)
    stack = StackConfig(n_layers=3, d_model=256, n_heads=4, d_ff=1024, dropout=0.1)
    return Task(
        list(encoded),
        TransformerConfig(vocab, vocab, tie="all", stack=stack),
        max_tokens=words.max_tokens,
        steps=words.steps,
        attention=words.peer_attention,
    )


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="updates of each in every round")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds that do not count")
    parser.add_argument("--max-tokens", type=int, default=4096, help="of a batch, padding included")
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--sentences", type=int, default=None, help="read only the first so many")
    parser.add_argument("--contestants", default=",".join(USUAL), help=", ".join(CONTESTANTS))
    measuring.add_threads(parser)
    parser.add_argument("--peer-attention", choices=["sdpa", "eager"], default="sdpa")
    parser.add_argument("--plain-malloc", action="store_true", help="leave the allocator as it is")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    unknown = [name for name in words.contestants.split(",") if name not in CONTESTANTS]
    if unknown or not words.contestants.startswith("polyhead"):
        raise ConfigError(
            f"--contestants {words.contestants}: expected polyhead first, then any of "
            f"{', '.join(list(CONTESTANTS)[1:])}"
        )
    return words


def padding_share(batches: Sequence[TranslationBatch]) -> float:
    """Return the share of positions, source and target, that is padding."""
    real = sum(batch.n_tokens for batch in batches)
    return 1 - real / sum(batch.source.numel() + batch.labels.numel() for batch in batches)


def describe(task: Task) -> list[str]:
    """Describe the comparison for the record."""
    stack, vocab = task.model.stack, task.model.target_vocab
    n_parameters = sum(p.numel() for p in task.fresh_model().parameters())
    ours = padding_share(list(islice(task.our_batches(), 50)))
    theirs = padding_share(list(islice(task.random_batches(), 50)))
    return [
        f"{len(task.pairs):,} sentence pairs, joint vocabulary of {vocab:,}; "
        f"d_model {stack.d_model}, d_ff {stack.d_ff}, {stack.n_layers}+{stack.n_layers} layers, "
        f"{stack.n_heads} heads, "
        f"{stack.norm}-norm, {n_parameters / 1e6:.1f} million parameters; dropout {stack.dropout}, "
        f"smoothing {task.smoothing} (none for Marian). {task.steps} updates a round, at most "
        f"{task.max_tokens} padded tokens a batch ({ours:.1%} padding), random batches of "
        f"{random_batch_size(task.pairs, task.max_tokens)} sentences ({theirs:.1%} padding).",
    ]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and record if asked to."""
    words = read_words(arguments)
    measuring.require_rounds(words.rounds, words.record)
    measuring.use_threads(words)
    if not words.plain_malloc:
        keep_freed_memory()
    where = measuring.environment("training_speed.py", arguments)
    task = read_task(words)
    contestants = [CONTESTANTS[name](task, name) for name in words.contestants.split(",")]
    if words.warm_up:
        print("warming up; these rounds do not count")
        measuring.interleave(contestants, words.warm_up)
    samples = measuring.interleave(contestants, words.rounds)
    allocator = "as it is" if words.plain_malloc else "keeps freed memory, for all contestants"
    lines = [
        *where,
        f"- {words.rounds} rounds, interleaved; the memory allocator {allocator}",
        "",
        *describe(task),
        "",
        *measuring.ranking(samples, "polyhead", BARS, "real tokens per second, median (range)"),
    ]
    print("\n".join(["", *lines]))
    if words.record:
        measuring.record(measuring.RESULTS, "Training speed", lines)
    return 0


if __name__ == "__main__":
    measuring.run(main)
