"""The server under load, with both engines side by side: rates, waiting, overload, and memory.

    throughput   sentences a second for 1, 8 and 64 clients against the library called one by one,
                 in rounds that take turns; at 64 clients torch at least 3 times as many, and
                 CTranslate2 at least 3 times as many as torch
    waiting      requests that come at random at 70 % of the capacity that torch has with 64
                 clients: p99 at most 3 times the p50 of a lone client, and with CTranslate2 at
                 most a third of the p99 with torch
    overload     three times the capacity for a minute: only 200, 429 and 503, and two seconds later
                 a lone client is answered as before
    memory       after 100,000 requests at most 5 % more than after the first 2,000

Each server is one process, the clients are another (this one). One core is left to the clients of
torch; CTranslate2 uses all. Overload and memory are measured with the last engine.
Without --model the Korean to English model of `polyhead demo` is trained first and kept in --run.
"""

import argparse
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

import measuring
import torch
from measuring import Contestant
from serve_client import Load, Server, closed, opened, started

from polyhead.data.text_files import read_lines
from polyhead.errors import PolyheadError
from polyhead.pipelines.translator import Translator
from polyhead.training.config import read_run
from polyhead.training.trainer import train

RECIPE, TEXTS = "schedules-ko-en", "schedules/test.ko"
CLIENTS = (1, 8, 64)
LIBRARY = "library, one by one"
THROUGHPUT_BAR, WAITING_BAR, MEMORY_BAR, RECOVERY_SECONDS = 3.0, 3.0, 0.05, 2.0
ENGINE_BAR, PATIENCE_BAR = 3.0, 1 / 3  # of CTranslate2 against torch: rate, and p99 of the waits
ENGINES = {  # options of `polyhead serve`
    "torch": ("--engine", "torch"),
    "float32": ("--engine", "ctranslate2", "--compute-type", "float32"),
    "int8": ("--engine", "ctranslate2", "--compute-type", "int8"),
}
ALLOWED = {200, 429, 503}


def one_by_one(translator: Translator, texts: Sequence[str], beam: int) -> int:
    """Translate sentence by sentence, as a program without a server would."""
    options = translator.defaults.with_options({"beam": beam, "n_best": 1})
    for text in texts:
        translator.translate([text], options=options)
    return len(texts)


def ask_all(server: Server, texts: Sequence[str], clients: int, requests: int, beam: int) -> int:
    """Return a closed loop; everything must be answered."""
    results = closed(server, texts, clients, requests, beam)
    if set(results.statuses) != {200}:
        raise PolyheadError(f"{clients} clients: {dict(results.statuses)}; nothing was measured")
    return requests


def throughput(
    servers: Mapping[str, Server], translator: Translator, texts: Sequence[str],
    words: argparse.Namespace,
) -> tuple[list[str], dict[str, float]]:  # fmt: skip
    """Return a table of rates, and each server's requests a second with the most clients."""
    contestants = [
        Contestant(LIBRARY, partial(one_by_one, translator, texts[: words.single], words.beam))
    ]
    for clients in CLIENTS:
        requests = max(words.single, words.single * min(clients, 16))
        for engine, server in servers.items():
            work = partial(ask_all, server, texts, clients, requests, words.beam)
            contestants.append(Contestant(name_of(clients, engine), work))
    samples = measuring.interleave(contestants, words.rounds)
    first, *others = servers
    bars = {name_of(CLIENTS[-1], first): (LIBRARY, THROUGHPUT_BAR)} | {
        name_of(CLIENTS[-1], engine): (name_of(CLIENTS[-1], first), ENGINE_BAR) for engine in others
    }
    rows = []
    for name, results in samples.items():
        ratio = measuring.spread(measuring.paired_ratios(results, samples[LIBRARY]))
        peer, bar = bars.get(name, (LIBRARY, None))
        over = measuring.spread(measuring.paired_ratios(results, samples[peer]))
        shown = measuring.verdict(over.median, bar)
        against = "" if bar is None else f"{over} {peer}"
        rows.append([name, str(measuring.rates(results)), str(ratio), against, shown])
    columns = ["", "sentences a second", "times the library one by one", "times", "bar"]
    capacities = {e: measuring.rates(samples[name_of(CLIENTS[-1], e)]).median for e in servers}
    return measuring.table(columns, rows), capacities


