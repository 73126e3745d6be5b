"""Corpora larger than memory: time and memory by the number of sentence pairs.

    python benchmarks/scale.py                     # 100,000 and 1,000,000 pairs
    python benchmarks/scale.py 20000 --steps 20    # to try it
    python benchmarks/scale.py --large --record    # also 10,000,000 pairs and 5 GB of plain text;
                                                   # adds a section to RESULTS.md and scale.svg

The pairs are synthetic, of the length of Multi30k: about 13 words a side, drawn by Zipf's law. Each
run is a process of its own with an empty cache:

    store      first start: seconds until the encoded corpus is in the cache, with reading, holding
               out and training the tokenizer; and the part of it that is encoding
    memory     peak of the resident memory of the training process, less that of the same model
               on 2,000 pairs in memory
    second     another run with the same corpus and tokenizer: seconds until its first step
    resume     the first run again, in the middle of its epoch: seconds until its next step
    tokens     per second of training from the store, beside the same from memory (sizes up to
               1,000,000 pairs)

Plain text (--text GIGABYTES) is measured the same way with the recipe gpt-tiny.

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

import curves
import measuring
import numpy as np
from measuring import Contestant

from polyhead.data.corpus_store import BLOCK, n_processors, write_store
from polyhead.data.line_encoder import StoreForm
from polyhead.data.line_spool import LineSpool
from polyhead.tokenizers.normalize import normalise
from polyhead.training.callbacks import Callback, TrainingStep
from polyhead.training.config import read_run
from polyhead.training.trainer import train

WORDS, MEAN_WORDS, CHUNK = 50_000, 13.0, 50_000
SIZES, LARGE, TARGET = (100_000, 1_000_000), (2_500_000, 10_000_000), 50_000_000
COMPARED = 1_000_000  # pairs at most that are also trained on from memory
TEXT = 5.0  # GB of plain text with --large
FIGURE = measuring.FOLDER / "scale.svg"
BASE = 2_000  # lines that need hardly any memory
ENCODED = 200_000  # lines of the comparison with SentencePiece
OPTIONS = (
    "model.stack.n_layers=2", "model.stack.d_model=128", "model.stack.d_ff=512",
    "train.validate_every=1000000", "train.save_every=1000000", "train.bleu_sentences=0",
    "train.max_tokens=4096",
)  # fmt: skip
FILES = {"small": ("source", "target"), "gpt-tiny": ("text",)}  # of the recipes
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


def write_text(folder: Path, gigabytes: float) -> None:
    """Write plain text: lines of invented words, drawn from 200,000 different ones."""
    pool = folder / "pool"
    pool.mkdir()
    write_pairs(pool, 200_000)
    lines = (pool / "train.source").read_text(encoding="utf-8").splitlines(keepends=True)
    shutil.rmtree(pool)
    rng, written = np.random.default_rng(2), 0
    with (folder / "train.text").open("w", encoding="utf-8") as file:
        while written < gigabytes * 1e9:
            chunk = "".join([lines[i] for i in rng.integers(0, len(lines), CHUNK).tolist()])
            written += file.write(chunk)


class Clock(Callback):
    """Seconds from the start to notices and steps, and the speed of the steps."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.events: dict[str, float] = {}
        self.times: list[float] = []
        self.tokens: list[int] = []

    def on_stage(self, text: str) -> None:
        self.events.setdefault(text.split(":")[0], time.perf_counter() - self.started)

    def on_notice(self, text: str) -> None:
        if text.startswith("encoded"):
            self.events["stored"] = time.perf_counter() - self.started

    def on_step(self, step: TrainingStep) -> None:
        self.times.append(time.perf_counter() - self.started)
        self.tokens.append(step.tokens)


