"""Vision Transformers: how good the recipes are, and how fast they train beside others.

    digits      vit-digits: scikit-learn's digits, the usual halves (898 and 899)     3 minutes
    fashion     vit-fashion: Fashion-MNIST, tested on its 10,000 test images          40 minutes
    cifar10     vit-cifar10: CIFAR-10, tested on its 10,000 test images               60 minutes
    speed       images per second while training: ours, timm (if installed), plain PyTorch

A test set is looked at once, after training: which checkpoint is used was chosen on images held
out of the training set (of the digits, which are few, it is simply the last).
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import measuring
import peers_vit
import torch
from measuring import Contestant
from multi30k import training_time
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.images import ImageBatch, ImageBatches
from polyhead.data.config import AugmentConfig
from polyhead.data.images.dataset import ImageSet
from polyhead.devices import keep_freed_memory
from polyhead.errors import ConfigError, MissingError, PolyheadError
from polyhead.models.vit import ViT, ViTConfig
from polyhead.pipelines.image_classifier import ImageClassifier
from polyhead.tasks.losses import SoftLabelLoss
from polyhead.training.config import read_run
from polyhead.training.display import TrainingScreen
from polyhead.training.loop import Progress, TrainConfig, train_loop
from polyhead.training.optim import OptimizerConfig, build_optimizer
from polyhead.training.trainer import train

SEED, RATE, NEVER, SMOOTHING = 1, 3e-4, 10**9, 0.1
BARS = {"timm": 1.0, "torch": 1.0}
COLUMNS = ("recipe", "seed", "accuracy", "macro F1", "bar / goal", "minutes", "environment")
HEADING = "Images"
POOLINGS = {"class": "read from a class token", "mean": "read from the mean of the patches"}


@dataclass(frozen=True)
class Examination:
    """A recipe, what it is tested on, and how good it should be."""

    recipe: str
    test: tuple[str, ...]
    corpus: str | None
    bar: float
    goal: float
    model: str = "best"
    train: tuple[str, ...] = ()  # instead of the recipe's files


TASKS = {
    "digits": Examination("vit-digits", (), "digits", 0.969, 0.985, "last"),
    "fashion": Examination(
        "vit-fashion", ("fashion-mnist/t10k-images-idx3-ubyte.gz",), None, 0.898, 0.92
    ),
    "cifar10": Examination(
        "vit-cifar10", ("cifar10/test",), None, 0.70, 0.80, train=("cifar10/train",)
    ),
}
QUICK = (
    "train.steps=4",
    "train.validate_every=4",
    "train.save_every=4",
    "train.max_tokens=512",
    "train.log_every=1",
)


def examine(task: Examination, seed: int, words: argparse.Namespace) -> list[str]:
    """Train or resume one run, test it once, and return a row for the record."""
    folder = words.runs / f"{task.recipe}-{seed}"
    changes = (*words.overrides, *(QUICK if words.quick else ()), f"train.seed={seed}")
    run = read_run(task.recipe, changes, {"images": task.train} if task.train else None)
    result = train(run, folder, fresh=words.fresh or words.quick, callbacks=[TrainingScreen()])
    if result.signal is not None:
        raise PolyheadError(
            f"interrupted at step {result.step:,}; run the same command again to resume"
        )
    _, minutes = training_time(folder)
    results, _ = ImageClassifier.from_dir(folder / task.model).evaluate(
        task.test, corpus=task.corpus
    )
    print(results)
    verdict = "goal" if results.accuracy >= task.goal else "bar"
    reached = "reached" if results.accuracy >= task.bar else "MISSED"
    where = f"{measuring.processor()}, {torch.get_num_threads()} threads, {measuring.commit()}"
    return [
        task.recipe, str(seed), f"{results.accuracy:.4f}", f"{results.macro_f1:.4f}",
        f"{task.bar:g} / {task.goal:g}: {verdict} {reached}", f"{minutes:.1f}", where,
    ]  # fmt: skip


@dataclass(frozen=True)
class Race:
    """Training data of all systems, and the work of one round."""

    config: ViTConfig
    images: int
    steps: int

    def fresh_model(self) -> ViT:
        """Return a model with the weights that all systems use."""
        torch.manual_seed(SEED)
        return ViT(self.config).train()

    def batches(self) -> ImageBatches:
        """Random bytes: speed does not depend on what is to be seen."""
        config, n = self.config, 4 * self.images
        shape = (n, config.channels, config.height, config.width)
        draw = torch.Generator().manual_seed(SEED)
        pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=draw)
        images = ImageSet.of(pixels, torch.arange(n) % config.classes)
        tokens = config.n_tokens
        limit, change = self.images * tokens, AugmentConfig()
        return ImageBatches(
            images, config.classes, change, tokens=tokens, max_tokens=limit, seed=SEED
        )


def polyhead_contestant(race: Race) -> Contestant:
    """Return the loop that `polyhead train` runs, without its validations and checkpoints."""
    model = race.fresh_model()
    adam = build_optimizer(model, OptimizerConfig(kind="adamw", weight_decay=0.05))
    batches, objective, progress = (
        race.batches().batches(DataPosition()),
        SoftLabelLoss(SMOOTHING),
        Progress(),
    )
    plan = TrainConfig(validate_every=NEVER, save_every=NEVER)

    def work() -> int:
        config = replace(plan, steps=progress.step + race.steps)
        for _ in train_loop(model, objective, batches, adam, lambda _: RATE, config, progress):
            pass
        return race.steps * race.images

    return Contestant("polyhead", work)


def peer_contestant(race: Race, name: str, model: nn.Module) -> Contestant:
    """Train with a plain loop on our batches."""
    adam = torch.optim.AdamW(
        model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.05, fused=True
    )
    batches: Iterator[ImageBatch] = (batch for _, batch in race.batches().batches(DataPosition()))

    def work() -> int:
        model.train()
        for batch in islice(batches, race.steps):
            logits = model(batch.images)
            F.cross_entropy(logits, batch.targets, label_smoothing=SMOOTHING).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            adam.step()
            adam.zero_grad(set_to_none=True)
        return race.steps * race.images

    return Contestant(name, work)


def contestants(race: Race) -> list[Contestant]:
    """Ours, timm's if it is here, and plain PyTorch."""
    results = [polyhead_contestant(race)]
    try:
        results.append(peer_contestant(race, "timm", peers_vit.to_timm(race.config)))
    except MissingError as error:
        print(f"left out: {error}")
    plain = peers_vit.to_plain(race.fresh_model(), race.config)
    return [*results, peer_contestant(race, "torch", plain)]


