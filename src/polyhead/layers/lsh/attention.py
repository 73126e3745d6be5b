"""LSH attention, the kernel of the Reformer (Kitaev et al. 2020, section 2).

Queries and keys are the same vectors; a key is its query at unit length, and there is no 1/√d:

    s_ij = q_i · q_j / ‖q_j‖
    o_i  = Σ_{j ∈ P_i} exp(s_ij - z_i) v_j,    z_i = log Σ_{j ∈ P_i} exp(s_ij)

In dense attention P_i is every position (`dense_shared_qk`). Here P_i is found by hashing. In every
round, positions are sorted by (bucket, position) and split into equal chunks; i sees its own
chunk and the one before it, and P_i is the union over the rounds. The future, padding and the
position itself are masked; the position itself is visible only if nothing else is. As in the
authors' code, a neighbour in the chunk may be of another bucket (`same_bucket=True` forbids it, as
in the paper's formula).

A causal mask gives later positions no weight, but they are sorted with the others: P_i, and so o_i,
may depend on the future. Only decoding steps, which are dense, do not.

A pair found in several rounds counts once: the paper subtracts log N_ij from each of its N_ij
scores, we mask all but the first, which is the same sum with fewer terms. With a chunk as long as
the input the result is dense attention for any number of rounds.

Axes: round, batch, head, query and key (both are length), d_head, d_value.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.bounds import Few, Length
from polyhead.errors import ConfigError
from polyhead.layers.attention import (
    NO_MASK,
    Contexts,
    Keys,
    Mask,
    Queries,
    Values,
    Weights,
    check_heads,
)
from polyhead.layers.lsh.chunked import TINY, LSHPlan, sorted_attention
from polyhead.layers.lsh.hashing import (
    Buckets,
    draw_rotations,
    factors,
    hash_vectors,
    recorded_buckets,
    sort_by_bucket,
)


@dataclass(frozen=True)
class LSHConfig:
    """Sizes of LSH attention (Reformer)."""

    chunk: Length = 64
    rounds: Few = 2
    eval_rounds: Few = 0  # 0: as many as in training
    buckets: Length = 0  # 0: chosen so that a bucket has half a chunk
    same_bucket: bool = False  # attend within the bucket only

    def __post_init__(self) -> None:
        for name, least in (("chunk", 1), ("rounds", 1), ("eval_rounds", 0), ("buckets", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} = {getattr(self, name)}: expected at least {least}")
        if self.buckets:
            factors(self.buckets)


class Arrangement(NamedTuple):
    """Result of hashing: buckets and the sorted order."""

    buckets: Buckets  # masked keys are in a bucket after all others
    order: Int[Tensor, "round batch head length"]  # order[…, s]: the position in slot s
    chunk: int

    def chunks(self) -> Int[Tensor, "round batch head length"]:
        """Return the chunk of every position."""
        return self.order.argsort(dim=-1) // self.chunk

    def sees(self, *, same_bucket: bool = False) -> Bool[Tensor, "batch head query key"]:
        """Return which keys are in the query's chunk or the one before, in any round."""
        chunk = self.chunks()
        back = chunk[..., :, None] - chunk[..., None, :]
        near = (back == 0) | (back == 1)
        if same_bucket:
            near &= self.buckets[..., :, None] == self.buckets[..., None, :]
        return near.any(dim=0)


