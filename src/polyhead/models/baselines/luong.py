"""Luong et al. 2015: attention after every step of a stacked decoder.

    h_1 … h_n = encoder(source)
    s_t       = decoder([y_{t-1}; a_{t-1}], s_{t-1})       input feeding: a_0 = 0
    α_t       = softmax_i score(s_t, h_i)                  s_t: the state *after* the word
    c_t       = Σ_i α_ti h_i
    a_t       = tanh(W_c [c_t; s_t])                       eq. 5
    p(y_t)    = softmax(W a_t)

    score     dot  sᵀh,   general  sᵀWh,   scaled_dot  sᵀh / √d,   additive  vᵀ tanh(W_s s + W_h h)

Without input feeding (a_{t-1} not read) all s_t of a known target are computed in one call, and
attention in another.

Global attention covers the whole source, local attention the words within D of a position p_t:

    local_m   p_t = t                                      monotonic alignment
    local_p   p_t = S σ(v_pᵀ tanh(W_p s_t))                eq. 9; S words in the source
              α_ti = softmax_i score(s_t, h_i) · exp(-(i - p_t)² / 2σ²),   σ = D / 2     eq. 10

The weights are not renormalised after the Gaussian. Words are counted from 0, and a target longer
than its source stays at the source's last word.

Axes: batch, source, target, beam, d_model, d_embed.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyhead.bounds import Few, Length
from polyhead.layers.attention import (
    NO_MASK,
    Contexts,
    Keys,
    Mask,
    Queries,
    Values,
    Weights,
    softmax_of_visible,
)
from polyhead.layers.attention_scores import ScoredAttention, ScoreKind
from polyhead.layers.dropout import Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Cell, Encoding, Parts, Recurrence, make_look_back
from polyhead.models.baselines.seq2seq import (
    Bridge,
    SequenceToSequence,
    States,
    StepOutput,
    TranslatorConfig,
    Words,
    check_recurrent,
)


@dataclass(frozen=True)
class LuongConfig(TranslatorConfig):
    """Sizes: `d_embed` defaults to d_model; `window` is the D of local attention."""

    cell: Cell = "lstm"
    d_model: int = 256
    d_embed: int | None = None
    n_layers: Few = 2
    dropout: Share = 0.2
    score: ScoreKind = "general"
    attention: Literal["global", "local_m", "local_p"] = "global"
    window: Length = 10
    input_feeding: bool = True
    teacher_forcing: float = 1.0
    bidirectional: bool = False  # bidirectional encoder, d_model / 2 each
    reverse_source: bool = False
    tie: bool = False  # share the target's embedding with the output layer

    def __post_init__(self) -> None:
        check_recurrent(self.teacher_forcing, self.bidirectional, self.reverse_source)
        if self.window < 1:
            raise ValueError(f"window = {self.window}: expected at least 1 word to each side")


LARGE = LuongConfig(50_000, 50_000, d_model=1000, n_layers=4, dropout=0.2, reverse_source=True)
PUBLISHED = {"luong": LARGE, "luong-local": replace(LARGE, attention="local_p")}


class Predictive(ScoredAttention):
    """Kernel for local_p: predicts the position first, then the weights around it."""

    def __init__(self, score: nn.Module, d_query: int, window: int) -> None:
        super().__init__(score)
        self.w_p = nn.Linear(d_query, d_query, bias=False)
        self.v_p = nn.Linear(d_query, 1, bias=False)
        self.window = window

    def forward(self, q: Queries, k: Keys, v: Values, mask: Mask = NO_MASK) -> Contexts:
        return self.weights(q, k, mask) @ v

    def weights(self, q: Queries, k: Keys, mask: Mask = NO_MASK) -> Weights:
        """Return the weights of equation 10; rows sum to less than 1."""
        length = lengths_of(mask, k)[:, None, None]
        place = length * torch.sigmoid(self.v_p(torch.tanh(self.w_p(q[:, 0]))))
        away = torch.arange(k.size(-2), device=k.device) - place  # (batch, query, key)
        near = mask._replace(pairs=away.abs() <= self.window)
        gaussian = torch.exp(-2.0 * (away / self.window).square())  # σ = D / 2
        return softmax_of_visible(self.score(q, k), near) * gaussian[:, None]


def lengths_of(mask: Mask, h: Float[Tensor, "batch *_ source d"]) -> Float[Tensor, "batch"]:
    """Return S, the number of words of each source."""
    if mask.keys is None:
        return h.new_full((len(h),), h.size(-2))
    return mask.keys.sum(1).to(h.dtype)


class Luong(SequenceToSequence):
    """Recurrent translator with attention between the top layers."""

    def __init__(self, config: LuongConfig) -> None:
        d_model, cell, n_layers = config.d_model, config.cell, config.n_layers
        d_embed = config.d_embed or d_model
        super().__init__(config, d_embed, config.dropout)
        self.teacher_forcing, self.reverse_source = config.teacher_forcing, config.reverse_source
        self.d_embed = d_embed
        self.input_feeding = config.input_feeding
        self.window = config.window if config.attention == "local_m" else None
        self.encoder = Recurrence(
            cell, d_model, n_layers, config.dropout,
            d_in=d_embed, bidirectional=config.bidirectional,
        )  # fmt: skip
        self.bridge = Bridge(cell, d_model, d_model) if config.bidirectional else None
        d_in = d_embed + (d_model if config.input_feeding else 0)
        self.decoder = Recurrence(cell, d_model, n_layers, config.dropout, d_in=d_in)
        self.cross_attention = make_look_back(config.score, d_model, d_model)
        if config.attention == "local_p":
            kernel: Any = self.cross_attention.kernel
            self.cross_attention.kernel = Predictive(kernel.score, d_model, config.window)
        self.w_c = nn.Linear(2 * d_model, d_model, bias=False)
        self.add_output(config, d_model, tied=config.tie)

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        """Initialize with the encoder's last states, a_0 = 0 and t = 0."""
        state = last if self.bridge is None else self.bridge(last)
        top = state[0][-1:]
        if self.input_feeding:
            state = (*state, torch.zeros_like(top))
        if self.window is not None:
            state = (*state, torch.zeros_like(top[..., :1]))
        return Encoding(memory, state, self.cross_attention.keys(memory.states))

    def prepare(self, x: Words) -> Words:
        """Return the contribution of y_{t-1} to the first layer's gates, if input is fed."""
        return self.decoder.gates(x) if self.input_feeding else x

    def decode_all(self, x: Words, encoding: Encoding) -> Words:
        """Decode all words; in one call without input feeding."""
        if self.input_feeding:
            return super().decode_all(x, encoding)
        if self.window is None:
            return self.attend(self.decoder(x, encoding.state)[0], encoding)
        *cells, start = encoding.state
        places = start[0] + torch.arange(x.size(1), device=x.device)
        return self.attend(self.decoder(x, tuple(cells))[0], encoding, places)

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        """Compute a step of the stack, then attention: a_t."""
        if self.window is None:
            return self.decode_step_at(None, x, parts, encoding)
        *before, t = parts
        a, states = self.decode_step_at(t[0, ..., 0], x, tuple(before), encoding)
        return a, (*states, t + 1)

    def decode_step_at(
        self, place: Tensor | None, x: Words, parts: States, encoding: Encoding
    ) -> StepOutput:
        """Compute `decode_step` at a known position (None for global attention)."""
        if not self.input_feeding:
            s, states = self.decoder.step(self.decoder.gates(x), parts)
            return self.attend(s, encoding, place), states
        *cells, fed = parts
        gates = x + self.decoder.gates(fed[0], start=self.d_embed)
        s, states = self.decoder.step(gates, tuple(cells))
        a = self.attend(s, encoding, place)
        return a, (*states, a[None])

    def attend(
        self, s: Words, encoding: Encoding, place: Float[Tensor, "batch word"] | None = None
    ) -> Words:
        """Return a = tanh(W_c [c; s]); with a position, c is from the words around it."""
        memory = encoding.memory
        if place is not None and self.window is not None:
            memory = Memory(memory.states, around(place, memory, self.window))
        c = self.cross_attention(s, memory, encoding.keys)
        return torch.tanh(self.w_c(torch.cat([c, s], dim=-1)))


def around(place: Float[Tensor, "batch target"], memory: Memory, window: int) -> Mask:
    """Return a mask of the words within D of p_t = t, at most the last word."""
    centre = place.minimum(lengths_of(memory.mask, memory.states)[:, None] - 1)
    words = torch.arange(memory.states.size(1), device=place.device)
    return memory.mask._replace(pairs=(words - centre[..., None]).abs() <= window)
