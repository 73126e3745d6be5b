"""Does hashing find the one position that matters? The duplication task (Kitaev et al. 2020, 4.1).

    0 w 0 w        w: random symbols from 1 to 127, as many as fill the length

Nothing predicts the second w but the first: the model must attend half the length back, at
one position among all. Everyone has one layer, learns from the same sequences, and is judged on
others by how many symbols of the second w are right.

    dense     every pair compared (a chunk as long as the sequence)
    LSH-n     n rounds of hashing in training

Each is judged with 1, 2, 4 and 8 rounds: a round more is a chance more to find the position.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import measuring
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from polyhead.errors import ConfigError
from polyhead.layers.cross_entropy import linear_cross_entropy
from polyhead.layers.lsh.attention import LSHConfig, set_eval_rounds
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.reformer import Reformer, ReformerConfig

HEADING = "The duplication task"
DENSE = 0  # in a list of rounds: no hashing at all
SEEN_SEED, UNSEEN_SEED = 1, 2


@dataclass(frozen=True)
class Task:
    """Length of the sequences, size of the model, number of steps."""

    length: int = 256
    symbols: int = 128  # 0 is the separator
    chunk: int = 16
    d_model: int = 128
    n_heads: int = 4
    batch: int = 16
    steps: int = 400
    rate: float = 3e-3
    judged: int = 128  # sequences
    stages: int = 0  # shorter lengths to begin with: a half, a quarter, …, the shortest first

    def length_at(self, step: int) -> int:
        """Return the length at a step; each shorter length takes a tenth of the steps.

        What to do with a position once it is found can be learned from short sequences, and then
        it is easier to see which position to look for in long ones.
        """
        left = max(0, self.stages - 10 * step // self.steps)
        return max(4, self.length // 2**left // 2 * 2)

    def sequences(
        self, n: int, dice: torch.Generator, length: int | None = None
    ) -> Int[Tensor, "n length"]:
        """0 w 0 w, n times, of the task's length unless given."""
        half = (self.length if length is None else length) // 2
        w = torch.randint(1, self.symbols, (n, half - 1), generator=dice)
        separator = torch.zeros(n, 1, dtype=torch.long)
        return torch.cat([separator, w, separator, w], dim=1)

    def model(self, rounds: int) -> Reformer:
        """One layer, whose attention hashes so many times; 0 is dense attention."""
        lsh = LSHConfig(self.chunk if rounds else self.length, max(1, rounds))
        stack = StackConfig(
            1, self.d_model, self.n_heads, self.d_model,
            dropout=0.0, norm="pre", attention="lsh", lsh=lsh,
        )  # fmt: skip
        # a free vector for every position: the task is to learn which two belong together
        return Reformer(ReformerConfig(self.symbols, self.length, "learned", False, stack))


QUICK = Task(length=16, symbols=8, chunk=4, d_model=16, n_heads=2, batch=4, steps=3, judged=8)


def second_half(
    model: Reformer, sequences: Int[Tensor, "batch length"]
) -> tuple[Float[Tensor, "position d_model"], Int[Tensor, "position"]]:
    """Return the output layer's input where the second w is predicted, and that w."""
    half = sequences.size(1) // 2
    states = model.hidden(sequences[:, :-1])[:, half:]
    return states.flatten(0, 1), sequences[:, half + 1 :].flatten()


