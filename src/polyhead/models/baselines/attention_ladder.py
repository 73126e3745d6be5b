"""Five models from sequence-to-sequence to attention that differ in the context vector.

    h_1 … h_n = encoder(source)                    one state for every word
    s_t       = decoder(y_{t-1}, s_{t-1})          starts with the encoder's last state
    c_t       = the context, by `context`:

        none         h_n                              one vector for all      Sutskever et al. 2014
        mean         1/n Σ_i h_i                      equal weights
        positional   Σ_i softmax_i(b_i) h_i           a weight per position
        content      Σ_i softmax_i(f(h_i)) h_i        a function of h
        query        Σ_i softmax_i(f(s_t, h_i)) h_i   a function of s and h   Bahdanau et al. 2015

    p(y_t)    = softmax(W tanh(W_c [c_t; s_t]))                               Luong et al. 2015

All but c_t is the same in the five, also the number of parameters except those of the score. The
query is s_t, as in Luong et al. 2015 without input feeding: the states of a known target can be
computed at once, and so can attention.

Axes: batch, source, target, beam, d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyhead.bounds import Few, Length
from polyhead.layers.attention import Keys, Queries, Weights
from polyhead.layers.attention_scores import ScoredAttention, ScoreKind, make_score
from polyhead.layers.dropout import Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Cell, Encoding, LookBack, Parts, Recurrence
from polyhead.models.baselines.seq2seq import (
    SequenceToSequence,
    Source,
    States,
    StepOutput,
    Target,
    TranslatorConfig,
    Words,
    bridged,
    check_recurrent,
)

Context = Literal["none", "mean", "positional", "content", "query"]


@dataclass(frozen=True)
class LadderConfig(TranslatorConfig):
    """Sizes: `score` is for `context = "query"`, `max_length` for "positional"."""

    cell: Cell = "gru"
    d_model: int = 256
    n_layers: Few = 1
    dropout: Share = 0.1
    context: Context = "query"
    score: ScoreKind = "general"
    max_length: Length = 256
    teacher_forcing: float = 1.0
    bidirectional: bool = False  # bidirectional encoder, d_model / 2 each
    reverse_source: bool = False  # Sutskever et al. 2014

    def __post_init__(self) -> None:
        check_recurrent(self.teacher_forcing, self.bidirectional, self.reverse_source)


class Vectors(NamedTuple):
    """The three vectors of the notes: C context, H encoding, S decoding."""

    context: Float[Tensor, "batch target d_model"]
    encoding: Float[Tensor, "batch source d_model"]
    decoding: Float[Tensor, "batch target d_model"]


class Equal(nn.Module):
    """Score 0 for every word: all weights are 1/n."""

    def forward(self, q: Queries, k: Keys) -> Weights:
        return q.new_zeros(*q.shape[:-1], k.size(-2))


class ByPosition(nn.Module):
    """Learned score b_i of position i, initialized to the mean."""

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.b = nn.Parameter(torch.zeros(max_length))

    def forward(self, q: Queries, k: Keys) -> Weights:
        n_keys = k.size(-2)
        if n_keys > len(self.b):
            raise ValueError(
                f"this model weighs {len(self.b)} positions, but the source has {n_keys}; "
                "raise max_length or shorten the source"
            )
        return self.b[:n_keys].expand(*q.shape[:-1], n_keys)


class ByContent(nn.Module):
    """f(h) = v · tanh(W h): the additive score of Bahdanau et al. 2015 without the query."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, 1, bias=False)

    def forward(self, q: Queries, k: Keys) -> Weights:
        scores = self.v(torch.tanh(self.w(k))).transpose(-2, -1)  # (batch, head, 1, key)
        return scores.expand(*q.shape[:-1], k.size(-2))


class Ladder(SequenceToSequence):
    """Recurrent translator with a choice of context."""

    def __init__(self, config: LadderConfig) -> None:
        d_model = config.d_model
        super().__init__(config, d_model, config.dropout)
        self.teacher_forcing, self.reverse_source = config.teacher_forcing, config.reverse_source
        sizes = config.cell, d_model, config.n_layers, config.dropout
        self.encoder = Recurrence(*sizes, bidirectional=config.bidirectional)
        n_parts = (2 if config.cell == "lstm" else 1) if config.bidirectional else 0
        self.bridge = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(n_parts))
        self.decoder = Recurrence(*sizes)
        scores: dict[Context, Callable[[], nn.Module]] = {
            "mean": Equal,
            "positional": lambda: ByPosition(config.max_length),
            "content": lambda: ByContent(d_model),
            "query": lambda: make_score(config.score, 1, d_model),
        }
        score = scores.get(config.context)
        self.cross_attention = None if score is None else LookBack(ScoredAttention(score()))
        self.w_c = nn.Linear(2 * d_model, d_model)
        self.to_logits = nn.Linear(d_model, config.target_vocab)

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        """Initialize the decoder with the encoder's last state; two directions need a bridge."""
        return Encoding(memory, bridged(self.bridge, last) if self.bridge else last)

    def vectors(self, source: Source, target: Target) -> Vectors:
        """Return C, H and S for this target."""
        encoding = self.encode(source)
        states, _ = self.decoder(self.dropout(self.embed_target(target)), encoding.state)
        return Vectors(self.context(states, encoding), encoding.memory.states, states)

    def decode_all(self, x: Words, encoding: Encoding) -> Words:
        """Return tanh(W_c [c_t; s_t]) of all words at once."""
        states, _ = self.decoder(x, encoding.state)
        return self.combine(self.context(states, encoding), states)

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        """Return tanh(W_c [c_t; s_t]) of one word; beams are queries."""
        s, parts = self.decoder.step(self.decoder.gates(x), parts)
        return self.combine(self.context(s, encoding), s), parts

    def context(self, states: Words, encoding: Encoding) -> Words:
        """Return C, the context of each decoder state."""
        if self.cross_attention is None:
            return encoding.summary[:, None].expand_as(states)
        return self.cross_attention(states, encoding.memory)

    def combine(self, c: Words, s: Words) -> Words:
        """Return tanh(W_c [c; s]) (Luong et al. 2015, eq. 5)."""
        return torch.tanh(self.w_c(torch.cat([c, s], dim=-1)))