def measure_speed(words: argparse.Namespace, arguments: Sequence[str]) -> None:
    """All contestants in turn, and a table."""
    measuring.require_rounds(words.rounds, words.record)
    keep_freed_memory()
    where = measuring.environment("images.py", arguments)
    config = read_run("vit-cifar10").model
    stack = replace(config.stack, n_layers=6)
    config = replace(
        config, classes=10, positions="learned", stem=(), stack=stack, pooling=words.pooling
    )
    race = Race(config, 8 if words.quick else 128, 1 if words.quick else words.steps)
    field = contestants(race)
    print("warming up; this round does not count")
    measuring.interleave(field, 1)
    samples = measuring.interleave(field, words.rounds)
    size = (
        f"{config.height} x {config.width} pixels, patches of {config.patch}, {stack.n_layers} "
        f"layers of {stack.d_model}, batches of {race.images}, {race.steps} updates a round; "
        + POOLINGS[words.pooling]
    )
    lines = [
        *where, f"- {words.rounds} rounds, interleaved; {size}", "",
        *measuring.ranking(samples, "polyhead", BARS, "images per second, median (range)"),
    ]  # fmt: skip
    print("\n".join(["", *lines]))
    if words.record:
        measuring.record(measuring.RESULTS, "Training speed of image models", lines)


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*TASKS, "speed"])
    parser.add_argument("overrides", nargs="*", help="changes to the recipe, as in train.steps=9")
    parser.add_argument("--seed", type=int, action="append", help="repeatable; 1 unless given")
    parser.add_argument("--runs", type=Path, default=Path("runs/benchmarks"))
    parser.add_argument("--fresh", action="store_true", help="train anew even if the run is there")
    parser.add_argument("--rounds", type=int, default=5, help="of the speed")
    parser.add_argument("--steps", type=int, default=10, help="of the speed: updates a round")
    parser.add_argument(
        "--pooling", choices=POOLINGS, default="class", help="of the speed: class is the paper's"
    )
    parser.add_argument("--threads", type=int, default=None, help="of torch")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it works")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    if words.quick and words.record:
        raise ConfigError("--quick measures nothing; leave it or --record out")
    return words


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and record if asked to."""
    words = read_words(arguments)
    if words.threads is not None:
        torch.set_num_threads(words.threads)
    if words.what == "speed":
        measure_speed(words, arguments)
        return 0
    for seed in words.seed or [1]:
        row = examine(TASKS[words.what], seed, words)
        print(measuring.table_row(row))
        if words.record:
            measuring.record_row(measuring.RESULTS, HEADING, COLUMNS, row)
    return 0


if __name__ == "__main__":
    measuring.run(main)