def train(model: Reformer, task: Task) -> float:
    """Adam, with a rate that rises for a twentieth of the steps, then falls to 0; the seconds."""
    adam = torch.optim.Adam(model.parameters(), lr=task.rate, betas=(0.9, 0.98), fused=True)
    dice, warm_up = torch.Generator().manual_seed(SEEN_SEED), max(1, task.steps // 20)
    started = time.perf_counter()
    model.train()
    for step in range(task.steps):
        falling = (task.steps - step) / max(1, task.steps - warm_up)
        for group in adam.param_groups:
            group["lr"] = task.rate * min((step + 1) / warm_up, falling)
        length = task.length_at(step)
        n = task.batch * task.length // length  # as many symbols in every step
        states, labels = second_half(model, task.sequences(n, dice, length))
        loss = linear_cross_entropy(states, model.to_logits.weight, None, labels) / len(labels)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
    model.eval()
    return time.perf_counter() - started


@torch.inference_mode()
def judge(model: Reformer, task: Task, rounds: int) -> float:
    """Return the share of symbols of the second w that are right, with so many rounds."""
    set_eval_rounds(model.eval(), rounds)
    dice = torch.Generator().manual_seed(UNSEEN_SEED)
    right = total = 0
    for _ in range(-(-task.judged // task.batch)):
        states, labels = second_half(model, task.sequences(task.batch, dice))
        right += int((model.to_logits(states).argmax(-1) == labels).sum())
        total += len(labels)
    return right / total


def compete(task: Task, trained: Sequence[int], judged: Sequence[int]) -> list[str]:
    """Train everyone and judge each with every number of rounds: one table."""
    rows = []
    for rounds in trained:
        torch.manual_seed(0)
        model = task.model(rounds)
        seconds = train(model, task)
        # a chunk as long as the sequence finds everyone at once: all rounds say the same
        results = [judge(model, task, n) for n in (judged if rounds else (1,) * len(judged))]
        name = f"LSH-{rounds}" if rounds else "dense"
        rows.append([name, *(f"{share:.2%}" for share in results), f"{seconds:.0f}"])
        print(f"{name}: {', '.join(rows[-1][1:-1])} in {seconds:.0f} s")
    columns = ["trained with", *(f"judged with {n}" for n in judged), "seconds"]
    return measuring.table(columns, rows)


def describe(task: Task) -> str:
    """Describe the comparison for the record."""
    return (
        f"0 w 0 w of {task.length} positions and {task.symbols} symbols; one layer, d_model "
        f"{task.d_model}, {task.n_heads} heads, chunks of {task.chunk}; {task.steps:,} steps of "
        f"{task.batch} sequences, {task.stages} shorter lengths at first; accuracy on the second w "
        f"of {task.judged:,} others; one seed; chance is {1 / (task.symbols - 1):.1%}."
    )


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--length", type=int, default=Task.length, help="positions, an even number")
    parser.add_argument("--steps", type=int, default=Task.steps, help="updates of each model")
    parser.add_argument("--stages", type=int, default=Task.stages, help="shorter lengths at first")
    parser.add_argument("--batch", type=int, default=Task.batch, help="sequences in an update")
    parser.add_argument("--chunk", type=int, default=Task.chunk, help="positions in a chunk")
    parser.add_argument(
        "--trained", type=int, nargs="+", default=[DENSE, 1, 2, 4], help="rounds; 0 is dense"
    )
    parser.add_argument("--judged", type=int, nargs="+", default=[1, 2, 4, 8], help="rounds")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it works")
    measuring.add_threads(parser)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    if words.quick and words.record:
        raise ConfigError("--quick is for trying out, not for the record; leave one of them out")
    if words.length < 4 or words.length % 2:
        raise ConfigError(f"--length {words.length}: expected an even number from 4 on")
    if min(words.steps, words.batch, words.chunk, *words.judged) < 1:
        raise ConfigError("--steps, --batch, --chunk and --judged: expected at least 1")
    if not 0 <= words.stages <= 8 or min(words.trained) < 0:
        raise ConfigError("--stages: expected 0 to 8; --trained: expected 0 or more")
    return words


def main(arguments: Sequence[str]) -> int:
    """Train, judge, print, and record if asked to."""
    words = read_words(arguments)
    measuring.use_threads(words)
    where = measuring.environment("duplication.py", arguments)
    sizes = {"length": words.length, "steps": words.steps, "batch": words.batch}
    task = replace(Task(), **sizes, chunk=words.chunk, stages=words.stages)
    task = replace(QUICK, stages=words.stages) if words.quick else task
    table = compete(task, words.trained, words.judged)
    lines = [*where, "", describe(task), "", *table]
    if words.record:
        measuring.record(measuring.RESULTS, HEADING, lines)
    print("\n".join(["", *lines]))
    return 0


if __name__ == "__main__":
    measuring.run(main)
