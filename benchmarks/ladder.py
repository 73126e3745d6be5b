"""Compare five recurrent models and a Transformer on reversing sequences.

    source   g a d … k .          up to 24 different letters out of 32
    target   k … d a g .          the same from right to left

The five differ only in the decoder's context (`models/baselines/attention_ladder.py`): the last
state, the mean of all, a weight for each place, a function of h, a function of (s, h). All six have
about the same size, see the same batches, and are judged on sequences that none of them has seen.

    distance        how many steps of a recurrent network lie between reading a letter and writing
                    it: 2 for the last letter of the source (the closing token is read between), 2n
                    for the n-th from the right
    accuracy        of the next letter, given the right ones before it
    exact           whole sequences, written alone by greedy search
    gradient        ‖∂ (decoder's vector of the first step) / ∂ (embedding of a letter)‖, the mean
                    over sentences, divided by that of the last letter: how much of a letter so many
                    places from the end still arrives
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import curves
import measuring
import torch
from curves import Panel
from torch import nn
from torch.nn.utils import clip_grad_norm_

from polyhead.data.batches.translation import Pair, TranslationBatch, collate
from polyhead.decoding.options import DecodeConfig
from polyhead.decoding.sampling import greedy_search
from polyhead.errors import ConfigError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.models.baselines.attention_ladder import Ladder, LadderConfig
from polyhead.models.transformer import Transformer, TransformerConfig
from polyhead.special_tokens import BOS, EOS, PAD
from polyhead.tasks.losses import TranslationLoss
from polyhead.viz.gradient_reach import gradient_by_word

HEADING = "From sequence-to-sequence to attention"
PICTURE = measuring.FOLDER / "ladder.svg"
FIRST = 3  # the first id that is a letter
RUNGS = {  # the models of the notes, and what their contexts are
    "none": "no attention (last state)",
    "mean": "mean of all states",
    "positional": "a weight for each place",
    "content": "a function of h",
    "query": "a function of (s, h)",
}
TRANSFORMER = "Transformer"
SEEN_SEED, UNSEEN_SEED = 1, 2


@dataclass(frozen=True)
class Task:
    """Difficulty of the task, and number of steps."""

    letters: int = 32
    shortest: int = 8
    longest: int = 24
    d_model: int = 64
    cell: Any = "gru"
    batch: int = 64
    steps: int = 1500
    judged: int = 512

    @property
    def vocab(self) -> int:
        """Letters and the three special tokens."""
        return FIRST + self.letters

    def sequences(self, seed: int) -> Iterator[TranslationBatch]:
        """Batches of different letters and the same backwards, for ever."""
        dice = torch.Generator().manual_seed(seed)
        while True:
            length = int(torch.randint(self.shortest, self.longest + 1, (1,), generator=dice))
            yield collate([self.pair(length, dice) for _ in range(self.batch)])

    def pair(self, length: int, dice: torch.Generator) -> Pair:
        """Return a sequence and the same backwards, both closed."""
        letters = (torch.randperm(self.letters, generator=dice)[:length] + FIRST).tolist()
        return [*letters, EOS], [*letters[::-1], EOS]

    def unseen(self) -> list[TranslationBatch]:
        """Return the test set: equally many sequences of every length."""
        dice = torch.Generator().manual_seed(UNSEEN_SEED)
        lengths = range(self.shortest, self.longest + 1)
        each = -(-self.judged // len(lengths))
        return [collate([self.pair(n, dice) for _ in range(each)]) for n in lengths]


QUICK = Task(letters=8, shortest=3, longest=6, d_model=16, batch=16, steps=4, judged=16)


def builders(task: Task) -> dict[str, Callable[[], nn.Module]]:
    """All contestants, to be built when it is their turn."""
    ladder = LadderConfig(
        task.vocab, task.vocab, cell=task.cell, d_model=task.d_model, dropout=0.0, score="general"
    )
    stack = StackConfig(1, task.d_model, 4, task.d_model, dropout=0.0, norm="pre")
    transformer = TransformerConfig(task.vocab, task.vocab, tie="none", stack=stack)
    rungs = {name: partial(Ladder, replace(ladder, context=rung)) for rung, name in RUNGS.items()}
    return {**rungs, TRANSFORMER: partial(Transformer, transformer)}


def train(model: nn.Module, task: Task, rate: float = 3e-3) -> float:
    """Adam, with a rate that rises for a tenth of the steps and then falls to 0; the seconds."""
    adam = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), fused=True)
    warm_up = max(1, task.steps // 10)
    objective, started = TranslationLoss(PAD), time.perf_counter()
    model.train()
    for step, batch in zip(range(task.steps), task.sequences(SEEN_SEED), strict=False):
        falling = (task.steps - step) / max(1, task.steps - warm_up)
        for group in adam.param_groups:
            group["lr"] = rate * min((step + 1) / warm_up, falling)
        loss = objective(model, batch)
        (loss.total / loss.count).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
    model.eval()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Outcome:
    """Result of one system."""

    loss: float
    accuracy: float
    by_distance: dict[int, float]  # by the number of recurrent steps
    exact: float


@torch.inference_mode()
def judge(model: Any, task: Task) -> Outcome:
    """Loss and accuracy given the right past; whole sequences without it."""
    right, total, n_exact = torch.zeros(task.longest), torch.zeros(task.longest), 0
    loss, count, sequences = 0.0, 0, 0
    objective = TranslationLoss(PAD)
    for source, target, labels in task.unseen():
        results = objective(model, TranslationBatch(source, target, labels))
        loss, count = loss + float(results.total), count + results.count
        hits = model(source, target).argmax(-1) == labels
        n = labels.size(1) - 1  # the closing EOS is no letter
        right[:n] += hits[:, :n].sum(0)
        total[:n] += len(labels)
        options = DecodeConfig(beam=1, max_length=labels.size(1))
        written = greedy_search(model, source, options).tokens[:, 0]
        n_exact += int((written == labels).all(1).sum())
        sequences += len(labels)
    share = right / total.clamp(min=1)
    by_distance = {2 * (n + 1): float(share[n]) for n in range(task.longest)}
    return Outcome(loss / count, float(right.sum() / total.sum()), by_distance, n_exact / sequences)


def arriving(model: Any, task: Task, sentences: int = 32) -> dict[int, float]:
    """Return the relative gradient of the first step's vector by letters from the end."""
    dice = torch.Generator().manual_seed(UNSEEN_SEED)
    n = task.longest
    pairs = [task.pair(n, dice) for _ in range(sentences)]
    source = collate(pairs).source
    bos = torch.full((sentences, 1), BOS)
    felt = gradient_by_word(model.embed_source, lambda: model.hidden(source, bos)[:, 0])
    norms = felt.mean(0)[:n].flip(0)  # of the letters, from the end
    return {place: float(norms[place] / norms[0]) for place in range(n)}


