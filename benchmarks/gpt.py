"""GPT on tiny Shakespeare: how well it knows unseen text after a recipe, and how fast it trains.

    quality   train a recipe on the first 90 % of the characters, then predict every character of
              the last 10 % once (111,540 of them), in windows as long as the model's context. The
              model of the last step is judged, not the best of several.
    speed     training tokens per second of our loop beside a plain PyTorch GPT in the manner of
              nanoGPT (peers_gpt.py): same architecture, same weights at the start, same window
              and batch, fused AdamW and clipping for both, interleaved in one process. With --bf16
              each of them in mixed precision too (train.bf16; torch.autocast around the model).

Both need tinyshakespeare: `polyhead data get tinyshakespeare`, or POLYHEAD_DATA.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import measuring
import numpy as np
import peers_gpt
import torch
from measuring import Contestant
from multi30k import training_time
from torch.nn.utils import clip_grad_norm_

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.language_model import WindowBatches
from polyhead.data.locate import find
from polyhead.data.token_store import Ids
from polyhead.devices import keep_freed_memory
from polyhead.errors import ConfigError, PolyheadError
from polyhead.layers.transformer_stack import StackConfig
from polyhead.metrics.perplexity import encode_running_text
from polyhead.models.gpt import GPT, GPTConfig
from polyhead.pipelines.text_generator import LanguageScore, TextGenerator
from polyhead.tasks.losses import NextTokenLoss
from polyhead.tokenizers.base import TextConfig
from polyhead.tokenizers.storage import train_tokenizers
from polyhead.training.config import read_run
from polyhead.training.display import TrainingScreen
from polyhead.training.loop import Progress, TrainConfig, train_loop
from polyhead.training.optim import OptimizerConfig, build_optimizer
from polyhead.training.trainer import train

TEXT = "tinyshakespeare/input.txt"
TRAINED_ON = 0.9  # of the characters
QUALITY, SPEED = "Language models: tiny Shakespeare", "GPT training speed"
BARS = {"gpt-shakespeare-small": 1.88, "gpt-shakespeare": 1.669}  # nanoGPT on a CPU; a 5-gram
COLUMNS = (
    "date, commit", "recipe", "seed", "minutes", "steps", "nats per character",
    "bits per character", "bar", "machine",
)  # fmt: skip
QUICK = (
    "train.steps=4", "train.log_every=2", "model.stack.n_layers=1", "model.stack.d_model=16",
    "model.stack.n_heads=2", "model.stack.d_ff=16", "train.schedule.warmup=2",
)  # fmt: skip
QUICK_CHARACTERS = 20_000
SIZES = {  # layers, d_model, heads, context, windows in a batch
    "small": (4, 128, 4, 64, 12),
    "medium": (6, 192, 6, 256, 8),
    "quick": (1, 16, 2, 16, 2),
}
SEED, RATE, NEVER = 1, 1e-3, 10**9
BETAS, DECAY, EPSILON = (0.9, 0.99), 0.1, 1e-8
OURS, PLAIN, MIXED = "polyhead", "plain PyTorch", ", bf16"


def read_text(quick: bool) -> str:
    """Return the plays, as one text; its beginning if there is no time."""
    text = find(Path(TEXT)).read_text(encoding="utf-8")
    return text[:QUICK_CHARACTERS] if quick else text


def cut(text: str, folder: Path) -> tuple[Path, Path]:
    """Write both parts, split by characters, as files in a folder."""
    place = int(len(text) * TRAINED_ON)
    folder.mkdir(parents=True, exist_ok=True)
    files = folder / "first-90-percent.txt", folder / "last-10-percent.txt"
    for path, part in zip(files, (text[:place], text[place:]), strict=True):
        path.write_text(part, encoding="utf-8", newline="\n")
    return files


def quality(words: argparse.Namespace) -> int:
    """Train and judge a recipe with every seed."""
    where = measuring.environment("gpt.py", words.all)
    name = Path(words.recipe).stem
    files = cut(read_text(words.quick), words.runs / "benchmark-tinyshakespeare")
    overrides = [*(QUICK if words.quick else ()), *words.overrides]
    given = {"text": [str(files[0])], "valid_text": [str(files[1])]}
    losses = []
    for seed in words.seeds:
        folder = words.runs / f"benchmark-{name}-{seed}"
        run = read_run(words.recipe, [*overrides, f"train.seed={seed}"], given)
        result = train(run, folder, fresh=words.fresh or words.quick, callbacks=[TrainingScreen()])
        if result.signal is not None:
            raise PolyheadError(
                f"interrupted at step {result.step:,}; run the same command again to resume"
            )
        steps, minutes = training_time(folder)
        results = judge(folder / "last", files[1])
        losses.append(results.bits_per_character * math.log(2))
        about = [" ".join([name, *words.overrides]), str(seed), f"{minutes:.1f}", f"{steps:,}"]
        row = row_of(about, results, BARS.get(name))
        print(measuring.table_row(row))
        if words.record:
            measuring.record_row(measuring.RESULTS, QUALITY, COLUMNS, row)
    spread = measuring.spread(losses)
    shown = f"{spread.median:.4f} ({spread.low:.4f} to {spread.high:.4f})"
    print("\n".join(["", *where, f"- {name}: {shown} nats per character, {len(losses)} seeds"]))
    return 0


def judge(model: Path, text: Path) -> LanguageScore:
    """Return the score of a text, every token predicted once."""
    lines = text.read_text(encoding="utf-8").split("\n")
    results = TextGenerator.from_dir(model).score(lines[:-1] if lines[-1] == "" else lines)
    if results.n_unknown:
        print(f"{results.n_unknown} tokens are unknown to the model, which flatters it")
    return results


def row_of(about: Sequence[str], results: LanguageScore, bar: float | None) -> list[str]:
    """Return a row of the table: `about` is the recipe, the seed, the minutes and the steps."""
    nats = results.bits_per_character * math.log(2)
    verdict = "none" if bar is None else f"{bar:g}: {'reached' if nats <= bar else 'MISSED'}"
    return [
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {measuring.commit()}",
        *about,
        f"{nats:.4f}",
        f"{results.bits_per_character:.4f}",
        verdict,
        f"{measuring.processor()}, {torch.get_num_threads()} threads",
    ]


@dataclass(frozen=True)
class Task:
    """Task of both systems, and the work of one round."""

    stream: Ids
    model: GPTConfig
    rows: int
    steps: int
    clip_norm: float = 1.0

    @property
    def length(self) -> int:
        """The tokens of a window."""
        return self.model.max_length

    def fresh_model(self) -> GPT:
        """Return a model with the weights that both systems use."""
        torch.manual_seed(SEED)
        return GPT(self.model).train()


def polyhead_contestant(task: Task, *, bf16: bool = False) -> Contestant:
    """Return the loop that `polyhead train` runs, without its validations and checkpoints."""
    model = task.fresh_model()
    config = OptimizerConfig("adamw", BETAS[0], BETAS[1], EPSILON, DECAY)
    adam = build_optimizer(model, config)
    max_tokens = task.rows * task.length
    batches = WindowBatches(task.stream, task.length, max_tokens, SEED).batches(DataPosition())
    progress = Progress()
    plan = TrainConfig(
        clip_norm=task.clip_norm, smoothing=0.0, max_tokens=max_tokens,
        validate_every=NEVER, save_every=NEVER, bf16=bf16,
    )  # fmt: skip

    def work() -> int:
        before = progress.tokens
        config = replace(plan, steps=progress.step + task.steps)
        for _ in train_loop(
            model, NextTokenLoss(), batches, adam, lambda _: RATE, config, progress
        ):
            pass
        return progress.tokens - before

    return Contestant(f"{OURS}{MIXED if bf16 else ''}", work)


def plain_contestant(task: Task, *, bf16: bool = False) -> Contestant:
    """Return the loop that nanoGPT's readers write."""
    model = peers_gpt.to_plain(task.fresh_model(), task.model).train()
    adam = peers_gpt.optimiser(model, BETAS, DECAY, EPSILON)
    for group in adam.param_groups:
        group["lr"] = RATE
    stream = torch.from_numpy(task.stream.astype(np.int64))
    windows = peers_gpt.random_windows(stream, task.length, task.rows, SEED)

    def work() -> int:
        tokens = 0
        for ids, labels in islice(windows, task.steps):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = model(ids, labels)
            loss.backward()
            clip_grad_norm_(model.parameters(), task.clip_norm)
            adam.step()
            adam.zero_grad(set_to_none=True)
            loss.item()  # ours looks at its loss too
            tokens += ids.numel()
        return tokens

    return Contestant(f"{PLAIN}{MIXED if bf16 else ''}", work)


