"""The fast engine beside CTranslate2 itself, used by a plain script with SentencePiece.

    batch 1, batch 64    greedy search and beam 5, in this process; the peer at its best of several
                         numbers of workers and threads, found on the first lines
    shell                all lines by `polyhead translate`, and by a script of ten lines, each a new
                         process: wall time; and one sentence: processor time and memory

Both use int8 and the same weights, both read text and write text. Ours also splits the text into
sentences and ranks an n-best list by our length penalty. The bar is 0.9 times the peer. Bytecode is
cached, as it is after an installation, whatever $PYTHONDONTWRITEBYTECODE says.

    python benchmarks/fast_engine.py runs/demo --text schedules/test.ko

With --equality nothing is timed: the lines are translated by the engine in float32 and by torch,
with greedy search, beam 4 and beam 5 with several length penalties, and equal ones are counted.

    python benchmarks/fast_engine.py runs/demo --text schedules/test.ko --equality
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import ctranslate2
import measuring
import sentencepiece
from measuring import Contestant

from polyhead.checkpoint.model_files import resolve
from polyhead.convert.tokenizer_files import sentencepiece_model
from polyhead.data.locate import find
from polyhead.data.text_files import read_lines
from polyhead.engines.ctranslate2_model import convert
from polyhead.errors import ConfigError
from polyhead.pipelines.translator import FastTranslator, Translator
from polyhead.tokenizers.sentencepiece import SentencePieceTokenizer

BAR, SECONDS_BAR, MEMORY_BAR = 0.9, 0.5, 120_000
OURS, PEER = "polyhead", "CTranslate2"
SETTINGS = ((1, 1, 64), (1, 2, 64), (2, 1, 32), (2, 1, 16))  # workers, threads, rows of a batch
Setting = tuple[int, int, int]
SEARCHES = ((1, 0.6), (4, 0.6), (5, 0.0), (5, 0.6), (5, 1.0))  # beam, length penalty
N_TRIED = 128  # lines on which the peer's setting is chosen
PEER_SCRIPT = """
import sys
import ctranslate2, sentencepiece
folder, beam, workers, threads, rows = sys.argv[1], *map(int, sys.argv[2:])
spm = sentencepiece.SentencePieceProcessor(folder + "/sentencepiece.model")
translator = ctranslate2.Translator(folder, inter_threads=workers, intra_threads=threads)
lines = spm.encode(sys.stdin.read().splitlines(), out_type=str)
results = translator.translate_batch(lines, beam_size=beam, max_batch_size=rows)
for result in results:
    print(spm.decode(result.hypotheses[0]))
"""
STATUS = "import sys; from polyhead.cli.main import main; main(sys.argv[1:]); "
MEASURE = (
    "import time; print(time.process_time(), file=sys.stderr); "
    "print(open('/proc/self/status').read(), file=sys.stderr)"
)


def export(fast: Translator, folder: Path) -> None:
    """Write the model for the peer: int8, with a self-contained SentencePiece model."""
    tokenizers = fast.tokenizers
    joint = tokenizers.source
    if not isinstance(joint, SentencePieceTokenizer) or tokenizers.target is not joint:
        raise ConfigError("expected a model with one joint SentencePiece vocabulary")
    content = sentencepiece_model(joint)
    (folder / "sentencepiece.model").write_bytes(content)
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    names = [processor.id_to_piece(id) for id in range(len(processor))]
    convert(resolve(Path(fast.name)), folder, "int8", (names, names))


def peer_work(folder: Path, setting: Setting, beam: int, size: int) -> Callable[..., int]:
    """Return a function that translates lines with the peer, `size` at a time."""
    workers, threads, rows = setting
    translator: Any = ctranslate2.Translator(
        str(folder), inter_threads=workers, intra_threads=threads
    )
    processor = sentencepiece.SentencePieceProcessor(str(folder / "sentencepiece.model"))

    def work(lines: Sequence[str]) -> int:
        for at in range(0, len(lines), size):
            tokens = processor.encode(list(lines[at : at + size]), out_type=str)
            results = translator.translate_batch(tokens, beam_size=beam, max_batch_size=rows)
            processor.decode([result.hypotheses[0] for result in results])
        return len(lines)

    return work


def our_work(fast: Translator, beam: int, size: int) -> Callable[..., int]:
    """Return a function that translates lines with ours, `size` at a time."""
    options = replace(fast.defaults, beam=beam, n_best=1)

    def work(lines: Sequence[str]) -> int:
        for at in range(0, len(lines), size):
            fast.translate(lines[at : at + size], options=options)
        return len(lines)

    return work


def best_setting(folder: Path, lines: Sequence[str], beam: int, size: int) -> Setting:
    """Return the peer's fastest setting on the first lines, each tried twice."""
    seconds = {}
    for setting in SETTINGS:
        work = peer_work(folder, setting, beam, size)
        work(lines[:size])
        started = time.perf_counter()
        work(lines[:N_TRIED])
        work(lines[:N_TRIED])
        seconds[setting] = time.perf_counter() - started
    return min(seconds, key=lambda setting: seconds[setting])


def shell(command: Sequence[str], lines: Sequence[str]) -> str:
    """Run a command with lines on its standard input; return what it writes on stderr."""
    text = "".join(f"{line}\n" for line in lines)
    variables = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=True, env=variables
    )
    if len(done.stdout.splitlines()) != len(lines):
        raise ConfigError(f"{command[0]} wrote another number of lines")
    return done.stderr


