"""Table 1 of "Attention Is All You Need", measured: time, memory, steps and paths of four layers.

    self-attention            n² d      as printed, and by the fused kernel, which keeps no n x n
    recurrent                 n d²      torch's nn.RNN
    convolution               k n d²    three neighbours, contiguous and dilated
    restricted attention      r n d     everyone sees 16 positions on either side

Every layer goes forward and back for several lengths n and widths d, all layers of one size one
after the other in every round. A line through the logarithms of the largest sizes has the exponent
for its slope. Steps are the longest chain of operations that wait for each other, found in the
graph of the gradients; a path is how many layers it takes until the last position's gradient
reaches the first.
"""

import argparse
import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import curves
import measuring
import torch
from measuring import Contestant
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from polyhead.cost.complexity import (
    Layer,
    fit,
    layers_until_reached,
    sequential_steps,
)
from polyhead.layers.attention import FullAttention, attention
from polyhead.layers.local_attention import LocalAttention
from polyhead.render.svg import rasterize

KERNEL, WINDOW = 3, 16
LONGER = 8
LARGER = 3  # points at the end of a curve that decide its exponent
PATH_WIDTH = 4
FIGURE = measuring.FOLDER / "complexity.svg"


class Sizes(NamedTuple):
    """Sizes to measure: lengths at one width, widths at one length, and lengths for the paths.

    Those for the paths are all longer than a block of restricted attention, which takes fewer steps
    where there is only one.
    """

    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    at_width: int = 64
    widths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    at_length: int = 512
    paths: tuple[int, ...] = (40, 80, 160, 320)


QUICK = Sizes((32, 64, 128), 16, (16, 32, 64), 32, (40, 80))


class Theory(NamedTuple):
    """Exponents of Table 1; None where it has none."""

    n: int
    d: int
    steps: int
    path: int | None  # None is logarithmic


class One(NamedTuple):
    """One kind of layer: `make(d, number)` builds the number-th of a stack.

    Layers that are cheap even when n is large are measured at `longer` times the lengths: where all
    takes a millisecond, calling costs more than computing.
    """

    make: Callable[[int, int], Layer]
    theory: Theory
    longer: int = 1


class Recurrent(nn.Module):
    """nn.RNN as a layer."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.cells = nn.RNN(d_model, d_model, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the state at every position."""
        return self.cells(x)[0]