class LSHAttention(nn.Module):
    """Kernel for self-attention whose `q` and `k` are one projection.

    `k` is read in decoding steps only: a step has fewer queries than cached keys and attends to all
    of them, the limit of infinitely many rounds. Encoders and prompts are hashed.

    In training the random rotations are drawn from torch's generator at every call; in evaluation
    they are fixed. The number of buckets depends on a row's own tokens, so that its output is the
    same alone and padded in a batch. `buckets` replaces hashing; a recorded forward pass replays
    its buckets (`hashing.py`).
    """

    def __init__(
        self,
        chunk: int = 64,
        n_rounds: int = 2,
        *,
        eval_rounds: int = 0,
        n_buckets: int = 0,
        same_bucket: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        LSHConfig(chunk, n_rounds, eval_rounds, n_buckets)  # checks the numbers
        self.chunk = chunk
        self.n_rounds = n_rounds
        self.eval_rounds = eval_rounds
        self.n_buckets = n_buckets  # 0: chosen so that a bucket has half a chunk
        self.same_bucket = same_bucket
        self.dropout = dropout

    def forward(
        self, q: Queries, k: Keys, v: Values, mask: Mask = NO_MASK, buckets: Buckets | None = None
    ) -> Contexts:
        check_heads(q, k, v)
        dropout = self.dropout if self.training else 0.0
        if _is_decoding_step(q, k, mask):
            return F.dropout(shared_qk_weights(q, k, mask), dropout) @ v
        wide = torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            x, y = q.to(wide), v.to(wide)
            arranged = self.arrange(x, mask, buckets)
            plan = LSHPlan.of(
                arranged.order,
                arranged.chunk,
                like=x,
                keys=mask.keys,
                causal=mask.causal,
                buckets=arranged.buckets if self.same_bucket else None,
                dropout=dropout,
            )
            return sorted_attention(x, y, plan).to(v.dtype)

    def weights(
        self, q: Queries, k: Keys, mask: Mask = NO_MASK, buckets: Buckets | None = None
    ) -> Weights:
        """Return the weights of one hashing, 0 where the key was not found."""
        if _is_decoding_step(q, k, mask):
            return shared_qk_weights(q, k, mask)
        seen = self.arrange(q, mask, buckets).sees(same_bucket=self.same_bucket)
        return _weights(q, k, mask, seen)

    def arrange(
        self,
        q: Float[Tensor, "batch head length d_head"],
        mask: Mask = NO_MASK,
        buckets: Buckets | None = None,
    ) -> Arrangement:
        """Hash and sort the positions."""
        if buckets is None:
            counts = self._bucket_counts(q, mask)
            # drawn also in a replay, so that the generator advances as in the recording
            rotations = {n: self._rotations(q, n) for n in sorted(set(counts))}
            buckets = recorded_buckets(lambda: _set_apart(_hash_rows(q, counts, rotations), mask))
        return Arrangement(buckets, sort_by_bucket(buckets), min(self.chunk, q.size(-2)))

    def _bucket_counts(self, q: Tensor, mask: Mask) -> list[int]:
        """Return the number of buckets of each batch row; padding does not count."""
        batch, _, length, _ = q.shape
        if self.n_buckets:
            return [self.n_buckets] * batch
        lengths = [length] * batch if mask.keys is None else mask.keys.sum(-1).tolist()
        return [2 * max(1, -(-n // self.chunk)) for n in lengths]

    def _rotations(self, q: Tensor, n_buckets: int) -> list[Tensor]:
        n_rounds = self.n_rounds if self.training or not self.eval_rounds else self.eval_rounds
        generator = None if self.training else torch.Generator(q.device).manual_seed(0)
        return draw_rotations(q.size(-1), n_buckets, n_rounds, q, generator)


def dense_shared_qk(q: Queries, v: Contexts, mask: Mask = NO_MASK) -> Contexts:
    """Return dense attention with shared queries and keys, which hashing approximates."""
    return shared_qk_weights(q, q, mask) @ v


def shared_qk_weights(q: Queries, k: Keys, mask: Mask = NO_MASK) -> Weights:
    """Return softmax(q_i · k_j / ‖k_j‖) over visible keys; the last query is at the last key.

    Rows sum to one; the row of a query without any visible key is zero.
    """
    return _weights(q, k, mask, None)


def _weights(q: Tensor, k: Tensor, mask: Mask, seen: Tensor | None) -> Tensor:
    n_queries, n_keys = q.size(-2), k.size(-2)
    scores = q @ F.normalize(k, dim=-1, eps=TINY).transpose(-2, -1)
    square = torch.ones(n_queries, n_keys, dtype=torch.bool, device=q.device)
    itself = square.triu(n_keys - n_queries) & square.tril(n_keys - n_queries)
    allowed = mask.dense(n_queries, n_keys, q.device)
    allowed = square if allowed is None else allowed
    others = allowed & ~itself if seen is None else allowed & ~itself & seen
    alone = ~others.any(dim=-1, keepdim=True)
    final = others | (itself & allowed & alone)
    weights = scores.masked_fill(~final, float("-inf")).softmax(dim=-1)
    return weights.masked_fill(~final, 0.0)


def _is_decoding_step(q: Tensor, k: Tensor, mask: Mask) -> bool:
    """Return True for decoding steps and masks that need the dense formula."""
    return q.size(-2) != k.size(-2) or mask.pairs is not None


def _hash_rows(q: Tensor, counts: list[int], rotations: dict[int, list[Tensor]]) -> Tensor:
    """Hash each batch row into its number of buckets; rows with equal numbers together."""
    if len(rotations) == 1:
        return hash_vectors(q, rotations[counts[0]])
    rows = {n: [i for i, count in enumerate(counts) if count == n] for n in rotations}
    parts = [hash_vectors(q[rows[n]], rotations[n]) for n in rotations]
    order = torch.tensor([i for n in rotations for i in rows[n]], device=q.device)
    return torch.cat(parts, dim=1)[:, order.argsort()]


def _set_apart(buckets: Tensor, mask: Mask) -> Tensor:
    """Give hidden keys a bucket of their own after all others: they must fill no one's chunk."""
    if mask.keys is None:
        return buckets
    return buckets.masked_fill(~mask.keys[None, :, None], int(buckets.max()) + 1)


def set_eval_rounds(model: nn.Module, n_rounds: int) -> None:
    """Set the number of hashing rounds of all LSH layers outside of training."""
    if n_rounds < 1:
        raise ConfigError(f"rounds = {n_rounds}: expected at least 1", "out_of_range")
    kernels = [part for part in model.modules() if isinstance(part, LSHAttention)]
    if not kernels:
        raise ConfigError(
            f"rounds = {n_rounds}: this model has no LSH attention; leave it out",
            "no_lsh_attention",
        )
    for kernel in kernels:
        kernel.eval_rounds = n_rounds
