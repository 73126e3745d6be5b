"""Long inputs: what LSH attention, local windows and reversible layers cost, and when they pay.

time       one attention layer, forward and back, from 512 to 65,536 tokens: LSH, local, dense
peers      LSH attention beside that of transformers and reformer-pytorch, at 8,192 tokens
memory     the peak of a training step by depth, reversible and not
document   one training step on one document of 262,144 tokens
short      the same parts on sentences, where they do not pay
language   a language model with a context of 2,048 tokens beside its dense twin, equal steps

Each is a file beside this one: `long_time.py`, `long_memory.py`, `long_language.py`.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import curves
import long_language
import long_memory
import long_time
import measuring
import peers_long

from polyhead.errors import ConfigError


class Mode(NamedTuple):
    """Measurement and the heading of its record."""

    measure: Callable[[argparse.Namespace], tuple[list[str], list[curves.Panel]]]
    heading: str
    help: str


MODES = {
    "time": Mode(long_time.time, "Long inputs: time", "by length, three kinds of attention"),
    "peers": Mode(long_time.peers, "Long inputs: LSH attention of others", "LSH beside others"),
    "memory": Mode(long_memory.memory, "Long inputs: memory by depth", "reversible and not"),
    "document": Mode(long_memory.document, "Long inputs: one document", "262,144 tokens"),
    "short": Mode(long_time.short, "Long inputs: short ones", "sentences, where it does not pay"),
    "language": Mode(long_language.language, "Long inputs: a language model", "beside its twin"),
}


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    commands = parser.add_subparsers(dest="mode", required=True)
    modes = {name: commands.add_parser(name, help=mode.help) for name, mode in MODES.items()}
    for name in ("time", "peers", "short"):
        modes[name].add_argument("--rounds", type=int, default=5)
    modes["time"].add_argument("--longest", type=int, default=long_time.LENGTHS[-1])
    modes["time"].add_argument(
        "--slow-rounds", type=int, default=3, help=f"beyond {long_time.SLOW:,} tokens"
    )
    modes["peers"].add_argument("--length", type=int, default=8192)
    names = list(peers_long.PEERS)
    modes["peers"].add_argument("--peers", nargs="+", choices=names, default=names)
    modes["document"].add_argument("--length", type=int, default=262_144)
    long_language.add_words(modes["language"])
    for mode in modes.values():
        mode.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
        measuring.add_threads(mode)
        mode.add_argument("--figure", type=Path, default=None, help="an .svg file")
        mode.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    if words.quick and words.record:
        raise ConfigError("--quick is for trying out; leave it or --record out")
    if words.figure is not None and words.figure.suffix != ".svg":
        raise ConfigError(f"--figure {words.figure}: expected a name in .svg")
    return words


def main(arguments: Sequence[str]) -> int:
    """Measure, print, draw, and record if asked to."""
    words = read_words(arguments)
    measuring.use_threads(words)
    mode = MODES[words.mode]
    where = measuring.environment("long.py", arguments)
    results, panels = mode.measure(words)
    lines = [*where, *results]
    print("\n".join(["", *lines]))
    recorded = measuring.FOLDER / f"long_{words.mode}.svg"
    figure = words.figure or (recorded if words.record else None)
    if figure is not None and panels:
        figure.write_text(curves.draw(panels), encoding="utf-8")
    if words.record:
        shown = ["", f"![{panels[0].title}]({recorded.name})"] if panels else []
        measuring.record(measuring.RESULTS, mode.heading, [*lines, *shown])
    return 0


if __name__ == "__main__":
    measuring.run(main)
