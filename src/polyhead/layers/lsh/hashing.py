"""Locality-sensitive hashing: near vectors get the same number (Andoni et al. 2015).

    h(x) = argmax [xR ; -xR],    R random, (d_head, n_buckets / 2)

The sphere is rotated at random; the bucket of x is the axis it points along most, in either
direction. The smaller the angle between two vectors, the likelier they share a bucket. (The drawing
with four quadrants is the plane's case: one rotation, two axes, four directions.)

Many buckets would need a large R, so they are *factorised*: 256 buckets are 16 x 16, two small
hashes that together name one bucket. A *round* is one more hash of everything by a fresh R. One R
serves all heads and sequences: each of them has its own vectors, to which any R is random.

Hashing is a decision, not a number: a rounding error may turn it. Who computes a forward pass twice
(`polyhead.layers.reversible`) records the buckets on a `Tape` and plays them back:

    with recording(tape):    y = branch(x)       buckets are computed and noted
    with replaying(tape):    y = branch(x)       the same buckets, whatever x has become

Axes: round, batch, head, length; a bucket is a whole number from 0.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

FACTORISE_ABOVE = 128  # buckets that one rotation still finds by itself
ROWS = 2**14  # vectors hashed at once, so that their rotations stay in the processor's cache

Buckets = Int[Tensor, "round batch head length"]


def factors(n_buckets: int) -> tuple[int, ...]:
    """The sizes of the hashes that together make about `n_buckets` (never fewer)."""
    if n_buckets < 2 or n_buckets % 2:
        raise ValueError(
            f"n_buckets must be even, since every axis has two ends, got {n_buckets}; "
            f"write {max(2, n_buckets + 1)}"
        )
    if n_buckets <= FACTORISE_ABOVE:
        return (n_buckets,)
    small = 2 * round(math.sqrt(n_buckets) / 2)
    return small, 2 * math.ceil(n_buckets / small / 2)


def draw_rotations(
    d_head: int,
    n_buckets: int,
    n_rounds: int,
    like: Tensor,
    generator: torch.Generator | None = None,
) -> list[Float[Tensor, "round d_head half"]]:
    """One R for every factor, fresh in every round, from torch's own generator unless given."""
    sizes = [(n_rounds, d_head, n // 2) for n in factors(n_buckets)]
    return [like.new_empty(size).normal_(generator=generator) for size in sizes]


@torch.no_grad()
def hash_vectors(
    x: Float[Tensor, "batch head length d_head"],
    rotations: list[Float[Tensor, "round d_head _"]],
) -> Buckets:
    """The bucket of every vector in every round; with factors a and b it is h_a + a · h_b."""
    batch, heads, length, d_head = x.shape
    rows = x.transpose(1, 2).reshape(-1, d_head)  # no copy of what MultiHeadAttention has split
    n_rounds = rotations[0].size(0)
    n_buckets = math.prod(2 * rotation.size(-1) for rotation in rotations)
    buckets = torch.zeros(n_rounds, len(rows), dtype=_whole(n_buckets), device=x.device)
    for start in range(0, len(rows), ROWS):
        piece, step = slice(start, start + ROWS), 1
        for rotation in rotations:
            turned = rows[piece] @ rotation.transpose(0, 1).flatten(1)  # (row, round · half)
            corner = farthest(turned.unflatten(1, (n_rounds, -1)))  # (row, round)
            buckets[:, piece] += (step * corner.t()).to(buckets.dtype)
            step *= 2 * rotation.size(-1)
    return buckets.view(n_rounds, batch, length, heads).transpose(2, 3).contiguous()


def farthest(y: Float[Tensor, "row round half"]) -> Float[Tensor, "row round"]:
    """The argmax of [y ; -y] over the last axis, as a whole number in floating point.

    The same as `torch.cat([y, -y], -1).argmax(-1)`, which is written for a few long rows and takes
    ten times as long on a CPU: find the largest |y|, mark where it stands, and count from there.
    """
    half = y.size(-1)
    far = y.abs()
    marked = torch.eq(far, far.amax(-1, keepdim=True), out=far)  # 1 at the largest, else 0
    places = torch.arange(half, device=y.device, dtype=y.dtype)
    at = (marked @ places).clamp_(max=half - 1)  # several marks only if all of y is zero
    behind = (marked * y) @ torch.ones_like(places) < 0
    return at + half * behind


def sort_by_bucket(buckets: Buckets) -> Int[Tensor, "round batch head length"]:
    """The positions in the order (bucket, position), for every round and head."""
    length = buckets.size(-1)
    n_lines, above = buckets[..., 0].numel(), int(buckets.max()) + 1
    line = torch.arange(n_lines, device=buckets.device, dtype=torch.int32)[:, None]
    if n_lines * above >= 2**31:
        line = line.long()
    key = line * above + buckets.flatten(0, 2)
    # One long line of whole numbers is sorted by digits (radix sort), many short ones by comparing.
    # A stable sort keeps positions in order inside a bucket.
    at = key.flatten().sort(stable=True).indices.view(n_lines, length)
    return (at - length * line).view(buckets.shape)


@dataclass
class Tape:
    """The buckets of one forward pass, in the order in which its kernels found them."""

    buckets: list[Tensor] = field(default_factory=list)


_recorder: ContextVar[Tape | None] = ContextVar("recorder", default=None)
_player: ContextVar[Iterator[Tensor] | None] = ContextVar("player", default=None)


@contextmanager
def recording(tape: Tape) -> Iterator[None]:
    """Write down all buckets that are found inside."""
    token = _recorder.set(tape)
    try:
        yield
    finally:
        _recorder.reset(token)


@contextmanager
def replaying(tape: Tape) -> Iterator[None]:
    """Give out the buckets of this tape again, one after the other."""
    token = _player.set(iter(tape.buckets))
    try:
        yield
    finally:
        _player.reset(token)


def remembered(find: Callable[[], Tensor]) -> Tensor:
    """The next buckets of the tape that is playing; else those that `find` finds."""
    player, recorder = _player.get(), _recorder.get()
    buckets = find() if player is None else next(player)
    if recorder is not None:
        recorder.buckets.append(buckets)
    return buckets


def _whole(n: int) -> torch.dtype:
    """The smallest whole numbers that can count to n, since tapes are kept for every layer."""
    return torch.int16 if n < 2**15 else torch.int32