def name_of(clients: int, engine: str) -> str:
    """In words."""
    return f"{engine}, {clients} client{'s' if clients > 1 else ''}"


def waiting(
    servers: Mapping[str, Server], texts: Sequence[str], capacity: float, words: argparse.Namespace
) -> list[str]:
    """Measure the latency of a single client, and at shares of the capacity of the first engine."""
    rows, first = [], next(iter(servers))
    alone = {e: closed(server, texts, 1, words.single, words.beam) for e, server in servers.items()}
    for engine, load in alone.items():
        rows.append(_waiting_row(f"{engine}, a lone client", [load], load))
    for share in (0.3, 0.5, 0.7):
        loads: dict[str, list[Load]] = {engine: [] for engine in servers}
        for _ in range(words.rounds if share == 0.7 else 1):
            for engine, server in servers.items():  # they take turns
                load = opened(server, texts, share * capacity, words.seconds, words.beam)
                loads[engine].append(load)
        for engine, results in loads.items():
            row = _waiting_row(f"{engine}, {share:.0%} of the capacity", results, alone[engine])
            if share == 0.7:
                ratio = _p99(results) / alone[engine].quantile(0.5)
                row[-1] = f"{WAITING_BAR:g}: {'kept' if ratio <= WAITING_BAR else 'MISSED'}"
            if share == 0.7 and engine != first:
                pairs = zip(results, loads[first], strict=True)
                less = measuring.spread([a.quantile(0.99) / b.quantile(0.99) for a, b in pairs])
                kept = "kept" if less.median <= PATIENCE_BAR else "MISSED"
                row[-1] += f"; p99 {less} of that of {first}, {PATIENCE_BAR:.2f}: {kept}"
            rows.append(row)
    columns = ["", "a second", "statuses", "p50", "p99", "p99 / p50 of a lone client", "bar"]
    return measuring.table(columns, rows)


def _p99(loads: Sequence[Load]) -> float:
    return median(load.quantile(0.99) for load in loads)


def _waiting_row(name: str, loads: Sequence[Load], alone: Load) -> list[str]:
    """Return the medians over the rounds, without a bar."""
    statuses = sum((load.statuses for load in loads), Counter[int]())
    return [
        name, f"{median(load.rate for load in loads):.1f}", _statuses(statuses),
        _ms(median(load.quantile(0.5) for load in loads)), _ms(_p99(loads)),
        f"{_p99(loads) / alone.quantile(0.5):.2f}", "none",
    ]  # fmt: skip


def overload(
    server: Server, texts: Sequence[str], capacity: float, words: argparse.Namespace
) -> list[str]:
    """Three times too much, and then nothing."""
    before = closed(server, texts, 1, words.single, words.beam).quantile(0.5)
    results = opened(server, texts, 3 * capacity, words.overload, words.beam)
    time.sleep(RECOVERY_SECONDS)
    after = closed(server, texts, 1, words.single, words.beam)
    only = set(results.statuses) <= ALLOWED
    recovered = set(after.statuses) == {200} and after.quantile(0.5) < 2 * before
    rows = [
        [
            "answers",
            _statuses(results.statuses),
            f"only 200, 429, 503: {'kept' if only else 'MISSED'}",
        ],
        ["answered a second", f"{results.rate:.1f} of {capacity:.1f}", "none"],
        ["p99 of what was accepted", _ms(results.quantile(0.99)), "none"],
        [
            "a lone client, p50 before and 2 s after",
            f"{_ms(before)}, {_ms(after.quantile(0.5))}",
            f"less than twice: {'kept' if recovered else 'MISSED'}",
        ],
    ]
    return measuring.table(["overload, three times the capacity", "", "bar"], rows)


