"""Training speed by how idle threads wait, alone and beside busy processes.

    python benchmarks/threads.py
    python benchmarks/threads.py --busy 1

Threads of OpenMP that wait for each other spin for a while, then sleep. The time is libgomp's
default, what `import polyhead` sets (GOMP_SPINCOUNT), or none ("passive"). Each way has a process
of its own, which trains the model of `polyhead demo`; they take turns, a few steps each. In the end
their weights must be equal, bit for bit.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import measuring
import torch
from measuring import Contestant

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.translation import TranslationBatches
from polyhead.data.schedules import generator as schedules
from polyhead.data.token_store import TokenSequences
from polyhead.devices import keep_freed_memory
from polyhead.models.transformer import Transformer
from polyhead.special_tokens import PAD
from polyhead.tasks.losses import TranslationLoss
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.config import read_run
from polyhead.training.loop import Progress, TrainConfig, train_loop
from polyhead.training.optim import build_optimizer

VARIABLE = "GOMP_SPINCOUNT"
WAYS = {"polyhead": os.environ[VARIABLE], "libgomp": None, "passive": "0"}
WEIGHTS = "weights"


class Worker:
    """A process that trains a few steps for each line that it reads."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.work()  # the first steps are slow

    def answer(self, word: str) -> str:
        """Send a word and return the line that comes back."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(word, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def work(self) -> int:
        """Train a few steps; return the number of tokens."""
        return int(self.answer("train"))


def waiting_worker(spin_count: str | None, steps: int) -> Worker:
    """Start a process that trains with one way of waiting; it imports torch before polyhead."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if spin_count is not None:
        environment[VARIABLE] = spin_count
    return Worker([sys.executable, __file__, "--worker", "--steps", str(steps)], environment)


class DemoTraining(NamedTuple):
    """The training of the model of `polyhead demo`."""

    config: TrainConfig
    model: Transformer
    objective: TranslationLoss
    optimizer: torch.optim.Optimizer
    pairs: list[TokenSequences]


def demo_training() -> DemoTraining:
    """Build the model of `polyhead demo`, and encode a part of its corpus."""
    run = read_run("schedules-ko-en")
    text = schedules.generate(4000, 0, 0, 1).train
    sources, targets = ([pair[side] for pair in text] for side in (0, 1))
    tokenizers = train_tokenizers(sources, targets, run.text)
    sides = (tokenizers.source, sources), (tokenizers.target, targets)
    pairs = [
        TokenSequences.of(tokenizer.encode_batch(lines), len(tokenizer))
        for tokenizer, lines in sides
    ]
    keep_freed_memory()
    torch.manual_seed(1)
    sizes = {"source_vocab": len(tokenizers.source), "target_vocab": len(tokenizers.target)}
    model = Transformer(replace(run.model, **sizes))
    adam, objective = build_optimizer(model, run.train.optimizer), TranslationLoss(PAD, 0.1)
    return DemoTraining(run.train, model, objective, adam, pairs)


def checksum(model: Transformer) -> str:
    """Return the sha256 of all weights."""
    weights = [weight.numpy().tobytes() for weight in model.state_dict().values()]
    return hashlib.sha256(b"".join(weights)).hexdigest()


def work_on_demand(steps: int) -> None:
    """Train for each line of stdin, and answer the number of tokens; for WEIGHTS their checksum."""
    config, model, objective, adam, pairs = demo_training()
    batches = TranslationBatches(*pairs, config.max_tokens, 1).batches(DataPosition())
    progress = Progress()
    for word in sys.stdin:
        if word.strip() == WEIGHTS:
            print(checksum(model), flush=True)
            continue
        before = progress.tokens
        plan = replace(config, steps=progress.step + steps)
        for _ in train_loop(model, objective, batches, adam, lambda _: 1e-3, plan, progress):
            pass
        print(progress.tokens - before, flush=True)


def measure(workers: dict[str, Worker], rounds: int, n_busy: int) -> list[str]:
    """Return a table of the speeds beside so many busy processes."""
    contestants = [Contestant(name, worker.work) for name, worker in workers.items()]
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(n_busy)]
    try:
        samples = measuring.interleave(contestants, rounds)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return measuring.ranking(samples, "polyhead", {}, "real tokens per second, median (range)")


def main(words: Sequence[str]) -> int:
    """Measure, print and record; 1 if the weights differ."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=8, help="of each process in a round")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a core busy")
    parser.add_argument("--record", action="store_true", help="append a section to RESULTS.md")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.worker:
        work_on_demand(options.steps)
        return 0
    measuring.require_rounds(options.rounds, options.record)
    lines = [*measuring.environment("threads.py", words), f"- {options.rounds} rounds, interleaved"]
    workers = {name: waiting_worker(spins, options.steps) for name, spins in WAYS.items()}
    lines += ["", f"Beside {options.busy} busy processes.", ""]
    lines += measure(workers, options.rounds, options.busy)
    equal = len({worker.answer(WEIGHTS) for worker in workers.values()}) == 1
    for worker in workers.values():
        worker.process.communicate()
    lines += ["", f"Weights in the end: {'equal' if equal else 'DIFFERENT'}."]
    print("\n".join(lines))
    if options.record:
        measuring.record(measuring.RESULTS, "How idle threads wait", lines)
    return 0 if equal else 1


if __name__ == "__main__":
    measuring.run(main)
