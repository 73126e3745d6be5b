"""Peak memory of one training step, run in a process of its own.

    python benchmarks/footprint.py '{"length": 4096, "n_layers": 2, "reversible": true}'

prints what it found, as JSON; `measure` starts that process and reads it. The peak is the largest
resident set that the kernel has seen (Linux: VmHWM), minus what was resident before the model was
built. So it is everything that the step needs: parameters, gradients, activations, and whatever
its operations allocate for a moment.

glibc keeps what is freed in small pieces; its heap then grows by scattered pieces of every layer,
which no one uses. With MALLOC_MMAP_THRESHOLD_ low enough, what is freed is given back, and the peak
is what was needed. `kept` is a second witness without any noise: the bytes that autograd kept.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.nn.utils import clip_grad_norm_

from polyhead.cost.counter import saved_bytes
from polyhead.data.batches.language_model import LanguageBatch
from polyhead.errors import MissingError, PolyheadError
from polyhead.layers.lsh.attention import LSHConfig
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.tasks.losses import NextTokenLoss
from polyhead.training.optim import OptimizerConfig, build_optimizer

STATUS = Path("/proc/self/status")
SMALL_PIECES = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # larger ones are given back when freed
VOCAB = 256  # bytes
CHUNK, ROUNDS, WINDOW = 64, 2, 128


@dataclass(frozen=True)
class Step:
    """One training step of a language model on one document of random bytes."""

    length: int = 4096
    d_model: int = 256
    n_heads: int = 4
    n_layers: int = 2
    reversible: bool = True
    attention: tuple[str, ...] = ("local", "lsh")
    feed_chunk: int = 0
    update: bool = False  # by AdamW, whose two moments need the room of two more gradients
    count_kept: bool = True  # what autograd keeps; takes a second forward pass, after the peak
    threads: int = 1

    def model(self) -> GPT:
        """Return a GPT with the parts of the Reformer."""
        stack = StackConfig(
            self.n_layers,
            self.d_model,
            self.n_heads,
            4 * self.d_model,
            dropout=0.0,
            norm="pre",
            attention=self.attention,  # type: ignore[arg-type]
            window=WINDOW,
            lsh=LSHConfig(CHUNK, ROUNDS),
            reversible=self.reversible,
            feed_chunk=self.feed_chunk,
        )
        return GPT(GPTConfig(VOCAB, self.length, positions="axial", stack=stack)).train()


@dataclass(frozen=True)
class Footprint:
    """Bytes and seconds of a step."""

    peak: int  # beyond what was resident before the model was built
    parameters: int
    kept: int  # by autograd, saved for backward
    seconds: float
    loss: float

    @property
    def activations(self) -> int:
        """The peak without the parameters and their gradients."""
        return self.peak - 2 * self.parameters


def take(step: Step) -> Footprint:
    """Do the step in this process, which must be a fresh one."""
    torch.set_num_threads(step.threads)
    torch.manual_seed(1)
    ids = torch.randint(VOCAB, (1, step.length + 1))
    batch = LanguageBatch(ids[:, :-1], ids[:, 1:])
    before = resident("VmRSS")
    model = step.model()
    adam = build_optimizer(model, OptimizerConfig("adamw")) if step.update else None
    objective, started = NextTokenLoss(), time.perf_counter()
    loss = objective(model, batch)
    (loss.total / loss.count).backward()
    if adam is not None:
        clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
    seconds = time.perf_counter() - started
    peak = resident("VmHWM") - before
    kept = 0
    if step.count_kept:
        known = list(model.parameters())
        kept = saved_bytes(lambda: model.stack(model.embed(batch.ids)), without=known)
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return Footprint(peak, parameters, kept, seconds, float(loss.total.detach()) / loss.count)


def resident(which: str, status: Path = STATUS) -> int:
    """Bytes of this process in memory: now (VmRSS) or at most so far (VmHWM)."""
    if not status.exists():
        raise MissingError(f"peak memory is read from {status}, which only Linux has")
    for line in status.read_text(encoding="utf-8").split("\n"):
        if line.startswith(which + ":"):
            return int(line.split()[1]) * 1024
    raise MissingError(f"{status} does not say {which}, the memory of a process")


def measure(step: Step) -> Footprint:
    """Do the step in a process of its own."""
    command = [sys.executable, str(Path(__file__)), json.dumps(asdict(step))]
    environment = {**os.environ, **SMALL_PIECES, "OMP_NUM_THREADS": str(step.threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        reason = (done.stderr.strip() or "nothing").split("\n")[-1]
        raise PolyheadError(
            f"a step of {step.length:,} tokens and {step.n_layers} layers ended with code "
            f"{done.returncode} ({reason}); it may need more memory than there is"
        )
    return Footprint(**json.loads(done.stdout.strip().split("\n")[-1]))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if "attention" in given:
        given["attention"] = tuple(given["attention"])
    print(json.dumps(asdict(take(Step(**given)))))
