"""Locality-sensitive hashing of vectors (Andoni et al. 2015).

    h(x) = argmax [xR ; -xR],    R random, (d_head, n_buckets / 2)

After a random rotation the bucket of x is the axis with the largest coordinate, with its sign. The
smaller the angle between two vectors, the likelier they share a bucket. (The figure with four
quadrants is the two-dimensional case: two axes, four directions.)

Many buckets would need a large R, so they are *factorised*: 256 buckets are 16 x 16, two small
hashes. A *round* is one hash of everything by a new R. One R serves all heads, and all sequences
with the same number of buckets.

Buckets are discrete, and a rounding error may change them. A forward pass that is computed twice
(`layers/reversible.py`) therefore records its buckets on a `Tape` and replays them:

    with recording(tape):    y = branch(x)       buckets are computed and stored
    with replaying(tape):    y = branch(x)       the same buckets for any x

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

FACTORISE_ABOVE = 128  # more buckets than this use two rotations
ROWS = 2**14  # vectors hashed at once, to stay in the processor's cache

Buckets = Int[Tensor, "round batch head length"]


def factors(n_buckets: int) -> tuple[int, ...]:
    """Return the sizes of the hashes that give at least `n_buckets` together."""
    if n_buckets < 2 or n_buckets % 2:
        raise ValueError(
            f"n_buckets must be even (two directions per axis), got {n_buckets}; "
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
    """Draw one R per factor and round, from torch's generator unless given."""
    sizes = [(n_rounds, d_head, n // 2) for n in factors(n_buckets)]
    return [like.new_empty(size).normal_(generator=generator) for size in sizes]


@torch.no_grad()
def hash_vectors(
    x: Float[Tensor, "batch head length d_head"], rotations: list[Float[Tensor, "round d_head _"]]
) -> Buckets:
    """Return the bucket of every vector in every round: h_a + a · h_b for factors a and b."""
    batch, heads, length, d_head = x.shape
    rows = x.transpose(1, 2).reshape(-1, d_head)  # a view of the split heads
    n_rounds = rotations[0].size(0)
    n_buckets = math.prod(2 * rotation.size(-1) for rotation in rotations)
    dtype = torch.int16 if n_buckets < 2**15 else torch.int32  # tapes are kept for every layer
    buckets = torch.zeros(n_rounds, len(rows), dtype=dtype, device=x.device)
    for start in range(0, len(rows), ROWS):
        piece, step = slice(start, start + ROWS), 1
        for rotation in rotations:
            rotated = rows[piece] @ rotation.transpose(0, 1).flatten(1)  # (row, round · half)
            corner = farthest(rotated.unflatten(1, (n_rounds, -1)))  # (row, round)
            buckets[:, piece] += (step * corner.t()).to(buckets.dtype)
            step *= 2 * rotation.size(-1)
    return buckets.view(n_rounds, batch, length, heads).transpose(2, 3).contiguous()


def farthest(y: Float[Tensor, "row round half"]) -> Float[Tensor, "row round"]:
    """Return the argmax of [y ; -y] over the last axis, as a float."""
    # torch.cat([y, -y], -1).argmax(-1) takes ten times as long on a CPU for many short rows.
    half = y.size(-1)
    far = y.abs()
    marked = torch.eq(far, far.amax(-1, keepdim=True), out=far)  # 1 at the largest, else 0
    places = torch.arange(half, device=y.device, dtype=y.dtype)
    at = (marked @ places).clamp_(max=half - 1)  # several marks only if all of y is zero
    behind = (marked * y) @ torch.ones_like(places) < 0
    return at + half * behind


def sort_by_bucket(buckets: Buckets) -> Int[Tensor, "round batch head length"]:
    """Return the positions sorted by (bucket, position), for every round and head."""
    length = buckets.size(-1)
    n_lines, above = buckets[..., 0].numel(), int(buckets.max()) + 1
    line = torch.arange(n_lines, device=buckets.device, dtype=torch.int32)[:, None]
    if n_lines * above >= 2**31:
        line = line.long()
    key = line * above + buckets.flatten(0, 2)
    # One long line of integers uses a radix sort, faster than many short comparison sorts. A stable
    # sort keeps positions in order inside a bucket.
    at = key.flatten().sort(stable=True).indices.view(n_lines, length)
    return (at - length * line).view(buckets.shape)


@dataclass
class Tape:
    """Buckets of one forward pass, in the order of its kernels."""

    buckets: list[Tensor] = field(default_factory=list)


_recorder: ContextVar[Tape | None] = ContextVar("recorder", default=None)
_player: ContextVar[Iterator[Tensor] | None] = ContextVar("player", default=None)


@contextmanager
def recording(tape: Tape) -> Iterator[None]:
    """Record all buckets computed inside."""
    token = _recorder.set(tape)
    try:
        yield
    finally:
        _recorder.reset(token)


@contextmanager
def replaying(tape: Tape) -> Iterator[None]:
    """Replay the buckets of this tape in order."""
    token = _player.set(iter(tape.buckets))
    try:
        yield
    finally:
        _player.reset(token)


def recorded_buckets(find: Callable[[], Tensor]) -> Tensor:
    """Return the next replayed buckets, or else those of `find`; record them if recording."""
    player, recorder = _player.get(), _recorder.get()
    buckets = find() if player is None else next(player)
    if recorder is not None:
        recorder.buckets.append(buckets)
    return buckets