def one_sentence(model: str, line: str, rounds: int) -> list[str]:
    """Return processor time and memory of one sentence from the shell."""
    seconds, memory = [], []
    for _ in range(rounds):
        stderr = shell([sys.executable, "-c", STATUS + MEASURE, "translate", model], [line])
        seconds.append(float(stderr.split("\n")[0]))
        memory.append(int(re.search(r"VmHWM:\s+(\d+)", stderr)[1]))  # type: ignore[index]
    used, peak = measuring.spread(seconds), max(memory)
    return [
        "One sentence from the shell, float32, a new process each time:",
        "",
        *measuring.table(
            ["", "measured", "bar"],
            [
                ["processor seconds", str(used), f"{SECONDS_BAR:g}: "
                 + ("reached" if used.median <= SECONDS_BAR else "MISSED")],
                ["memory in MB, the largest", f"{peak / 1000:.0f}", f"{MEMORY_BAR // 1000}: "
                 + ("reached" if peak <= MEMORY_BAR else "MISSED")],
            ],
        ),
    ]  # fmt: skip


def equality(model: str, lines: Sequence[str]) -> list[str]:
    """Return how many translations of the engine in float32 equal those of torch."""
    fast = FastTranslator(model, compute_type="float32")
    slow = Translator.from_dir(model, device="cpu")
    rows = []
    for beam, penalty in SEARCHES:
        options = replace(fast.defaults, beam=beam, n_best=1, length_penalty=penalty)
        pairs = zip(
            fast.translate(lines, options=options), slow.translate(lines, options=options),
            strict=True,
        )  # fmt: skip
        n_equal = sum(ours == theirs for ours, theirs in pairs)
        name = f"beam {beam}, length penalty {penalty:g}" if beam > 1 else "greedy"
        rows.append([name, f"{n_equal:,} equal of {len(lines):,}"])
    return ["Translations of the engine in float32 and of torch:", "",
            *measuring.table(["search", "equal"], rows)]  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Measure, print, and record if so wanted."""
    options = measuring.parser(__doc__)
    options.add_argument("model", help="model or run directory, one joint vocabulary")
    options.add_argument("--text", default="schedules/test.ko", help="file with a sentence a line")
    options.add_argument("--lines", type=int, default=1000, help="repeated if there are fewer")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--equality", action="store_true", help="compare with torch instead")
    options.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = options.parse_args(argv)
    measuring.require_rounds(words.rounds, words.record)
    report = measuring.environment("fast_engine.py", argv)
    given = [line for line in read_lines(find(words.text)) if line]
    if words.equality:
        print("\n".join([*report, "", *equality(words.model, given[: words.lines])]))
        return 0
    lines = (given * (words.lines // len(given) + 1))[: words.lines]
    fast = FastTranslator(words.model, compute_type="int8")
    with tempfile.TemporaryDirectory() as name:
        export(fast, Path(name))
        for size, beam in product((1, 64), (1, 5)):
            report += ["", *in_process(fast, Path(name), lines, size, beam, words.rounds)]
        report += ["", *from_shell(words, Path(name), lines)]
    report += ["", *one_sentence(words.model, lines[0], words.rounds)]
    print("\n".join(report))
    if words.record:
        measuring.record(measuring.RESULTS, f"Fast engine: {Path(words.model).name}", report)
    return 0


def in_process(
    fast: Translator, folder: Path, lines: Sequence[str], size: int, beam: int, rounds: int
) -> list[str]:
    """Return the table of both contestants for one size of batches and one beam."""
    lines = lines[: 256 if size == 1 else len(lines)]
    setting = best_setting(folder, lines, beam, size)
    ours, peer = our_work(fast, beam, size), peer_work(folder, setting, beam, size)
    contestants = [Contestant(OURS, lambda: ours(lines)), Contestant(PEER, lambda: peer(lines))]
    samples = measuring.interleave(contestants, rounds)
    workers, threads, rows = setting
    heading = (
        f"Batch {size}, beam {beam}; the peer with {workers} x {threads} threads, {rows} rows:"
    )
    ranking = measuring.ranking(samples, OURS, {PEER: BAR}, "sentences per second")
    return [heading, "", *ranking]


def from_shell(words: argparse.Namespace, folder: Path, lines: Sequence[str]) -> list[str]:
    """Return the table of all lines from the shell with beam 5."""
    setting = best_setting(folder, lines, 5, len(lines))
    ours = [sys.executable, "-m", "polyhead", "translate", words.model, "--beam", "5",
            "--compute-type", "int8"]  # fmt: skip
    peer = [sys.executable, "-c", PEER_SCRIPT, str(folder), "5", *map(str, setting)]

    def run(command: Sequence[str]) -> int:
        shell(command, lines)
        return len(lines)

    contestants = [Contestant(OURS, lambda: run(ours)), Contestant(PEER, lambda: run(peer))]
    samples = measuring.interleave(contestants, words.rounds)
    return [f"{len(lines):,} lines from the shell, beam 5:", "",
            *measuring.ranking(samples, OURS, {PEER: BAR}, "lines per second")]  # fmt: skip


if __name__ == "__main__":
    measuring.run(main)