class ConvolutionLayer(nn.Module):
    """PyTorch's convolution over the present and k - 1 positions of the past."""

    def __init__(self, d_model: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.past = (kernel - 1) * dilation
        self.convolve = nn.Conv1d(d_model, d_model, kernel, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return self.convolve(F.pad(x.transpose(1, 2), (self.past, 0))).transpose(1, 2)


def with_one_head(kernel: Callable[..., Tensor]) -> Layer:
    """Return a kernel as a layer: everyone asks, answers and is taken as they are."""
    return lambda x: kernel(x[:, None], x[:, None], x[:, None])[:, 0]


KINDS = {
    "self-attention, as printed": One(lambda *_: with_one_head(attention), Theory(2, 1, 0, 0)),
    "self-attention, fused": One(lambda *_: with_one_head(FullAttention()), Theory(2, 1, 0, 0)),
    "recurrent": One(lambda d, _: Recurrent(d), Theory(1, 2, 1, 1)),
    "convolution": One(lambda d, _: ConvolutionLayer(d, KERNEL), Theory(1, 2, 0, 1), LONGER),
    "convolution, dilated": One(
        lambda d, number: ConvolutionLayer(d, KERNEL, KERNEL**number), Theory(1, 2, 0, None), LONGER
    ),
    "restricted attention": One(
        lambda *_: with_one_head(LocalAttention(WINDOW)), Theory(1, 1, 0, 1), LONGER
    ),
}


class Point(NamedTuple):
    """Time and memory of a layer of one size."""

    seconds: float
    n_bytes: int


@dataclass(frozen=True)
class Measured:
    """Measurements of one kind of layer: seconds and bytes by size, steps and layers by length."""

    by_length: dict[int, Point]
    by_width: dict[int, Point]
    steps: dict[int, int]
    layers: dict[int, int]

    @property
    def path(self) -> dict[int, int]:
        """Operations between the first and the last position."""
        return {n: self.layers[n] * self.steps[n] for n in self.layers}


def there_and_back(layer: Layer, n: int, d_model: int) -> Callable[[], int]:
    """Forward and backward once; the units are positions."""
    x = torch.randn(1, n, d_model, requires_grad=True)

    def work() -> int:
        layer(x).sum().backward()
        x.grad = None
        return n

    return work


def peak_bytes(work: Callable[[], Any]) -> int:
    """Return the most that torch had allocated at one time, beyond what was there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    now = most = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        now += change
        most = max(most, now)
    return most


def one_size(n: int, d_model: int, rounds: int, warm_up: int, *, same: bool) -> dict[str, Point]:
    """Median seconds and peak bytes of every kind of layer, taking turns.

    All are of the same length, or cheap ones of so many times that of the others.
    """
    torch.manual_seed(0)
    work = {
        name: there_and_back(kind.make(d_model, 0), n if same else n * kind.longer, d_model)
        for name, kind in KINDS.items()
    }
    contestants = [Contestant(name, item) for name, item in work.items()]
    measuring.interleave(contestants, warm_up, tell=lambda _: None)
    samples = measuring.interleave(contestants, rounds, tell=lambda _: None)
    print(f"n = {n:5,}, d = {d_model:5,}: measured")
    return {
        name: Point(median(sample.seconds for sample in samples[name]), peak_bytes(item))
        for name, item in work.items()
    }


def layers_needed(kind: One, n: int) -> int:
    """Return how many layers connect n positions; weights are positive so that none cancel."""

    def positive(number: int) -> Layer:
        layer = kind.make(PATH_WIDTH, number)
        if isinstance(layer, nn.Module):
            for parameter in layer.parameters():
                nn.init.constant_(parameter, 0.3)
        return layer

    return layers_until_reached(positive, n, PATH_WIDTH)


def measure(sizes: Sizes, rounds: int, warm_up: int) -> dict[str, Measured]:
    """Everything, for every kind of layer."""
    lengths = {n: one_size(n, sizes.at_width, rounds, warm_up, same=False) for n in sizes.lengths}
    widths = {d: one_size(sizes.at_length, d, rounds, warm_up, same=True) for d in sizes.widths}
    return {
        name: Measured(
            {n * kind.longer: results[name] for n, results in lengths.items()},
            {d: results[name] for d, results in widths.items()},
            {n: sequential_steps(kind.make(PATH_WIDTH, 0), n, PATH_WIDTH) for n in sizes.paths},
            {n: layers_needed(kind, n) for n in sizes.paths},
        )
        for name, kind in KINDS.items()
    }


def slope(by_size: dict[int, Point], column: int) -> float:
    """Return the exponent over the larger sizes, of seconds (0) or bytes (1)."""
    values = [point[column] for point in by_size.values()]
    return fit(list(by_size)[-LARGER:], values[-LARGER:])[0]


def exponents(results: dict[str, Measured]) -> list[str]:
    """Return the table of all exponents, with what the paper says in brackets."""
    rows = []
    for name, item in results.items():
        theory = KINDS[name].theory
        rows.append(
            [
                name,
                f"n^{slope(item.by_length, 0):.2f} ({theory.n})",
                f"d^{slope(item.by_width, 0):.2f} ({theory.d})",
                f"n^{slope(item.by_length, 1):.2f}",
                f"d^{slope(item.by_width, 1):.2f}",
            ]
        )
    return measuring.table(["layer", "time (paper)", "time (paper)", "memory", "memory"], rows)


def paths(results: dict[str, Measured]) -> list[str]:
    """Return the table of steps and layers, for every length, with their exponents."""
    lengths = list(next(iter(results.values())).steps)
    rows = []
    for name, item in results.items():
        theory = KINDS[name].theory
        text = "log n" if theory.path is None else f"n^{theory.path}"
        steps = fit(lengths[-LARGER:], list(item.steps.values())[-LARGER:])[0]
        path = fit(lengths[-LARGER:], list(item.path.values())[-LARGER:])[0]
        cells = [" ".join(str(value[n]) for n in lengths) for value in (item.steps, item.layers)]
        rows.append([name, cells[0], f"{steps:.2f} ({theory.steps})", cells[1],
                     f"{path:.2f} ({text})"])  # fmt: skip
    at = ", ".join(map(str, lengths))
    columns = ["layer", f"steps in a layer at n = {at}", "exponent (paper)",
               "layers until the last sees the first", "path: exponent (paper)"]  # fmt: skip
    return measuring.table(columns, rows)


def draw(results: dict[str, Measured], sizes: Sizes) -> str:
    """Time and memory over n and d."""

    def panel(title: str, across: str, column: int) -> curves.Panel:
        lines = {}
        for name, item in results.items():
            by_size = item.by_length if across.startswith("n") else item.by_width
            lines[name] = [(size, point[column]) for size, point in by_size.items()]
        tick = (seconds, size_of)[column]
        return curves.Panel(title, across, lines, logarithmic=True, logarithmic_x=True, tick=tick)

    along_n, along_d = f"n, at d = {sizes.at_width}", f"d, at n = {sizes.at_length}"
    panels = [
        panel(title, across, column)
        for across in (along_n, along_d)
        for column, title in enumerate(("time, forward and back", "peak memory"))
    ]
    return curves.draw(panels, "What a layer costs", columns=2)


def seconds(value: float) -> str:
    """Return a duration as an axis shows it; not every font has the µ of µs."""
    return f"{value:g} s" if value > 0.9 else f"{value / 1e-3:g} ms"


def size_of(value: float) -> str:
    """Bytes as an axis shows them."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g} B"


def read_words(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = measuring.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds that do not count")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    measuring.add_threads(parser)
    parser.add_argument("--figure", type=Path, default=None, help="an .svg or .png file")
    parser.add_argument("--record", action="store_true", help="append to RESULTS.md")
    words = parser.parse_args(arguments)
    if words.record and words.quick:
        raise measuring.ConfigError("--quick is for trying out; leave it or --record out")
    if words.figure is not None and words.figure.suffix not in (".svg", ".png"):
        raise measuring.ConfigError(f"--figure {words.figure}: expected a name in .svg or .png")
    return words


def main(arguments: Sequence[str]) -> int:
    """Measure, print, draw, and record if asked to."""
    words = read_words(arguments)
    measuring.require_rounds(words.rounds, words.record)
    measuring.use_threads(words)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler has much to say of itself
    gc.collect()
    gc.freeze()  # what is loaded stays; else tidying up before every sample takes longer than it
    where = measuring.environment("complexity.py", arguments)
    sizes = QUICK if words.quick else Sizes()
    results = measure(sizes, words.rounds, words.warm_up)
    lines = [
        *where,
        f"- {words.rounds} rounds, interleaved; medians; exponents over the {LARGER} largest sizes",
        "",
        f"n from {sizes.lengths[0]} to {sizes.lengths[-1]} at d = {sizes.at_width}, d from "
        f"{sizes.widths[0]} to {sizes.widths[-1]} at n = {sizes.at_length}; one sequence, forward "
        f"and back; kernels of {KERNEL}, {WINDOW} neighbours on either side. Convolutions and "
        f"restricted attention: {LONGER} times as long. In brackets what Table 1 says.",
        "",
        *exponents(results),
        "",
        *paths(results),
    ]
    figure = words.figure or (FIGURE if words.record else None)
    if figure is not None:
        drawn = draw(results, sizes)
        figure.write_bytes(rasterize(drawn) if figure.suffix == ".png" else drawn.encode())
    print("\n".join(["", *lines]))
    if words.record:
        shown = ["", f"![time and memory over n and d]({FIGURE.name})"]
        measuring.record(measuring.RESULTS, "Complexity of layers", [*lines, *shown])
    return 0


if __name__ == "__main__":
    measuring.run(main)
