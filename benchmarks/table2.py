"""Table 2 on small data: every system under the same budget, and the table for the record.

    multi30k    German to English image captions, BLEU               polyhead compare multi30k-de-en
    g2p         how Korean words are pronounced, word error rate     polyhead compare g2p-ko
    ladder      from one vector to attention, and the scores         polyhead ladder multi30k-de-en

This calls the same functions as the commands. An interrupted run is resumed.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import measuring

from polyhead.errors import ConfigError, DataError, MissingError, PolyheadError
from polyhead.experiments.budget import read_budget
from polyhead.experiments.plan import CompareRequest
from polyhead.experiments.runner import Interrupted, compare_systems
from polyhead.experiments.systems import CONTESTS
from polyhead.training.display import TrainingScreen

CONTESTS_ON = {  # what → contest, recipe, heading
    "multi30k": ("compare", "multi30k-de-en", "Table 2 on Multi30k, German to English"),
    "g2p": ("compare", "g2p-ko", "Table 2 on Korean pronunciations"),
    "ladder": ("ladder", "multi30k-de-en", "The attention ladder on Multi30k"),
}
QUICK = ("train.bleu_sentences=2", "decode.max_length=8")


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("what", choices=CONTESTS_ON)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for all systems")
    parser.add_argument("--budget", default=None, help="time of each: 20m unless steps are given")
    parser.add_argument("--steps", type=int, default=None, help="of each, instead of a time")
    parser.add_argument("--systems", default="", help="joined by commas; all if not given")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ensemble", action="append", default=[], help="seeds, or a+b+c")
    parser.add_argument("--run", type=Path, default=None, help="runs/table2-WHAT if not given")
    measuring.add_threads(parser)
    parser.add_argument("--quick", action="store_true", help="only try it out, in a minute")
    parser.add_argument("--record", action="store_true", help="add the table to RESULTS.md")
    words = parser.parse_intermixed_args(arguments)
    if words.quick and words.record:
        raise ConfigError("--record: what --quick measures is not for the record")
    return words


def asked_by(words: argparse.Namespace) -> CompareRequest:
    """Return the request that the command line would make."""
    contest, recipe, _ = CONTESTS_ON[words.what]
    time = words.budget if words.budget or words.steps else "20m"
    steps = 4 if words.quick else words.steps
    return CompareRequest(
        CONTESTS[contest],
        words.run or Path("runs") / f"table2-{words.what}",
        read_budget(None if words.quick else time, steps),
        recipe,
        (*words.overrides, *(QUICK if words.quick else ())),
        systems=tuple(name for name in words.systems.split(",") if name),
        seeds=words.seeds,
        ensembles=tuple(words.ensemble),
    )


def main(arguments: Sequence[str]) -> int:
    """Compare, print, and record if asked."""
    words = read_words(arguments)
    measuring.use_threads(words)
    where = measuring.environment("table2.py", arguments)
    try:
        results = compare_systems(asked_by(words), reporter=TrainingScreen())
    except DataError as error:
        raise MissingError(f"this benchmark needs its data below $POLYHEAD_DATA: {error}") from None
    except Interrupted:
        raise PolyheadError("interrupted; run the same command again to resume") from None
    table = [line for line in results.text.split("\n## ")[0].splitlines()[2:] if line]
    lines = [*where, "", table[0], "", *spaced(table[1:])]
    print("\n".join(lines))
    if words.record:
        measuring.record(measuring.RESULTS, CONTESTS_ON[words.what][2], lines)
    return 0


def spaced(lines: Sequence[str]) -> list[str]:
    """Return the table, an empty line, and the notes below it."""
    rows = [line for line in lines if line.startswith("|")]
    return [*rows, "", *(line for line in lines if not line.startswith("|"))]


if __name__ == "__main__":
    measuring.run(main)
