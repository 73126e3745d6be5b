"""Translation quality on Multi30k: train a recipe, and see how good it is after how many minutes.

Choices (batch size, schedule, beam, length penalty) are made on `val`, which is shown first. The
test set is translated once, at the end, and nothing is chosen by it.

    lower-cased   sacreBLEU, lower-cased, tokenised by 13a: what the tutorials and papers on this
                  corpus mean by BLEU, up to the details of their tokenizers
    cased         sacreBLEU as it is meant to be used: the text as a reader would see it
    chrF          character n-grams, cased

Minutes are those that the run itself counted while training, over all its sessions; validations and
checkpoints in between are included, reading the text and learning the vocabulary are not.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import measuring
import torch

from polyhead.data.text_files import read_lines
from polyhead.decoding.options import DecodeConfig
from polyhead.errors import ConfigError, PolyheadError
from polyhead.metrics.bleu import score
from polyhead.pipelines.translator import Translator
from polyhead.training.config import RunConfig, read_run
from polyhead.training.display import TrainingScreen
from polyhead.training.run_log import METRICS
from polyhead.training.trainer import train

HEADING = "Translation quality: Multi30k"
VAL, TEST = "val", "test_2016_flickr"
COLUMNS = (
    "date, commit", "recipe", "seed", "minutes", "steps", "beam, α", "val lower-cased: greedy",
    "beam", "test lower-cased: greedy", "beam", "test cased: beam", "chrF: beam", "machine",
)  # fmt: skip


@dataclass(frozen=True)
class Quality:
    """Scores of one decoding method on one set."""

    lowercased: float
    cased: float
    chrf: float
    signatures: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"lower-cased BLEU {self.lowercased:.2f}  cased BLEU {self.cased:.2f}  "
            f"chrF {self.chrf:.2f}"
        )


def measure(outputs: Sequence[str], references: Sequence[str]) -> Quality:
    """Three scores of the same translations."""
    lowercased = score(outputs, references, lowercase=True, bootstrap=0)
    cased = score(outputs, references, bootstrap=0)
    signatures = (lowercased[0].signature, cased[0].signature, cased[1].signature)
    return Quality(lowercased[0].value, cased[0].value, cased[1].value, signatures)


def file_of_the_test_set(valid: str) -> str:
    """Return the file of the test set that belongs to one of the validation set."""
    path = Path(valid)
    if not path.name.startswith(f"{VAL}."):
        raise ConfigError(
            f"{valid}: this benchmark knows recipes that validate on Multi30k's {VAL}.* files"
        )
    return str(path.with_name(path.name.replace(VAL, TEST, 1)))


def read_sets(run: RunConfig) -> dict[str, tuple[list[str], list[str]]]:
    """Return sources and references of both sets."""
    if len(run.data.valid_source) != 1 or len(run.data.valid_target) != 1:
        raise ConfigError("this benchmark needs a recipe with one pair of validation files")
    valid = (run.data.valid_source[0], run.data.valid_target[0])
    sets = {}
    for name, files in {VAL: valid, TEST: tuple(map(file_of_the_test_set, valid))}.items():
        sources, references = (read_lines(Path(file)) for file in files)
        sets[name] = (sources, references)
    return sets


def training_time(folder: Path) -> tuple[int, float]:
    """Return steps and minutes of a finished run, from its metrics.

    The clock is written every `log_every` steps; the last few after it are taken to have been as
    fast as the others.
    """
    try:
        text = (folder / METRICS).read_text(encoding="utf-8")
    except OSError as error:
        raise PolyheadError(f"{folder / METRICS} cannot be read: {error.strerror}") from None
    entries = [json.loads(line) for line in text.split("\n") if line]
    clocked = [entry for entry in entries if "seconds" in entry]
    if not clocked:
        raise PolyheadError(
            f"{folder / METRICS} has no time in it; train for more than train.log_every steps"
        )
    steps = max(entry["step"] for entry in entries)
    last = clocked[-1]
    return steps, last["seconds"] * steps / last["step"] / 60


def judge(
    translator: Translator, sets: dict[str, tuple[list[str], list[str]]], beam: DecodeConfig
) -> dict[tuple[str, str], Quality]:
    """Both sets, greedy and with a beam; the test set comes last."""
    results = {}
    for name, (sources, references) in sets.items():
        for way, options in {"greedy": replace(beam, beam=1), "beam": beam}.items():
            outputs = translator.translate(sources, options=options)
            results[name, way] = measure(outputs, references)
            shown = f"beam {options.beam}, α {options.length_penalty:g}" if way == "beam" else way
            print(f"{name:<17} {shown:<16} {results[name, way]}")
    return results


def row_of(
    about: Sequence[str], beam: DecodeConfig, results: dict[tuple[str, str], Quality]
) -> list[str]:
    """Return a row of the table: `about` is the recipe, the seed, the minutes and the steps."""
    return [
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {measuring.commit()}",
        *about,
        f"{beam.beam}, {beam.length_penalty:g}",
        f"{results[VAL, 'greedy'].lowercased:.2f}",
        f"{results[VAL, 'beam'].lowercased:.2f}",
        f"{results[TEST, 'greedy'].lowercased:.2f}",
        f"{results[TEST, 'beam'].lowercased:.2f}",
        f"{results[TEST, 'beam'].cased:.2f}",
        f"{results[TEST, 'beam'].chrf:.2f}",
        f"{measuring.processor()}, {torch.get_num_threads()} threads",
    ]


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="as in polyhead train")
    parser.add_argument("--recipe", default="multi30k-de-en")
    parser.add_argument(
        "--run", type=Path, default=None, help="runs/benchmark-RECIPE-SEED if not given"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beam", type=int, default=None, help="that of the recipe if not given")
    parser.add_argument("--length-penalty", type=float, default=None, help="likewise")
    measuring.add_threads(parser)
    parser.add_argument("--fresh", action="store_true", help="train anew even if the run is there")
    parser.add_argument("--record", action="store_true", help="add a row to RESULTS.md")
    return parser.parse_intermixed_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Train, translate, score, print, and record if asked to."""
    words = read_words(arguments)
    measuring.use_threads(words)
    where = measuring.environment("multi30k.py", arguments)
    run = read_run(words.recipe, [*words.overrides, f"train.seed={words.seed}"])
    sets = read_sets(run)  # before hours of training: is everything there?
    name = Path(words.recipe).stem
    folder = words.run or Path("runs") / f"benchmark-{name}-{words.seed}"
    result = train(run, folder, fresh=words.fresh, callbacks=[TrainingScreen()])
    if result.signal is not None:
        raise PolyheadError(
            f"interrupted at step {result.step:,}; run the same command again to resume"
        )
    steps, minutes = training_time(folder)
    print(
        "\n".join([*where, f"- {name}: {steps:,} steps in {minutes:.1f} minutes of training", ""])
    )
    translator = Translator.from_dir(folder, device=run.train.device)
    wanted = {"beam": words.beam, "length_penalty": words.length_penalty}
    beam = replace(translator.defaults.with_options(wanted), n_best=1, sample=False)
    results = judge(translator, sets, beam)
    signatures = dict.fromkeys(s for quality in results.values() for s in quality.signatures)
    print("\n".join(["", *signatures]))
    if words.record:
        about = [
            " ".join([name, *words.overrides]),
            str(words.seed),
            f"{minutes:.1f}",
            f"{steps:,}",
        ]
        measuring.record_row(measuring.RESULTS, HEADING, COLUMNS, row_of(about, beam, results))
    return 0


if __name__ == "__main__":
    measuring.run(main)
