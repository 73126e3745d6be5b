"""Corpora larger than memory: time and memory by the number of sentence pairs.

    python benchmarks/scale.py                     # 100,000 and 1,000,000 pairs
    python benchmarks/scale.py 20000 --steps 20    # to try it
    python benchmarks/scale.py --large --record    # also 10,000,000; adds a section to RESULTS.md

The pairs are synthetic, of the length of Multi30k: about 13 words a side, drawn by Zipf's law. Each
run is a process of its own with an empty cache:

    store      first start: seconds until the encoded corpus is in the cache, with reading, holding
               out and training the tokenizer; and the part of it that is encoding
    memory     peak of the resident memory of the training process, less that of the same model
               on 2,000 pairs in memory
    second     another run with the same corpus and tokenizer: seconds until its first step
    resume     the first run again, in the middle of its epoch: seconds until its next step
    tokens     per second of training from the store, beside the same from memory

Encoding is compared with SentencePiece alone on the same lines, already normalised, in as many
processes. Lines are fitted to the sizes above one block of 2^20 pairs, if there are two (--large);
what they say of 50,000,000 pairs is marked.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import measuring
import numpy as np
from measuring import Contestant

from polyhead.data.corpus_store import BLOCK, n_processors, write_store
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import LineSpool
from polyhead.tokenizers.normalize import normalise
from polyhead.training.config import read_run
from polyhead.training.run_log import ProgressReporter
from polyhead.training.trainer import train

WORDS, MEAN_WORDS, CHUNK = 50_000, 13.0, 50_000
SIZES, LARGE, TARGET = (100_000, 1_000_000), (2_500_000, 10_000_000), 50_000_000
BASE = 2_000  # pairs that need hardly any memory
ENCODED = 200_000  # lines of the comparison with SentencePiece
OPTIONS = (
    "model.stack.n_layers=2", "model.stack.d_model=128", "model.stack.d_ff=512",
    "train.validate_every=1000000", "train.save_every=1000000", "train.bleu_sentences=0",
    "train.max_tokens=4096", "data.adapt=false",
)  # fmt: skip
COLUMNS = (
    "pairs", "store (s)", "encoding (s)", "memory (MB)", "second start (s)", "resume (s)",
    "tokens/s, store : memory",
)  # fmt: skip
FITTED = ("store", "encoding", "memory", "second", "resume")
ALONE = """
import sys, sentencepiece
processor = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
lines = open(sys.argv[2], encoding="utf-8", newline="\\n").read().split("\\n")[:-1]
for first in range(0, len(lines), 4096):
    processor.EncodeAsIds(lines[first : first + 4096], num_threads=1, add_eos=True)
"""


def write_pairs(folder: Path, n_pairs: int) -> None:
    """Write parallel files of invented words."""
    rng = np.random.default_rng(1)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    for side in ("source", "target"):
        lengths = rng.integers(2, 10, WORDS)
        words = np.array(["".join(rng.choice(letters, length)) for length in lengths])
        shares = 1 / np.arange(1, WORDS + 1)
        edges = np.cumsum(shares / shares.sum())
        with (folder / f"train.{side}").open("w", encoding="utf-8") as file:
            for first in range(0, n_pairs, CHUNK):
                counts = 1 + rng.poisson(MEAN_WORDS - 1, min(CHUNK, n_pairs - first))
                drawn = words[np.searchsorted(edges, rng.random(counts.sum()))].tolist()
                ends = counts.cumsum()
                for end, count in zip(ends.tolist(), counts.tolist(), strict=True):
                    file.write(" ".join(drawn[end - count : end]) + " .\n")


class Clock(ProgressReporter):
    """Seconds from the start to notices and steps, and the speed of the steps."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.events: dict[str, float] = {}
        self.times: list[float] = []
        self.tokens: list[int] = []

    def stage(self, text: str) -> None:
        self.events.setdefault(text.split(":")[0], time.perf_counter() - self.started)

    def notice(self, text: str) -> None:
        if text.startswith("encoded"):
            self.events["stored"] = time.perf_counter() - self.started

    def step(self, metrics: dict[str, Any]) -> None:
        self.times.append(time.perf_counter() - self.started)
        self.tokens.append(metrics["tokens"])


def child(folder: Path, run: str, store: str, steps: int) -> None:
    """Train, and print the times and the peak of memory as JSON; runs in a process of its own."""
    files = {side: [str(folder / f"train.{side}")] for side in ("source", "target")}
    options = (*OPTIONS, f'data.store="{store}"', f"train.steps={steps}")
    clock = Clock()
    train(read_run("small", options, files), folder / run, reporter=clock, accept_changes=True)
    half = len(clock.times) // 2
    speed = sum(clock.tokens[half:]) / (clock.times[-1] - clock.times[half - 1])
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    first = clock.times[0]
    print(json.dumps({"first": first, "speed": speed, "peak": megabytes, **clock.events}))