def memory(server: Server, texts: Sequence[str], words: argparse.Namespace) -> list[str]:
    """Resident memory after a few requests and after many."""
    short = sorted(texts, key=len)[: max(1, len(texts) // 10)]
    first = min(2000, words.requests // 10)
    ask_all(server, short, CLIENTS[-1], first, 1)
    before = server.memory()
    ask_all(server, short, CLIENTS[-1], words.requests - first, 1)
    growth = server.memory() / before - 1
    shown = f"{MEMORY_BAR:.0%}: {'kept' if growth <= MEMORY_BAR else 'MISSED'}"
    sizes = f"{before / 1024:.0f} MB, {server.memory() / 1024:.0f} MB"
    name = f"memory after {first:,} and {words.requests:,} requests"
    return measuring.table([name, "growth", "bar"], [[sizes, f"{growth:+.1%}", shown]])


def _statuses(statuses: Counter[int]) -> str:
    return ", ".join(f"{status}: {n:,}" for status, n in sorted(statuses.items()))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.{1 if seconds < 0.1 else 0}f} ms"


def trained(words: argparse.Namespace) -> Path:
    """Return the model that was named, or the demo's."""
    if words.model is not None:
        return Path(words.model)
    quick = ("train.epochs=0.2", "train.validate_every=20") if words.quick else ()
    print(f"training the demo's model in {words.run}, or resuming it")
    train(read_run(RECIPE, quick), words.run)
    return Path(words.run)


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--model", type=Path, default=None, help="a translator")
    parser.add_argument("--run", type=Path, default=Path("runs/benchmark-serve"))
    parser.add_argument("--source", type=Path, default=Path(TEXTS), help="sentences to translate")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument(
        "--engines", nargs="+", choices=list(ENGINES), default=["torch", "float32", "int8"],
        help="float32 and int8 are CTranslate2; the others are compared with the first",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=0, help="of the models; 0 as the server")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--single", type=int, default=100, help="sentences one by one")
    parser.add_argument("--seconds", type=float, default=60, help="of each load")
    parser.add_argument("--overload", type=float, default=60, help="seconds")
    parser.add_argument("--requests", type=int, default=100_000, help="for the memory; 0 for none")
    parser.add_argument("--quick", action="store_true", help="only to see that it works")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    if words.quick:
        words.rounds, words.single, words.seconds, words.overload = 1, 8, 1.0, 1.0
        words.requests = min(words.requests, 400)
    return words


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and record if asked to."""
    words = read_words(arguments)
    measuring.require_rounds(words.rounds, words.record)
    torch.set_num_threads(words.threads or max(1, measuring.cores() - 1))
    threads = ("--threads", str(words.threads))
    where = measuring.environment("serve.py", arguments)
    place = trained(words)
    translator = Translator.from_dir(place, device="cpu")
    texts = [line for line in read_lines(words.source) if line.strip()]
    with ExitStack() as stack:
        servers = {
            engine: stack.enter_context(started(place, *ENGINES[engine], *threads))
            for engine in words.engines
        }
        for server in servers.values():
            ask_all(server, texts, 8, 8 * min(len(texts), 8), words.beam)  # warm up
        rates, capacities = throughput(servers, translator, texts, words)
        waits = waiting(servers, texts, next(iter(capacities.values())), words)
        over = overload(server, texts, capacities[words.engines[-1]], words)
        grown = memory(server, texts, words) if words.requests else []
        codes = [server.stop() for server in servers.values()]
    if any(codes):
        raise PolyheadError(f"the servers ended with exit codes {codes}; 0 was expected")
    report = [
        *where,
        f"- {words.rounds} rounds, interleaved; beam {words.beam}; --threads {words.threads}; "
        f"{len(texts):,} sentences of {words.source}",
        "",
        *rates, "", *waits, "", *over, "", *grown,
    ]  # fmt: skip
    print("\n".join(["", *report]))
    if words.record:
        measuring.record(measuring.RESULTS, "The server under load", report)
    return 0


if __name__ == "__main__":
    measuring.run(main)
