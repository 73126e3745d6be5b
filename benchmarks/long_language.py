"""Compare a language model with sparse attention and a long context with its dense twin.

Both have the same parameters under the same names, the same first weights, the same batches and
the same number of steps, on the characters of tiny Shakespeare. The twin has dense attention:

    local    →  full      a window as long as the text
    lsh      →  lsh       one chunk as long as the text: dense attention, queries are keys

Judged is the model of the last step, on the last 10 % of the characters, each predicted once in
windows as long as the context; hashing in use draws the same rotations every time, so that a second
look says the same.
"""

import argparse
import math
from pathlib import Path

import curves
import gpt
import measuring
from multi30k import training_time

from polyhead.errors import PolyheadError
from polyhead.training.config import read_run
from polyhead.training.display import TrainingScreen
from polyhead.training.trainer import train

RECIPE = "reformer-shakespeare"
BAR = 0.05  # nats
MODEST = (  # about twelve minutes for each of the two on one core
    "model.stack.d_model=128", "model.stack.d_ff=512", "model.stack.reversible=false",
    "train.steps=800", "train.max_tokens=2048", "train.schedule.warmup=80",
    "train.validate_every=400", "train.save_every=400",
)  # fmt: skip
QUICK = (
    "train.steps=4", "train.log_every=2", "model.stack.n_layers=2", "model.stack.d_model=16",
    "model.stack.n_heads=2", "model.stack.d_ff=16", "train.schedule.warmup=2",
    "data.max_length=128", "model.max_length=128", "train.max_tokens=256",
)  # fmt: skip


def add_words(parser: argparse.ArgumentParser) -> None:
    """Return the options of this part."""
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as in polyhead train")
    parser.add_argument("--recipe", default=RECIPE)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the folders go")
    parser.add_argument("--as-written", action="store_true", help="the recipe's own size and steps")
    parser.add_argument("--fresh", action="store_true", help="start over")
    parser.add_argument(
        "--keep-windows", action="store_true", help="the twin's local layers stay local"
    )


def twin(kinds: str | tuple[str, ...], context: int, *, keep_windows: bool = False) -> list[str]:
    """Return the overrides that make these kinds of attention dense."""
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    dense = [kind if kind != "local" or keep_windows else "full" for kind in kinds]
    names = ", ".join(f'"{kind}"' for kind in dense)
    return [
        f"model.stack.attention=[{names}]",
        f"model.stack.lsh.chunk={context}",
        "model.stack.lsh.rounds=1",  # a second one would add nothing
        "model.stack.lsh.eval_rounds=0",
    ]


def language(words: argparse.Namespace) -> tuple[list[str], list[curves.Panel]]:
    """Train and judge both, with every seed."""
    files = gpt.cut(gpt.read_text(words.quick), words.runs / "benchmark-tinyshakespeare")
    given = {"text": [str(files[0])], "valid_text": [str(files[1])]}
    size = () if words.as_written else MODEST
    overrides = [*size, *(QUICK if words.quick else ()), *words.overrides]
    run = read_run(words.recipe, overrides, given)
    stack, context = run.model.stack, run.data.max_length
    dense = twin(stack.attention, context, keep_windows=words.keep_windows)
    sides = {"sparse": overrides, "dense": [*overrides, *dense]}
    rows, gaps = [], []
    for seed in words.seeds:
        nats = {}
        for name, changed in sides.items():
            folder = words.runs / f"benchmark-long-{name}-{seed}"
            item = read_run(words.recipe, [*changed, f"train.seed={seed}"], given)
            result = train(
                item, folder, fresh=words.fresh or words.quick, callbacks=[TrainingScreen()]
            )
            if result.signal is not None:
                raise PolyheadError(
                    f"interrupted at step {result.step:,}; run the same command again to resume"
                )
            steps, minutes = training_time(folder)
            score = gpt.judge(folder / "last", files[1])
            nats[name] = score.bits_per_character * math.log(2)
            rows.append([name, str(seed), f"{steps:,}", f"{minutes:.1f}", f"{nats[name]:.4f}"])
            print(measuring.table_row(rows[-1]))
        gaps.append(nats["sparse"] - nats["dense"])
    gap = measuring.spread(gaps)
    kinds = stack.attention if isinstance(stack.attention, str) else ", ".join(stack.attention)
    return [
        f"- recipe {words.recipe}, with {' '.join([*size, *words.overrides]) or 'nothing changed'}",
        "",
        f"{stack.n_layers} layers, d_model {stack.d_model}, a context of {context:,} characters. "
        f"Sparse: {kinds} in turn, a window of {stack.window}, chunks of {stack.lsh.chunk}, "
        f"{stack.lsh.rounds} rounds. Dense: the same parameters, "
        f"{'no hashing' if words.keep_windows else 'dense attention'}.",
        "",
        *measuring.table(["", "seed", "steps", "minutes", "nats per character"], rows),
        "",
        f"- sparse minus dense: {gap.median:+.4f} nats ({gap.low:+.4f} to {gap.high:+.4f}; bar: at "
        f"most {BAR:g}: {'reached' if gap.median <= BAR else 'MISSED'})",
    ], []
