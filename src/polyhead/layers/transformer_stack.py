"""Transformer blocks and stacks, shared by all Transformers of this package.

    encoder block    x → self-attention → feed-forward                     (BERT, ELECTRA, ViT)
    decoder block    the same with a causal mask                           (GPT, Reformer)
    enc-dec block    x → self-attention → cross-attention → feed-forward   (translation)

Every sub-layer has a residual connection (`Residual`); `norm` says where its LayerNorm is:

    post   LayerNorm(x + f(x))     Vaswani et al. 2017, BERT
    pre    x + f(LayerNorm(x))     GPT-2, ViT, Reformer

A family chooses sizes and kinds (`StackConfig`) and whether there is cross-attention. It never
subclasses a block. Kinds of self-attention alternate through the layers, as in
`attention = ["local", "lsh"]`; cross-attention always sees the whole source:

    full     all pairs of positions                       attention.py, attention_scores.py
    local    neighbours at most `window` positions away   local_attention.py
    lsh      neighbours found by hashing (Reformer)       lsh/attention.py

Plug-ins add kinds to `ATTENTION`.

Positions interact in attention only. If the caller needs a few positions, such as a class token or
masked tokens (`only`), the others skip the last block's feed-forward network, two thirds of its
work, with the same result.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor, nn

from polyhead.bounds import Few, Length
from polyhead.layers.attention import (
    KV,
    NO_MASK,
    FullAttention,
    Mask,
    MultiHeadAttention,
    check_features,
)
from polyhead.layers.attention_scores import ScoredAttention, ScoreKind, make_score
from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.feed_forward import Activation, FeedForward
from polyhead.layers.kv_cache import BlockCache, Memory
from polyhead.layers.local_attention import LocalAttention
from polyhead.layers.lsh.attention import LSHAttention, LSHConfig
from polyhead.layers.mixture_of_experts import Experts, ExpertsConfig
from polyhead.layers.reversible import Branch, mean_of_streams
from polyhead.plugin_registry import Registry

Sublayer = Callable[[Tensor], Tensor]
MAX_HEADS = 2**12  # proposed in a message


@dataclass(frozen=True)
class AttentionKernel:
    """A kind of self-attention.

    make: returns a module that is a `Kernel`.
    scored: the kernel evaluates `score`; others support the scaled dot product only.
    shared: queries and keys share one projection.
    marks_padding: padding on the right needs a mask besides the causal one.
    """

    make: Callable[["StackConfig"], nn.Module]
    scored: bool = False
    shared: bool = False
    marks_padding: bool = False


def _full(config: "StackConfig") -> nn.Module:
    if config.score == "scaled_dot":
        return FullAttention(config.attention_dropout)
    score = make_score(config.score, config.n_heads, config.d_key)
    return ScoredAttention(score, config.attention_dropout)


def _lsh(config: "StackConfig") -> nn.Module:
    lsh = config.lsh
    return LSHAttention(
        lsh.chunk, lsh.rounds, eval_rounds=lsh.eval_rounds, n_buckets=lsh.buckets,
        same_bucket=lsh.same_bucket, dropout=config.attention_dropout,
    )  # fmt: skip


ATTENTION = Registry(
    "attention kernel",
    {
        "full": AttentionKernel(_full, scored=True),
        "local": AttentionKernel(
            lambda config: LocalAttention(config.window, config.attention_dropout)
        ),
        # hashing would sort padding among the tokens
        "lsh": AttentionKernel(_lsh, shared=True, marks_padding=True),
    },
)
AttentionKind = Annotated[str, ATTENTION]


@dataclass(frozen=True)
class StackConfig:
    """Sizes of a Transformer in the symbols of Table 3; the defaults are the base model."""

    n_layers: Few = 6
    d_model: int = 512
    n_heads: int = 8
    d_ff: int = 2048
    d_k: int | None = None  # width of queries and keys in a head; default d_model / n_heads
    d_v: int | None = None  # width of values in a head; default d_model / n_heads
    dropout: Share = 0.1  # on every sub-layer's output and the input, as in the paper
    attention_dropout: Share = 0.0  # on the attention weights, as in the authors' code
    activation_dropout: Share = 0.0  # between the two feed-forward layers
    norm: Literal["pre", "post"] = "post"
    norm_eps: float = 1e-5  # BERT has 1e-12, ViT 1e-6
    activation: Activation = "relu"
    score: ScoreKind = "scaled_dot"  # score function of attention
    attention: AttentionKind | tuple[AttentionKind, ...] = "full"  # of the layers, in turn
    window: Length = 128  # positions that local attention sees to each side
    lsh: LSHConfig = field(default_factory=LSHConfig)
    reversible: bool = False  # recompute activations in the backward pass
    feed_chunk: Length = 0  # positions per chunk of the feed-forward network; 0: all
    experts: ExpertsConfig = field(default_factory=ExpertsConfig)  # mixture of experts

    def __post_init__(self) -> None:
        d_model, n_heads = self.d_model, self.n_heads
        for name, width in (("d_k", self.d_k), ("d_v", self.d_v)):
            if width is not None and width < 1:
                raise ValueError(f"{name} = {width}: expected at least 1")
        divides = d_model % max(1, n_heads) == 0 or None not in (self.d_k, self.d_v)
        if d_model < 1 or n_heads < 1 or not divides:
            most = min(n_heads, d_model, MAX_HEADS)
            fits = next((n for n in range(most, 0, -1) if d_model % n == 0), 1)
            raise ValueError(
                f"d_model ({d_model}) must be a multiple of n_heads ({n_heads}); "
                f"write n_heads = {fits}"
            )
        if not self.kinds:
            raise ValueError('attention = []: name at least one kind, as in attention = "full"')
        restricted = [kind for kind in self.kinds if not ATTENTION[kind].scored]
        if restricted and self.score != "scaled_dot":
            raise ValueError(
                f'{restricted[0]} attention supports score = "scaled_dot" only, got '
                f'{self.score!r}; leave score out, or write attention = "full"'
            )
        if "local" in self.kinds and self.window < 1:
            raise ValueError(f"window = {self.window}: expected at least 1 position to each side")
        if self.reversible and self.norm != "pre":
            raise ValueError(
                f'reversible = true cannot undo a norm after the sum: norm is "{self.norm}"; write '
                'norm = "pre", or reversible = false'
            )
        if self.experts.n and (self.reversible or self.feed_chunk):
            given = "reversible = true" if self.reversible else f"feed_chunk = {self.feed_chunk}"
            raise ValueError(
                f"{given}: the balance of experts needs what this would forget; leave it out, or "
                "write experts.n = 0"
            )

    @property
    def d_key(self) -> int:
        """Width of queries and keys in one head."""
        return self.d_model // self.n_heads if self.d_k is None else self.d_k

    @property
    def d_value(self) -> int:
        """Width of values in one head."""
        return self.d_model // self.n_heads if self.d_v is None else self.d_v

    @property
    def marks_padding(self) -> bool:
        """True if padding on the right needs a mask; experts would be balanced with it."""
        return self.experts.n > 0 or any(ATTENTION[kind].marks_padding for kind in self.kinds)

    @property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """The kinds of attention of the layers, in turn."""
        return (self.attention,) if isinstance(self.attention, str) else self.attention

    def kind(self, layer: int) -> AttentionKind:
        """Return the kind of attention of one layer, counted from 0."""
        return self.kinds[layer % len(self.kinds)]


Rotation = Callable[[int], nn.Module] | None  # of a `PositionCode`


def make_attention(
    config: StackConfig, kind: AttentionKind, *, rotation: Rotation = None
) -> MultiHeadAttention:
    """Return attention of one kind, which turns queries and keys if there is a rotation."""
    chosen = ATTENTION[kind]
    kernel, turns = chosen.make(config), None if rotation is None else rotation(config.d_key)
    return MultiHeadAttention(
        config.d_model, config.n_heads, kernel,
        rotary=turns, shared=chosen.shared, d_k=config.d_k, d_v=config.d_v,
    )  # fmt: skip


class Residual(nn.Module):
    """A skip connection around any sub-layer, with its dropout and its LayerNorm."""

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def branch(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        """Apply the pre-norm branch without its skip connection, for reversible stacks."""
        return self.dropout(sublayer(self.norm(x)))

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        if self.pre:
            return self.dropout.onto(x, sublayer(self.norm(x)))
        return self.norm(self.dropout.onto(x, sublayer(x)))


class TransformerBlock(nn.Module):
    """One layer of Figure 1: its left half, or its right half if `cross` is set."""

    def __init__(
        self, config: StackConfig, *, cross: bool, layer: int = 0, rotation: Rotation = None
    ) -> None:
        super().__init__()
        sizes = config.d_model, config.d_ff, config.activation, config.activation_dropout
        self.self_attention = make_attention(config, config.kind(layer), rotation=rotation)
        self.self_residual = Residual(config)
        self.cross_attention = make_attention(config, "full") if cross else None
        self.cross_residual = Residual(config) if cross else None
        self.has_experts = config.experts.n > 0
        self.feed_forward: Any = (
            Experts(*sizes, config.experts)
            if self.has_experts
            else FeedForward(*sizes, chunk=config.feed_chunk)
        )
        self.feed_residual = Residual(config)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask = NO_MASK,
        memory: Memory | None = None,
        cache: BlockCache | None = None,
        places: Num[Tensor, "length"] | None = None,
        only: Int[Tensor, "chosen"] | None = None,
    ) -> Float[Tensor, "rows columns d_model"]:
        cache = BlockCache() if cache is None else cache
        x = self.self_residual(x, lambda h: self.attend(h, mask, cache, places))
        if self.cross_residual is not None:
            x = self.cross_residual(x, lambda h: self.recall(h, memory, cache))
        if only is not None:
            x, mask = pick(x, only)[None], NO_MASK
        real = (mask.keys,) if self.has_experts else ()  # experts skip padding
        return self.feed_residual(x, lambda h: self.feed_forward(h, *real))

    def attend(
        self, h: Tensor, mask: Mask, cache: BlockCache, places: Tensor | None = None
    ) -> Tensor:
        """Attend to h and to everything in the cache."""
        kv = cache.extend(self.self_attention.project(h, places))
        return self.self_attention(h, kv, mask, places)

    def recall(self, h: Tensor, memory: Memory | None, cache: BlockCache) -> Tensor:
        """Attend to the encoder's output, which is projected once and then cached."""
        assert self.cross_attention is not None and memory is not None, "no memory to look at"
        if cache.memory is None:
            cache.memory = self.cross_attention.project(memory.states)
        return self.cross_attention(h, cache.memory, memory.mask)

    def project_memory(self, memory: Memory) -> KV:
        """Return the keys and values of cross-attention, for a cache."""
        assert self.cross_attention is not None
        return self.cross_attention.project(memory.states)

    def branches(
        self, mask: Mask, slot: BlockCache | None, places: Tensor | None
    ) -> Iterator[Branch]:
        """Yield the branches of a reversible block in order; without a slot nothing is cached."""

        def attend(x: Tensor, _: Memory | None) -> Tensor:
            cache = BlockCache() if slot is None else slot
            return self.self_residual.branch(x, lambda h: self.attend(h, mask, cache, places))

        def recall(x: Tensor, memory: Memory | None) -> Tensor:
            cache = BlockCache() if slot is None else slot
            assert self.cross_residual is not None
            return self.cross_residual.branch(x, lambda h: self.recall(h, memory, cache))

        def feed(x: Tensor, _: Memory | None) -> Tensor:
            return self.feed_residual.branch(x, self.feed_forward)

        yield Branch(attend, [self.self_residual, self.self_attention])
        if self.cross_attention is not None and self.cross_residual is not None:
            yield Branch(recall, [self.cross_residual, self.cross_attention])
        yield Branch(feed, [self.feed_residual, self.feed_forward])


