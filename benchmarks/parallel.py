"""Training in two processes of one thread beside one process with two threads.

    python benchmarks/parallel.py
    python benchmarks/parallel.py --record

    one process     updates of one batch of `max_tokens`, two threads
    exact, plain    updates of two batches of half of that, one in each of two processes; gradients
                    added in the order of a tree (`train.exact`, the default), or by all-reduce

All train the model of `polyhead demo` and take turns, a few updates each. The exact sum must give
the bits of one process that computes both batches. The time of an exchange gives the cost model

    seconds of an update on W processes = C K / W + 2 log2(W) L + 2 (W - 1) / W · N / B

C: seconds to compute one of K batches; N: bytes of all gradients; L, B: latency and bytes per
second of the network. Larger numbers of processes are computed by it, not measured.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import measuring
import torch
from measuring import Contestant
from threads import WEIGHTS, Worker, checksum, demo_training

from polyhead.data.batches.base import DataPosition
from polyhead.data.batches.translation import TranslationBatches
from polyhead.training.loop import Progress, train_loop
from polyhead.training.processes import Processes, Summed, join_processes

ONE, EXACT, PLAIN = "one process", "exact", "plain"
REFERENCE = "both batches in one process"
FASTER_BAR, EXACT_BAR = 1.0, 0.9
EXCHANGE = "exchange"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ETHERNET = {"1 Gbit/s, 0.1 ms": (125e6, 1e-4), "100 Gbit/s, 0.01 ms": (12.5e9, 1e-5)}


def start(kind: str, steps: int) -> Worker:
    """Start the process or processes of a contestant."""
    threads = "2" if kind == ONE else "1"
    program = TORCHRUN if kind in (EXACT, PLAIN) else ()
    command = [sys.executable, *program, __file__, "--worker", kind, "--steps", str(steps)]
    return Worker(command, {**os.environ, "OMP_NUM_THREADS": threads})


def work_on_demand(kind: str, steps: int) -> None:
    """Train for each line that the first process reads, and answer the number of tokens."""
    config, model, objective, adam, pairs = demo_training()
    n_batches = 1 if kind == ONE else 2
    config = replace(config, accumulate=n_batches, exact=kind != PLAIN)
    with join_processes() as processes:
        share = processes.share_of(n_batches)
        batches = TranslationBatches(*pairs, config.max_tokens // n_batches, 1)
        stream = batches.batches(DataPosition(), 0, n_batches, share)
        progress = Progress()
        while word := processes.from_first(read_word(processes)):
            before = progress.tokens
            if word == WEIGHTS:
                text = checksum(model)
            elif word == EXCHANGE:
                text = f"{exchange_seconds(model, processes)}"
            else:
                plan = replace(config, steps=progress.step + steps)
                updates = train_loop(
                    model, objective, stream, adam, lambda _: 1e-3, plan, progress, processes
                )
                for _ in updates:
                    pass
                text = str(progress.tokens - before)
            if processes.is_first:
                print(text, flush=True)


def read_word(processes: Processes) -> str:
    """Return the next line of stdin in the first process; empty at its end."""
    return sys.stdin.readline().strip() if processes.is_first else ""


def exchange_seconds(model: torch.nn.Module, processes: Processes) -> float:
    """Return the median time of adding up all gradients of the model."""
    parameters = list(model.parameters())
    seconds = []
    for _ in range(9):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        processes.gather(None)  # all start together
        started = time.perf_counter()
        processes.add_up(parameters, Summed(0.0, 1, 1))
        seconds.append(time.perf_counter() - started)
    for parameter in parameters:
        parameter.grad = None
    return median(seconds)


def estimates(compute: float, n_bytes: int) -> list[str]:
    """Return the speed-up on more processes by the cost model, as a table."""
    rows = []
    for world in (8, 64, 512):
        cells = [str(world)]
        for bandwidth, latency in ETHERNET.values():
            exchange = (
                2 * math.log2(world) * latency + 2 * (world - 1) / world * n_bytes / bandwidth
            )
            cells.append(f"{world * compute / (compute + exchange):.1f}")
        rows.append(cells)
    return measuring.table(["processes", *ETHERNET], rows)


def measure(workers: dict[str, Worker], rounds: int, steps: int) -> list[str]:
    """Return the speeds, the verdicts on the bars, and the estimates."""
    contestants = [Contestant(name, workers[name].work) for name in (ONE, EXACT, PLAIN)]
    samples = measuring.interleave(contestants, rounds)
    lines = measuring.ranking(samples, EXACT, {}, "real tokens per second, median (range)")
    for other, bar in ((ONE, FASTER_BAR), (PLAIN, EXACT_BAR)):
        ratio = measuring.spread(measuring.paired_ratios(samples[EXACT], samples[other]))
        lines += [
            "",
            f"{EXACT} / {other}: {ratio}, bar {bar:g}: {measuring.verdict(ratio.median, bar)}",
        ]
    n_bytes = 4 * sum(p.numel() for p in demo_training().model.parameters())
    exchange = float(workers[EXACT].answer(EXCHANGE))
    updates = [sample.seconds for sample in samples[EXACT]]
    compute = median(updates) / steps - exchange
    lines += [
        "",
        f"{n_bytes / 1e6:.1f} MB of gradients, added up in {1000 * exchange:.1f} ms; computing a "
        f"batch takes {1000 * compute:.0f} ms. Speed-up over one process by the cost model, one "
        "batch in each process (estimated, not measured):",
        "",
        *estimates(compute, n_bytes),
    ]
    return lines


def main(words: Sequence[str]) -> int:
    """Measure, print and record; 1 if the weights differ."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6, help="of each contestant in a round")
    parser.add_argument("--record", action="store_true", help="append a section to RESULTS.md")
    parser.add_argument("--worker", choices=[ONE, EXACT, PLAIN, REFERENCE], help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.worker:
        work_on_demand(options.worker, options.steps)
        return 0
    measuring.require_rounds(options.rounds, options.record)
    lines = [
        *measuring.environment("parallel.py", words),
        f"- {options.rounds} rounds, interleaved",
    ]
    workers = {name: start(name, options.steps) for name in (ONE, EXACT, PLAIN, REFERENCE)}
    lines += ["", *measure(workers, options.rounds, options.steps)]
    for _ in range(options.rounds):
        workers[REFERENCE].work()
    equal = workers[EXACT].answer(WEIGHTS) == workers[REFERENCE].answer(WEIGHTS)
    for worker in workers.values():
        worker.process.communicate()
    lines += ["", f"Weights of {EXACT} and of {REFERENCE}: {'equal' if equal else 'DIFFERENT'}."]
    print("\n".join(lines))
    if options.record:
        measuring.record(measuring.RESULTS, "Several processes", lines)
    return 0 if equal else 1


if __name__ == "__main__":
    measuring.run(main)