def read_task(words: argparse.Namespace) -> Task:
    """Characters of Shakespeare, and a GPT-2 of the asked size with learned positions."""
    n_layers, d_model, n_heads, context, rows = SIZES["quick" if words.quick else words.size]
    lines = read_text(words.quick).split("\n")
    tokenizer = train_tokenizers(lines, (), TextConfig(kind="characters")).source
    stack = StackConfig(
        n_layers, d_model, n_heads, 4 * d_model, dropout=words.dropout,
        attention_dropout=0.0, norm="pre", activation="gelu_tanh",
    )  # fmt: skip
    config = GPTConfig(len(tokenizer), context, "learned", stack=stack)
    return Task(encode_running_text(tokenizer, lines), config, rows, words.steps)


def speed(words: argparse.Namespace) -> int:
    """Measure, print, and record if asked to."""
    measuring.require_rounds(words.rounds, words.record)
    keep_freed_memory()
    where = measuring.environment("gpt.py", words.all)
    task = read_task(words)
    ways = (False, True) if words.bf16 else (False,)
    makers = (polyhead_contestant, plain_contestant)
    contestants = [make(task, bf16=bf16) for bf16 in ways for make in makers]
    print("warming up; this round does not count")
    measuring.interleave(contestants, 1)
    samples = measuring.interleave(contestants, words.rounds)
    stack, n_weights = task.model.stack, sum(p.numel() for p in task.fresh_model().parameters())
    lines = [
        *where,
        f"- {words.rounds} rounds of {task.steps} updates, interleaved; the memory allocator keeps "
        "freed memory, for both",
        "",
        f"{stack.n_layers} layers, d_model {stack.d_model}, {stack.n_heads} heads, "
        f"{n_weights / 1e6:.2f} million parameters; {task.rows} windows of {task.length} "
        f"characters a batch, dropout {stack.dropout:g}.",
        "",
        *measuring.ranking(samples, OURS, {PLAIN: 1.0}, "tokens per second"),
    ]
    if words.bf16:
        lines += ["", *measuring.ranking(samples, f"{OURS}{MIXED}", {}, "tokens per second")]
    print("\n".join(["", *lines]))
    if words.record:
        measuring.record(measuring.RESULTS, f"{SPEED}, {words.size}", lines)
    return 0


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    modes = parser.add_subparsers(dest="mode", required=True)
    entry = modes.add_parser("quality", help="nats per character after a recipe")
    entry.add_argument("overrides", nargs="*", metavar="key=value", help="as in polyhead train")
    entry.add_argument("--recipe", default="gpt-shakespeare-small", help=", ".join(BARS))
    entry.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    entry.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs' folders go")
    entry.add_argument("--fresh", action="store_true", help="start over")
    other = modes.add_parser("speed", help="tokens per second beside plain PyTorch")
    other.add_argument("--size", choices=["small", "medium"], default="small")
    other.add_argument("--rounds", type=int, default=5)
    other.add_argument("--steps", type=int, default=40, help="updates of each in every round")
    other.add_argument("--bf16", action="store_true", help="mixed precision too, for both")
    other.add_argument("--dropout", type=float, default=0.0, help="of both; nanoGPT's CPU run: 0")
    for mode in (entry, other):
        mode.add_argument("--quick", action="store_true", help="only to see that it works")
        measuring.add_threads(mode)
        mode.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    if words.quick and words.record:
        raise ConfigError("--quick is for trying out, not for the record")
    words.all = arguments
    return words


MODES: dict[str, Callable[[argparse.Namespace], int]] = {"quality": quality, "speed": speed}


def main(arguments: Sequence[str]) -> int:
    """Run the chosen benchmark."""
    words = read_words(arguments)
    measuring.use_threads(words)
    return MODES[words.mode](words)


if __name__ == "__main__":
    measuring.run(main)