def buckets(by_distance: dict[int, float], n: int = 4) -> dict[str, float]:
    """Format the results in columns of equal width."""
    keys = sorted(by_distance)
    size = -(-len(keys) // n)
    groups = [keys[start : start + size] for start in range(0, len(keys), size)]
    return {
        f"{group[0]}-{group[-1]}": sum(by_distance[key] for key in group) / len(group)
        for group in groups
    }


def compete(task: Task) -> tuple[list[str], list[Panel]]:
    """Train and judge everyone: two tables and two panels."""
    rows, accuracies = [], {}
    gradients = before_training(task)
    for name, build in builders(task).items():
        torch.manual_seed(0)
        model = build()
        n_parameters = sum(p.numel() for p in model.parameters())
        seconds = train(model, task)
        results = judge(model, task)
        accuracies[name] = sorted(results.by_distance.items())
        if name in (RUNGS["none"], RUNGS["query"], TRANSFORMER):
            gradients[f"{name}, trained"] = arriving(model, task)
        shares = buckets(results.by_distance)
        rows.append(
            [name, f"{n_parameters:,}", f"{seconds:.0f}", f"{results.loss:.3f}"]
            + [f"{share:.1%}" for share in (results.accuracy, *shares.values(), results.exact)]
        )
        print(f"{name}: loss {results.loss:.3f}, accuracy {results.accuracy:.1%}, {seconds:.0f} s")
    columns = ["context", "parameters", "seconds", "loss", "accuracy"]
    columns += [f"at {distances}" for distances in shares] + ["exact"]
    places = sorted({round(i * (task.longest - 1) / 5) for i in range(6)})
    fading = [[name, *(f"{of[p]:.2g}" for p in places)] for name, of in gradients.items()]
    lines = [
        *measuring.table(columns, rows),
        "",
        "Gradient by the place of a letter, counted from the end of the source:",
        "",
        *measuring.table(["", *(str(place) for place in places)], fading),
    ]
    floor = 1e-12  # a gradient that is no more can be drawn nowhere
    drawn = {name: [(p, max(of[p], floor)) for p in places] for name, of in gradients.items()}
    picked = {
        name: [curve[i] for i in sorted({round(i * (len(curve) - 1) / 8) for i in range(9)})]
        for name, curve in accuracies.items()
    }
    return lines, [
        Panel("Accuracy of the next letter", "recurrent steps since it was read", picked),
        Panel("Gradient of the first step", "places from the end", drawn, logarithmic=True),
    ]


def before_training(task: Task) -> dict[str, dict[int, float]]:
    """Return the gradients of an untrained plain RNN and the Transformer."""
    plain = builders(replace(task, cell="rnn"))
    gradients = {}
    for name in (RUNGS["none"], RUNGS["query"], TRANSFORMER):
        torch.manual_seed(0)
        kind = "" if name == TRANSFORMER else "tanh cell, "
        gradients[f"{name}, {kind}untrained"] = arriving(plain[name]().eval(), task)
    return gradients


def describe(task: Task, seconds: float) -> str:
    """Describe the comparison for the record."""
    n_judged = sum(len(batch.source) for batch in task.unseen())
    return (
        f"{task.shortest} to {task.longest} different letters out of {task.letters}, to be written "
        f"backwards; {task.steps:,} steps of {task.batch} sequences; d_model {task.d_model}, one "
        f"layer each way, {task.cell} cells; judged on {n_judged:,} others; one "
        f"seed; {seconds / 60:.1f} minutes in all. Accuracy is shown by distance in recurrent "
        f"steps; chance is {1 / task.letters:.1%}."
    )


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--steps", type=int, default=Task.steps, help="updates of each model")
    parser.add_argument("--longest", type=int, default=Task.longest, help="letters in a sequence")
    parser.add_argument("--cell", choices=["rnn", "gru", "lstm"], default=Task.cell)
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it works")
    parser.add_argument("--picture", type=Path, default=None, help="where to draw (.svg)")
    measuring.add_threads(parser)
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md, and draw")
    words = parser.parse_args(arguments)
    if words.quick and words.record:
        raise ConfigError("--quick is for trying out, not for the record; leave one of them out")
    if not Task.shortest <= words.longest <= Task.letters:
        raise ConfigError(
            f"--longest {words.longest}: expected {Task.shortest} to {Task.letters}, because no "
            "letter comes twice"
        )
    if words.steps < 1:
        raise ConfigError(f"--steps {words.steps}: expected at least 1")
    return words


def main(arguments: Sequence[str]) -> int:
    """Train, judge, print, draw, and record if asked to."""
    words = read_words(arguments)
    measuring.use_threads(words)
    where = measuring.environment("ladder.py", arguments)
    task = Task(steps=words.steps, longest=words.longest, cell=words.cell)
    task = replace(QUICK, cell=words.cell) if words.quick else task
    started = time.perf_counter()
    lines, panels = compete(task)
    lines = [*where, "", describe(task, time.perf_counter() - started), "", *lines]
    picture = words.picture or (PICTURE if words.record else None)
    if picture is not None:
        picture.write_text(curves.draw(panels), encoding="utf-8")
    if words.record:
        lines += ["", f"![Accuracy and gradient by distance]({picture.name})"]
        measuring.record(measuring.RESULTS, HEADING, lines)
    print("\n".join(["", *lines]))
    return 0


if __name__ == "__main__":
    measuring.run(main)