def child(folder: Path, recipe: str, run: str, store: str, steps: int) -> None:
    """Train, and print the times and the peak of memory as JSON; runs in a process of its own."""
    files = {side: [str(folder / f"train.{side}")] for side in FILES[recipe]}
    options = (*OPTIONS, f'data.store="{store}"', f"train.steps={steps}")
    clock = Clock()
    train(read_run(recipe, options, files), folder / run, callbacks=[clock], accept_changes=True)
    half = len(clock.times) // 2
    speed = (clock.tokens[-1] - clock.tokens[half - 1]) / (clock.times[-1] - clock.times[half - 1])
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    first = clock.times[0]
    print(json.dumps({"first": first, "speed": speed, "peak": megabytes, **clock.events}))


class Place:
    """A directory with a corpus and runs on it, each a process of its own."""

    def __init__(self, folder: Path, recipe: str, steps: int) -> None:
        self.folder, self.recipe, self.steps = folder, recipe, steps

    def start(self, run: str, store: str, steps: int) -> dict[str, float]:
        """Run `child` in a process and return what it measured."""
        words = ["--child", str(self.folder), self.recipe, run, store, "--steps", str(steps)]
        done = subprocess.run(
            [sys.executable, __file__, *words],
            env=os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache")},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def again(self, run: str, store: str) -> dict[str, float]:
        """Train another run with the tokenizer of the first, and remove it."""
        shutil.copytree(self.folder / "first" / "tokenizer", self.folder / run / "tokenizer")
        result = self.start(run, store, self.steps)
        shutil.rmtree(self.folder / run)
        return result

    def peak_of_model(self) -> float:
        """Return the memory of the same training on a few lines in memory."""
        base = Place(self.folder / "base", self.recipe, self.steps)
        base.folder.mkdir()
        for side in FILES[self.recipe]:
            with (self.folder / f"train.{side}").open(encoding="utf-8") as file:
                lines = [line for _, line in zip(range(BASE), file, strict=False)]
            (base.folder / f"train.{side}").write_text("".join(lines), encoding="utf-8")
        shutil.copytree(self.folder / "first" / "tokenizer", base.folder / "run" / "tokenizer")
        return base.start("run", "never", self.steps)["peak"]

    def measure(self, rounds: int, *, compared: bool) -> dict[str, float]:
        """Return all figures but the size; `compared`: also with training from memory."""
        first = self.start("first", "always", self.steps)
        print(f"{self.folder.name}: first step after {first['first']:.1f} s", flush=True)
        figures = {
            "store": first["stored"],
            "encoding": first["stored"] - first["encoding the text"],
            "resume": self.start("first", "always", 2 * self.steps)["first"],
            "memory": first["peak"] - self.peak_of_model(),
        }
        stored, ratios = [], []
        for number in range(rounds):
            order = ("always", "never") if number % 2 else ("never", "always")
            results = {
                store: self.again(f"{store}-{number}", store)
                for store in order
                if compared or store == "always"
            }
            stored.append(results["always"])
            if compared:
                ratios.append(results["always"]["speed"] / results["never"]["speed"])
        figures["second"] = median(result["first"] for result in stored)
        figures["speed"] = median(result["speed"] for result in stored)
        return figures | ({"ratio": median(ratios)} if compared else {})


def measure(folder: Path, n_pairs: int, steps: int, rounds: int) -> dict[str, float]:
    """Return all figures of a number of pairs; `folder` keeps the corpus and the first run."""
    place = folder / f"{n_pairs} pairs"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    print(f"{n_pairs:,} pairs: writing the text", flush=True)
    write_pairs(place, n_pairs)
    figures = Place(place, "small", steps).measure(rounds, compared=n_pairs <= COMPARED)
    shutil.rmtree(place / "cache")
    return {"pairs": n_pairs} | figures


def measure_text(folder: Path, gigabytes: float, steps: int, rounds: int) -> list[str]:
    """Return the table of training a GPT on plain text."""
    place = folder / f"{gigabytes:g} GB"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    write_text(place, gigabytes)
    figures = Place(place, "gpt-tiny", steps).measure(rounds, compared=False)
    shutil.rmtree(place)
    return measuring.table(
        ["plain text", *COLUMNS[1:-1], "tokens/s"], [[f"{gigabytes:g} GB", *cells(figures)]]
    )


def encoding_speed(folder: Path, n_pairs: int, rounds: int) -> list[str]:
    """Compare our encoding with SentencePiece's, in as many processes."""
    place, processes = folder / f"{n_pairs} pairs", n_processors()
    tokenizer = place / "first" / "tokenizer"
    with (place / "train.source").open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for _, line in zip(range(ENCODED), file, strict=False)]
    work = folder / "encoding"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    spool = LineSpool(1, work)
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
        return write_store(stores, spool, tokenizer, form, processes=processes)[0].n_lines

    def theirs() -> int:
        command = [sys.executable, "-c", ALONE, str(tokenizer / "joint.model")]
        children = [subprocess.Popen([*command, str(part)]) for part in parts]
        assert [process.wait() for process in children] == [0] * processes
        return len(lines)

    ours()
    contestants = [Contestant("Polyhead", ours), Contestant("SentencePiece", theirs)]
    samples = measuring.interleave(contestants, rounds)
    return measuring.ranking(samples, "Polyhead", {"SentencePiece": 0.8}, "lines per second")