def start(folder: Path, run: str, store: str, steps: int) -> dict[str, float]:
    """Run `child` in a process and return what it measured."""
    command = [sys.executable, __file__, "--child", str(folder), run, store, "--steps", str(steps)]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(folder: Path, n_pairs: int, steps: int, rounds: int) -> dict[str, float]:
    """Return all figures of one size; `folder` keeps nothing afterwards but the first run."""
    place = folder / str(n_pairs)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    print(f"{n_pairs:,} pairs: writing the text")
    write_pairs(place, n_pairs)
    first = start(place, "first", "always", steps)
    print(f"{n_pairs:,} pairs: first step after {first['first']:.1f} s")
    resumed = start(place, "first", "always", 2 * steps)
    base = place / "base"
    base.mkdir()
    for side in ("source", "target"):
        with (place / f"train.{side}").open(encoding="utf-8") as file:
            lines = [next(file) for _ in range(min(BASE, n_pairs))]
        (base / f"train.{side}").write_text("".join(lines), encoding="utf-8")
    shutil.copytree(place / "first" / "tokenizer", base / "run" / "tokenizer")
    model = start(base, "run", "never", steps)
    figures = {
        "pairs": n_pairs,
        "store": first["stored"],
        "encoding": first["stored"] - first["encoding the text"],
        "memory": first["peak"] - model["peak"],
        "resume": resumed["first"],
    }
    seconds, ratios, speeds = [], [], []
    for number in range(rounds):
        speed = {}
        for store in ("always", "never") if number % 2 else ("never", "always"):
            run = f"{store}-{number}"
            shutil.copytree(place / "first" / "tokenizer", place / run / "tokenizer")
            result = start(place, run, store, steps)
            speed[store] = result["speed"]
            if store == "always":
                seconds.append(result["first"])
            shutil.rmtree(place / run)
        ratios.append(speed["always"] / speed["never"])
        speeds.append(speed["always"])
    figures |= {"second": median(seconds), "ratio": median(ratios), "speed": median(speeds)}
    return figures


def encoding_speed(folder: Path, n_pairs: int, rounds: int) -> list[str]:
    """Compare our encoding with SentencePiece's, in as many processes."""
    place, processes = folder / str(n_pairs), n_processors()
    tokenizer = place / "first" / "tokenizer"
    with (place / "train.source").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for _, line in zip(range(ENCODED), file, strict=False)]
    work = folder / "encoding"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    spool = LineSpool(work, 1)
    spool.write((line,) for line in lines)
    parts = [work / f"part-{number}" for number in range(processes)]
    for number, part in enumerate(parts):
        text = "".join(f"{normalise(line)}\n" for line in lines[number::processes])
        part.write_text(text, encoding="utf-8")

    def ours() -> int:
        stores = work / "stores"
        shutil.rmtree(stores, ignore_errors=True)
        stores.mkdir()
        form = StoreForm("running", 0)
        return write_store(stores, spool, tokenizer, form, processes=processes).n_lines

    def theirs() -> int:
        command = [sys.executable, "-c", ALONE, str(tokenizer / "joint.model")]
        children = [subprocess.Popen([*command, str(part)]) for part in parts]
        assert [process.wait() for process in children] == [0] * processes
        return len(lines)

    ours()
    contestants = [Contestant("Polyhead", ours), Contestant("SentencePiece", theirs)]
    samples = measuring.interleave(contestants, rounds)
    return measuring.ranking(samples, "Polyhead", {"SentencePiece": 0.8}, "lines per second")


def report(results: Sequence[dict[str, float]]) -> list[str]:
    """Return the table of all sizes, and what fitted lines say of the target."""
    rows = [
        [
            f"{figures['pairs']:,.0f}",
            *(
                f"{figures[name]:,.1f}"
                for name in ("store", "encoding", "memory", "second", "resume")
            ),
            f"{figures['speed']:,.0f} ({figures['ratio']:.3f})",
        ]
        for figures in results
    ]
    large = [figures for figures in results if figures["pairs"] > BLOCK]  # below, a plan grows
    if len(large) > 1:
        pairs = np.array([figures["pairs"] for figures in large])
        fitted = []
        for name in FITTED:
            slope, offset = np.polyfit(pairs, [figures[name] for figures in large], 1)
            fitted.append(f"{offset + slope * TARGET:,.0f}")
        rows.append([f"{TARGET:,} (extrapolated)", *fitted, ""])
    return measuring.table(COLUMNS, rows)


def main(arguments: Sequence[str]) -> int:
    """Measure all sizes, and print or record the table."""
    options = measuring.parser(__doc__)
    options.add_argument("sizes", type=int, nargs="*", help="numbers of pairs")
    options.add_argument("--large", action="store_true", help="also 2.5 and 10 million pairs")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", type=Path, default=Path("/tmp/polyhead-scale"))
    options.add_argument("--record", action="store_true", help="append to RESULTS.md")
    options.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    words = options.parse_args(arguments)
    if words.child:
        child(Path(words.child[0]), words.child[1], words.child[2], words.steps)
        return 0
    sizes = [*(words.sizes or SIZES), *(LARGE if words.large else ())]
    lines = [*measuring.environment("scale.py", arguments), ""]
    results = [measure(words.folder, size, words.steps, words.rounds) for size in sizes]
    lines += [*report(results), "", *encoding_speed(words.folder, sizes[-1], words.rounds)]
    print(*lines, sep="\n")
    if words.record:
        measuring.record(measuring.RESULTS, "Corpora larger than memory", lines)
    return 0


if __name__ == "__main__":
    measuring.run(main)