def pick(
    x: Float[Tensor, "batch length d_model"], only: Int[Tensor, "chosen"]
) -> Float[Tensor, "chosen d_model"]:
    """Return the vectors at some positions of the flattened batch."""
    return x.flatten(0, 1).index_select(0, only)


def first_positions(x: Num[Tensor, "batch length *d_model"]) -> Int[Tensor, "batch"]:
    """Return the index of each sequence's first position in the flattened batch."""
    return torch.arange(0, x.size(0) * x.size(1), x.size(1), device=x.device)


class TransformerStack(nn.Module):
    """N blocks, reversible if so configured; pre-norm stacks end with a LayerNorm.

    `places` are the positions of x, for rotary attention; 0, 1, 2, … unless given. `only` are the
    positions of all sequences, concatenated, whose vectors are needed; all unless given.
    """

    def __init__(
        self,
        config: StackConfig,
        *,
        cross: bool = False,
        rotation: Rotation = None,
        n_layers: int | None = None,
    ) -> None:
        super().__init__()
        depth = config.n_layers if n_layers is None else n_layers
        self.reversible, self.d_model = config.reversible, config.d_model
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(config, cross=cross, layer=layer, rotation=rotation)
            for layer in range(depth)
        )
        last = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.norm = last if config.norm == "pre" else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        mask: Mask = NO_MASK,
        memory: Memory | None = None,
        cache: list[BlockCache] | None = None,
        places: Num[Tensor, "length"] | None = None,
        only: Int[Tensor, "chosen"] | None = None,
    ) -> Float[Tensor, "*positions d_model"]:
        check_features("x", x, self.d_model)
        slots = [None] * len(self.blocks) if cache is None else cache
        layers = list(zip(self.blocks, slots, strict=True))
        if self.reversible:
            branches = [
                branch for block, slot in layers for branch in block.branches(mask, slot, places)
            ]
            recompute = cache is None and torch.is_grad_enabled()  # decoding has no backward pass
            x = mean_of_streams(x, memory, branches, recompute=recompute)
            return self.norm(x if only is None else pick(x, only))
        for n, (block, slot) in enumerate(layers, 1):
            x = block(x, mask, memory, slot, places, only if n == len(layers) else None)
        return self.norm(x if only is None else x[0])

    def empty_cache(self, capacity: int, memory: Memory | None = None) -> list[BlockCache]:
        """Return empty caches; `memory` is projected here, once."""
        cache = [BlockCache(capacity) for _ in self.blocks]
        if memory is not None:
            for block, slot in zip(self.blocks, cache, strict=True):
                slot.memory = block.project_memory(memory)
        return cache
