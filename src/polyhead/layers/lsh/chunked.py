"""Attention inside sorted chunks, forward and backward, in pieces that fit into the cache.

Given an order of the positions for every round, each slot attends to the slots of its chunk and of
the chunk before it (see `lsh/attention.py`). Over all rounds this is one softmax:

    p_ij = exp(s_ij - z_i),   o_i = Σ p_ij v_j
    ∂s_ij = p_ij (∂o_i · v_j - δ_i),   δ_i = ∂o_i · o_i

so the backward pass needs only q, v, o and z, and recomputes p. No tensor of size query x key is
stored: a few dozen chunks are processed at a time, in memory and time linear in the length. Masks
are numbers here (0 visible, ≥ 1 masked), because PyTorch compares and fills booleans ten times more
slowly on a CPU than it adds floats; scores are in powers of two, because 2^x of a masked score is
fast and e^x fifty times slower.

Axes: row (a vector of one head at one position), slot (a row's place in the sorted order), group
(some chunks in a row), own and near (the slots of a chunk; of that chunk and the one before).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

PIECE = 2**18  # scores computed at once: 1 MB
ROWS = 2**12  # vectors scattered at once: 1 MB for d_head = 64
BITS = math.log2(math.e)  # e^s = 2^(BITS · s)
HIDDEN = -1e30  # masked score; finite, so that no row becomes NaN
TINY = 1e-6  # lower bound of a key's length


@dataclass(frozen=True)
class LSHPlan:
    """Arrangement of rows in sorted chunks. Index 0 of `slots` is one chunk early."""

    chunk: int
    n_chunks: int  # of one sequence in one head
    causal: bool
    slots: Int[Tensor, "round slot"]  # the row in every slot, after one chunk of padding
    places: Int[Tensor, "round row"]  # the slot of every row
    chunks: Float[Tensor, "round row"]  # the chunk of every row, counted within its sequence
    at: Float[Tensor, "row"]  # positions
    key_at: Float[Tensor, "row"]  # positions as keys: masked keys come last
    hidden: Float[Tensor, "row"] | None  # 1 where a key is masked
    buckets: Float[Tensor, "round row"] | None  # only for same_bucket
    dropout: float
    seed: int  # of the dropout, to repeat it in the backward pass

    @staticmethod
    def of(
        order: Int[Tensor, "round batch head length"],
        chunk: int,
        *,
        like: Tensor,
        keys: Bool[Tensor, "batch length"] | None,
        causal: bool,
        buckets: Int[Tensor, "round batch head length"] | None,
        dropout: float,
    ) -> "LSHPlan":
        """Build the plan; rows are (batch, length, head), as projections are stored in memory."""
        _, batch, heads, length = order.shape
        extra = -length % chunk
        n, device = length + extra, order.device
        if extra:
            more = torch.arange(length, n, device=device)
            order = torch.cat([order, more.expand(*order.shape[:-1], -1)], dim=-1)
        b = torch.arange(batch, device=device)[:, None, None]
        h = torch.arange(heads, device=device)[:, None]
        slots = ((b * n + order) * heads + h).flatten(1)
        counted = torch.arange(slots.size(1), device=device).expand_as(slots)
        places = torch.empty_like(slots).scatter_(1, slots, counted)

        hidden = None
        if keys is not None or extra:
            seen = torch.ones(batch, length, device=device) if keys is None else keys
            hidden = 1 - F.pad(seen.to(like.dtype), (0, extra)).repeat_interleave(heads)
        at = torch.arange(n, device=device, dtype=like.dtype).repeat_interleave(heads).repeat(batch)
        if buckets is not None:
            buckets = F.pad(buckets, (0, extra), value=-1).transpose(2, 3).flatten(1)
        return LSHPlan(
            chunk=chunk,
            n_chunks=n // chunk,
            causal=causal,
            slots=F.pad(slots, (chunk, 0)),
            places=places,
            chunks=(places % n // chunk).to(like.dtype),
            at=at,
            key_at=at if hidden is None else at + n * hidden,
            hidden=hidden,
            buckets=None if buckets is None else buckets.to(like.dtype),
            dropout=dropout,
            seed=int(torch.randint(2**62, ())) if dropout else 0,
        )

    @property
    def length(self) -> int:
        """Length of one sequence, padded to whole chunks."""
        return self.chunk * self.n_chunks

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yield the groups of chunks of one round: index of the first, and their number."""
        total = self.places.size(1) // self.chunk
        group = max(1, PIECE // (2 * self.chunk**2))
        for first in range(0, total, group):
            yield first, min(group, total - first)

    def rows(self, turn: int, first: int, n: int) -> Int[Tensor, "near_slot"]:
        """Return the rows of n chunks and of the chunk before the first."""
        return self.slots[turn, first * self.chunk : (first + n + 1) * self.chunk]

    def hide(self, turn: int, first: int, out: Float[Tensor, "group own near"]) -> None:
        """Write into `out` a positive number where a key is masked, else 0."""
        chunk = self.chunk
        rows = self.rows(turn, first, len(out))
        if self.causal:  # the future, masked keys and the position itself
            self._compare(torch.ge, self.key_at[rows], self.at[rows], out)
        elif self.hidden is not None:
            out.copy_(self._near(self.hidden[rows]))
        else:
            out.zero_()
        if not self.causal:
            out.diagonal(chunk, 1, 2).fill_(1.0)
        out[-first % self.n_chunks :: self.n_chunks, :, :chunk] = 1.0  # no chunk before the first
        if self.buckets is not None:
            of = self.buckets[turn, rows]
            out += self._compare(torch.ne, of, of, torch.empty_like(out))
        for earlier in range(turn):
            out += self._in_round(earlier, rows, torch.empty_like(out))

    def _in_round(self, turn: int, rows: Tensor, out: Tensor) -> Tensor:
        """Set 1 where an earlier round has this pair too: the key is 0 or 1 chunks before."""
        of = self.chunks[turn, rows]
        self._compare(torch.sub, of, of - 0.5, out).abs_()  # 1/2 either way
        torch.lt(out, 1.0, out=out)
        if self.buckets is not None:
            of = self.buckets[turn, rows]
            out *= self._compare(torch.eq, of, of, torch.empty_like(out))
        return out

    def _compare(self, compare: Any, near: Tensor, own: Tensor, out: Tensor) -> Tensor:
        own = own[self.chunk :].view(len(out), self.chunk, 1)
        return compare(self._near(near), own, out=out)

    def _near(self, x: Tensor) -> Tensor:
        return x.unfold(0, 2 * self.chunk, self.chunk)[:, None]  # (group, 1, near)


def sorted_attention(
    q: Float[Tensor, "batch head length d_head"],
    v: Float[Tensor, "batch head length d_value"],
    plan: LSHPlan,
) -> Float[Tensor, "batch head length d_value"]:
    """Attend from every slot of the plan to its chunk and the one before, over all rounds."""
    batch, heads, length, _ = q.shape
    extra = plan.length - length
    q, v = (x.transpose(1, 2) for x in (q, v))
    if extra:
        q, v = (F.pad(x, (0, 0, 0, 0, 0, extra)) for x in (q, v))
    out = _SortedAttention.apply(q.reshape(-1, q.size(-1)), v.reshape(-1, v.size(-1)), plan)
    return out.view(batch, plan.length, heads, -1)[:, :length].transpose(1, 2)


class Group(NamedTuple):
    """Gathered rows of neighbouring chunks and their scores."""

    rows: Int[Tensor, "near_slot"]
    length: Float[Tensor, "near_slot 1"]  # norm of the vectors before normalisation
    q: Float[Tensor, "group own d_head"]
    k: Float[Tensor, "near_slot d_head"]
    v: Float[Tensor, "near_slot d_value"]
    scores: Float[Tensor, "group own near"]


class _SortedAttention(torch.autograd.Function):
    """Autograd function of the formulas above."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, v: Tensor, plan: LSHPlan) -> Tensor:
        out, top, mass = _gather_rounds(q, v, plan)
        z = top.add_(mass.log2_())
        alone = (z < HIDDEN / 2).nonzero().squeeze(1)  # only the position itself is visible
        out[alone], z[alone] = 0.0, 0.0
        if plan.hidden is not None:
            alone = alone[plan.hidden[alone] == 0]
        out[alone] = v[alone]
        ctx.plan, ctx.alone = plan, alone
        ctx.save_for_backward(q, v, out, z)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, Tensor, None]:
        q, v, out, z = ctx.saved_tensors
        plan, alone = ctx.plan, ctx.alone
        with torch.autocast(q.device.type, enabled=False):
            d_out = d_out.contiguous()
            delta = (d_out * out).sum(-1)
            del out  # not needed again
            ctx.maybe_clear_saved_tensors()
            noise = _noise(plan, q.device)
            d_q, d_v = torch.empty_like(q), torch.empty_like(v)
            for turn, places in enumerate(plan.places):
                gradients = _backward_round(plan, turn, (q, v, z, d_out, delta), noise)
                _scatter_back(gradients, places, (d_q, d_v), add=turn > 0)
                del gradients  # free before the next round
            d_v[alone] += d_out[alone]
        return d_q, d_v, None


def _gather_rounds(q: Tensor, v: Tensor, plan: LSHPlan) -> tuple[Tensor, Tensor, Tensor]:
    """Return output, largest score and normaliser over all rounds."""
    noise = _noise(plan, q.device)
    joined = None
    for turn, place in enumerate(plan.places):
        parts = _forward_round(q, v, plan, turn, noise)
        context, highest, weight = (part.index_select(0, place) for part in parts)
        if joined is None:
            joined = context, highest, weight
            continue
        out, top, mass = joined
        higher = torch.maximum(top, highest)
        old, new = (top - higher).exp2_(), (highest - higher).exp2_()
        mass.mul_(old).addcmul_(weight, new)
        out.mul_(old[:, None]).addcmul_(context, new[:, None])
        joined = out, higher, mass
    assert joined is not None
    out, top, mass = joined
    return out.div_(mass[:, None]), top, mass


def _forward_round(
    q: Tensor, v: Tensor, plan: LSHPlan, turn: int, noise: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return Σ 2^(s - top) v, top, and Σ 2^(s - top) of one round in sorted order."""
    out, top, mass = torch.empty_like(v), q.new_empty(len(q)), q.new_empty(len(q))
    buffer = _buffer(plan, q)
    for first, n in plan.pieces():
        own = slice(first * plan.chunk, (first + n) * plan.chunk)
        group = _compare(q, v, plan, turn, first, buffer[:n])
        scores = group.scores
        highest = scores.amax(-1, keepdim=True)
        scores.sub_(highest).exp2_()
        top[own], mass[own] = highest.flatten(), scores.sum(-1).flatten()
        _drop(scores, plan, noise)
        near = group.v.unfold(0, 2 * plan.chunk, plan.chunk).transpose(1, 2)
        torch.bmm(scores, near, out=out[own].view(n, plan.chunk, -1))
    return out, top, mass


def _backward_round(
    plan: LSHPlan, turn: int, saved: tuple[Tensor, ...], noise: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of q (as query and as key) and v of one round, sorted."""
    q, v, z, d_out, delta = saved
    chunk = plan.chunk
    d_q, d_v = (x.new_empty(len(x) + chunk, x.size(1)) for x in (q, v))
    d_q[:chunk], d_v[:chunk] = 0.0, 0.0
    buffer, other = _buffer(plan, q), _buffer(plan, q)
    for first, n in plan.pieces():
        group = _compare(q, v, plan, turn, first, buffer[:n])
        mine = group.rows[chunk:]
        p = group.scores.sub_(z[mine].view(n, chunk, 1)).exp2_()
        d_o = d_out.index_select(0, mine).view(n, chunk, -1)
        d_p = torch.bmm(d_o, group.v.unfold(0, 2 * chunk, chunk), out=other[:n])
        kept = _drop(d_p, plan, noise)
        d_s = d_p.sub_(delta[mine].view(n, chunk, 1)).mul_(p)
        p = p if kept is None else p.mul_(kept)

        near_v = d_v[first * chunk : (first + n + 1) * chunk]
        _add_to_near(p, d_o, near_v)
        k, d_k = group.k, torch.empty_like(group.k)
        d_k[:chunk] = 0.0
        _add_to_near(d_s, group.q, d_k)
        d_k.addcmul_(k, (k * d_k).sum(-1, keepdim=True), value=-1.0).div_(group.length)
        near = k.unfold(0, 2 * chunk, chunk).transpose(1, 2)
        d_k[chunk:].view(n, chunk, -1).baddbmm_(d_s, near)
        near_q = d_q[first * chunk : (first + n + 1) * chunk]
        near_q[:chunk] += d_k[:chunk]  # the last chunk of the group before
        near_q[chunk:] = d_k[chunk:]
    return d_q[chunk:], d_v[chunk:]


def _scatter_back(
    parts: tuple[Tensor, Tensor], places: Tensor, totals: tuple[Tensor, Tensor], *, add: bool
) -> None:
    """Write rows from their slots into the totals, or add them, a few at a time."""
    for part, total in zip(parts, totals, strict=True):
        for start in range(0, len(total), ROWS):
            rows = slice(start, start + ROWS)
            if add:
                total[rows] += part.index_select(0, places[rows])
            else:
                torch.index_select(part, 0, places[rows], out=total[rows])


def _compare(q: Tensor, v: Tensor, plan: LSHPlan, turn: int, first: int, scores: Tensor) -> Group:
    """Gather the chunks first … first + n and those before them, and compute masked scores."""
    rows = plan.rows(turn, first, len(scores))
    x = q.index_select(0, rows)
    length = x.norm(dim=-1, keepdim=True).clamp_(min=TINY)
    k = x / length
    queries = x[plan.chunk :].view(len(scores), plan.chunk, -1)
    plan.hide(turn, first, scores)
    scores.baddbmm_(queries, k.unfold(0, 2 * plan.chunk, plan.chunk), beta=HIDDEN, alpha=BITS)
    return Group(rows, length, queries, k, v.index_select(0, rows), scores)


def _add_to_near(
    weights: Float[Tensor, "group own near"],
    x: Float[Tensor, "group own d"],
    out: Float[Tensor, "near_slot d"],
) -> None:
    """Add the gradients of keys to their chunks: each chunk, and the one before it."""
    n, chunk, _ = weights.shape
    chunks = out.view(n + 1, chunk, -1)
    torch.bmm(weights[:, :, chunk:].transpose(1, 2), x, out=chunks[1:])
    chunks[:-1].baddbmm_(weights[:, :, :chunk].transpose(1, 2), x)


def _buffer(plan: LSHPlan, like: Tensor) -> Tensor:
    """Allocate the scores of the largest group."""
    largest = max(n for _, n in plan.pieces())
    return like.new_empty(largest, plan.chunk, 2 * plan.chunk)


def _noise(plan: LSHPlan, device: torch.device) -> torch.Generator | None:
    """Return the dropout's own generator, seeded equally in both passes."""
    return torch.Generator(device).manual_seed(plan.seed) if plan.dropout else None


def _drop(x: Tensor, plan: LSHPlan, noise: torch.Generator | None) -> Tensor | None:
    """Apply dropout to x in place; return the factor."""
    if noise is None:
        return None
    kept = torch.empty_like(x).bernoulli_(1 - plan.dropout, generator=noise)
    x *= kept.div_(1 - plan.dropout)
    return kept
