"""Long inputs against the clock: three kinds of attention by length, LSH beside peers, sentences.

Contestants take turns in one process (`measuring.py`). Dense attention is PyTorch's fused kernel,
which keeps no n x n either, and leaves out the future. Every layer has its own projections: four
for dense and local attention, three for LSH attention, whose queries are its keys.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import curves
import measuring
import peers_long
import torch
from measuring import Contestant, Sample, Spread
from peers_long import Layer, Ours
from torch import Tensor

from polyhead.devices import keep_freed_memory
from polyhead.layers.attention import FullAttention
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention, LSHConfig
from polyhead.layers.transformer_stack import StackConfig, TransformerStack

D_MODEL, N_HEADS, CHUNK, ROUNDS, WINDOW = 256, 4, 64, 2, 128
LENGTHS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
QUICK = (128, 256)
SLOW = 8192  # beyond it, dense attention takes so long that there are fewer rounds
GROWS_FROM = 4096
RATIO_BARS: dict[int, tuple[float, ...]] = {8192: (1.0,), 32_768: (5.0,), 65_536: (15.0,)}
GROWTH_BAR, PEER_BAR = 1.3, 1.5
SENTENCES, SHORT_TOKENS = (32, 64, 128), 4096

Found = tuple[list[str], list[curves.Panel]]


@dataclass(frozen=True)
class Comparison:
    """Several contestants at one length, taking turns."""

    samples: dict[str, list[Sample]]

    def seconds(self, name: str) -> float:
        """Return the median time of one token."""
        return median(1 / sample.rate for sample in self.samples[name])

    def ratio(self, name: str, other: str) -> Spread:
        """Return the speed relative to another system."""
        return measuring.spread(measuring.paired_ratios(self.samples[name], self.samples[other]))


def kinds() -> dict[str, Layer]:
    """One layer of each kind."""
    torch.manual_seed(1)
    return {
        "LSH": Ours(D_MODEL, N_HEADS, LSHAttention(CHUNK, ROUNDS)),
        "local": Ours(D_MODEL, N_HEADS, LocalAttention(WINDOW)),
        "dense": Ours(D_MODEL, N_HEADS, FullAttention()),
    }


def there_and_back(layer: Layer, x: Tensor, times: int = 1) -> Callable[[], int]:
    """Forward and backward, once or several times; the units are tokens."""

    def work() -> int:
        for _ in range(times):
            layer(x).sum().backward()
            x.grad = None
        return times * x.size(0) * x.size(1)

    return work


def take_turns(
    work: dict[str, Callable[[], int]], rounds: int, cold: Sequence[str] = ()
) -> Comparison:
    """Return some rounds, after one that does not count, for which some have no time."""
    for name, item in work.items():
        if name not in cold:
            item()
    contestants = [Contestant(name, item) for name, item in work.items()]
    return Comparison(measuring.interleave(contestants, rounds, tell=lambda _: None))


def one_sequence(length: int, batch: int = 1) -> Tensor:
    """Random vectors that want a gradient."""
    return torch.randn(batch, length, D_MODEL, requires_grad=True)


def time(words: argparse.Namespace) -> Found:
    """LSH, local and dense attention by length, and how LSH attention grows."""
    measuring.require_rounds(words.rounds, words.record)
    keep_freed_memory()
    lengths = QUICK if words.quick else tuple(n for n in LENGTHS if n <= words.longest)
    layers, results = kinds(), {}
    for n in lengths:
        slow = n > SLOW
        work = {name: there_and_back(layer, one_sequence(n)) for name, layer in layers.items()}
        rounds = words.slow_rounds if slow else words.rounds
        results[n] = take_turns(work, rounds, cold=["dense"] if slow else [])
        print(measuring.table_row(row_of(n, results[n])))
    lines = [
        f"- {words.rounds} rounds, interleaved, {words.slow_rounds} beyond {SLOW:,} tokens; "
        "medians, and ratios within a round; the memory allocator keeps freed memory, for all",
        "",
        f"One layer, d_model {D_MODEL}, {N_HEADS} heads, one sequence, causal, forward and back. "
        f"LSH has {ROUNDS} rounds and chunks of {CHUNK}, local attention a window of {WINDOW}.",
        "",
        *measuring.table(
            ["tokens", *(f"{name}, µs per token" for name in layers),
             "LSH: times as fast as dense", "local: times as fast as dense"],
            [row_of(n, item) for n, item in results.items()],
        ),
        "",
        *verdicts(results, grow([n for n in lengths if n >= GROWS_FROM] or lengths, words.rounds)),
    ]  # fmt: skip
    by_name = {
        name: [(n, 1e6 * item.seconds(name)) for n, item in results.items()] for name in layers
    }
    title = "microseconds per token, forward and back"
    return lines, [curves.Panel(title, "tokens", by_name, logarithmic=True, logarithmic_x=True)]


def row_of(n: int, item: Comparison) -> list[str]:
    """Return a length, microseconds per token of everyone, and two ratios."""
    times = [f"{1e6 * item.seconds(name):.2f}" for name in item.samples]
    return [f"{n:,}", *times, str(item.ratio("LSH", "dense")), str(item.ratio("local", "dense"))]


def grow(lengths: Sequence[int], rounds: int) -> Comparison:
    """LSH attention at several lengths, with the same number of tokens in every turn."""
    layer, most = kinds()["LSH"], max(lengths)
    work = {f"{n:,}": there_and_back(layer, one_sequence(n), most // n) for n in lengths}
    return take_turns(work, rounds)


def verdicts(results: dict[int, Comparison], grown: Comparison) -> list[str]:
    """Growth, crossovers, and ratios where there are bars for them."""
    lengths = list(grown.samples)
    first, last = lengths[0], lengths[-1]
    growth = grown.ratio(first, last)
    text = "reached" if growth.median < GROWTH_BAR else "MISSED"
    lines = [
        f"- LSH, time per token from {first} to {last} tokens, the same number of tokens in every "
        f"turn: grows {growth} times (bar: less than {GROWTH_BAR:g}: {text})"
    ]
    for name in ("LSH", "local"):
        start = crossover(results, name)
        since = "at none of these lengths" if start is None else f"from {start:,} tokens on"
        lines.append(f"- {name} is faster than dense {since}")
    for n, bars in RATIO_BARS.items():
        if n in results:
            ratio = results[n].ratio("LSH", "dense")
            text = ", ".join(measuring.verdict(ratio.median, bar) for bar in bars)
            lines.append(f"- at {n:,} tokens LSH is {ratio} times as fast as dense ({text})")
    return lines


def crossover(results: dict[int, Comparison], name: str) -> int | None:
    """Return the length from which on this kind is always faster than dense attention."""
    start = None
    for n in sorted(results, reverse=True):
        if results[n].ratio(name, "dense").median <= 1:
            break
        start = n
    return start


def peers(words: argparse.Namespace) -> Found:
    """LSH attention of three, with the same weights."""
    measuring.require_rounds(words.rounds, words.record)
    for name in words.peers:
        peers_long.require(name)
    keep_freed_memory()
    length = QUICK[-1] if words.quick else words.length
    torch.manual_seed(1)
    ours = peers_long.without_biases(Ours(D_MODEL, N_HEADS, LSHAttention(CHUNK, ROUNDS)))
    layers: dict[str, Layer] = {"polyhead": ours}
    for name in words.peers:
        layers[name] = peers_long.PEERS[name](ours, length)
    x = one_sequence(length)
    results = take_turns({name: there_and_back(layer, x) for name, layer in layers.items()},
                       words.rounds)  # fmt: skip
    bars = dict.fromkeys(words.peers, PEER_BAR)
    return [
        f"- {words.rounds} rounds, interleaved; the memory allocator keeps freed memory, for all",
        "",
        f"{length:,} tokens, d_model {D_MODEL}, {N_HEADS} heads, chunks of {CHUNK}, {ROUNDS} "
        "rounds, causal, forward and back.",
        "",
        *measuring.ranking(results.samples, "polyhead", bars, "tokens per second"),
    ], []


def parts(n_layers: int) -> dict[str, StackConfig]:
    """Return encoders of equal size: an ordinary one, and those for long inputs."""
    plain = StackConfig(n_layers, D_MODEL, N_HEADS, 4 * D_MODEL, dropout=0.0, norm="pre")
    return {
        "full": plain,
        "local": replace(plain, attention="local", window=16),
        "LSH": replace(plain, attention="lsh", lsh=LSHConfig(CHUNK // 2, ROUNDS)),
        "full, reversible": replace(plain, reversible=True),
    }


def short(words: argparse.Namespace) -> Found:
    """Return the parts for long inputs on sentences."""
    measuring.require_rounds(words.rounds, words.record)
    keep_freed_memory()
    torch.manual_seed(1)
    tokens = 256 if words.quick else SHORT_TOKENS
    stacks = {name: TransformerStack(config) for name, config in parts(2).items()}
    rows = []
    for n in SENTENCES:
        x = one_sequence(n, tokens // n)
        work = {name: there_and_back(stack, x) for name, stack in stacks.items()}
        item = take_turns(work, words.rounds)
        others = [str(item.ratio(name, "full")) for name in stacks if name != "full"]
        rows.append([str(n), f"{1e6 * item.seconds('full'):.1f}", *others])
        print(measuring.table_row(rows[-1]))
    names = [f"{name}: times as fast" for name in stacks if name != "full"]
    return [
        f"- {words.rounds} rounds, interleaved; ratios within a round",
        "",
        f"Two encoder layers, d_model {D_MODEL}, forward and back, {tokens:,} tokens in sentences "
        f"of equal length. Local: 16 positions to each side; LSH: {ROUNDS} rounds, chunks of "
        f"{CHUNK // 2}. Below 1 is slower than full attention.",
        "",
        *measuring.table(["length of a sentence", "full, µs per token", *names], rows),
    ], []