def cells(figures: dict[str, float]) -> list[str]:
    """Return the cells of a row but the first."""
    ratio = f" ({figures['ratio']:.3f})" if "ratio" in figures else ""
    return [*(f"{figures[name]:,.1f}" for name in FITTED), f"{figures['speed']:,.0f}{ratio}"]


def report(results: Sequence[dict[str, float]]) -> list[str]:
    """Return the table of all sizes, and what fitted lines say of the target."""
    rows = [[f"{figures['pairs']:,.0f}", *cells(figures)] for figures in results]
    large = [figures for figures in results if figures["pairs"] > BLOCK]  # below, a plan grows
    if len(large) > 1:
        pairs = np.array([figures["pairs"] for figures in large])
        fitted = []
        for name in FITTED:
            slope, offset = np.polyfit(pairs, [figures[name] for figures in large], 1)
            fitted.append(f"{offset + slope * TARGET:,.1f}")
        rows.append([f"{TARGET:,} (extrapolated)", *fitted, ""])
    return measuring.table(COLUMNS, rows)


def draw(results: Sequence[dict[str, float]]) -> str:
    """Draw seconds and memory over the number of pairs."""

    def panel(title: str, names: Sequence[str]) -> curves.Panel:
        lines = {name: [(f["pairs"], max(f[name], 0.01)) for f in results] for name in names}
        return curves.Panel(title, "pairs", lines, logarithmic=True, logarithmic_x=True)

    seconds = panel("seconds", ("store", "encoding", "second", "resume"))
    memory = panel("MB above the model", ("memory",))
    return curves.draw([seconds, memory], "Corpora larger than memory")


def main(arguments: Sequence[str]) -> int:
    """Measure all sizes, and print or record the table."""
    options = measuring.parser(__doc__)
    options.add_argument("sizes", type=int, nargs="*", help="numbers of pairs")
    options.add_argument(
        "--large", action="store_true", help="also 2.5 and 10 million pairs, and text"
    )
    options.add_argument("--text", type=float, default=0.0, help="gigabytes of plain text")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--folder", type=Path, default=Path("/tmp/polyhead-scale"))
    options.add_argument("--record", action="store_true", help="append to RESULTS.md")
    options.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    words = options.parse_args(arguments)
    if words.child:
        place, *names = words.child
        child(Path(place), *names, steps=words.steps)
        return 0
    sizes = [*(words.sizes or SIZES), *(LARGE if words.large else ())]
    lines = [*measuring.environment("scale.py", arguments), ""]
    results = [measure(words.folder, size, words.steps, words.rounds) for size in sizes]
    lines += [*report(results), "", *encoding_speed(words.folder, sizes[-1], words.rounds)]
    if gigabytes := words.text or TEXT * words.large:
        lines += ["", *measure_text(words.folder, gigabytes, words.steps, words.rounds)]
    print(*lines, sep="\n")
    if words.record:
        FIGURE.write_text(draw(results), encoding="utf-8")
        measuring.record(measuring.RESULTS, "Corpora larger than memory", lines)
    return 0


if __name__ == "__main__":
    measuring.run(main)
