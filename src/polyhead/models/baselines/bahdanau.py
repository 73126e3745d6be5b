"""RNNsearch (Bahdanau et al. 2015): attention before every word.

    h_1 … h_n = a bidirectional encoder(source)
    α_t       = softmax_i vᵀ tanh(W_s s_{t-1} + W_h h_i)       s_{t-1}: the state *before* the word
    c_t       = Σ_i α_ti h_i
    s_t       = cell([y_{t-1}; c_t], s_{t-1})                  the context enters the cell
    p(y_t)    = softmax(W maxout([s_t; y_{t-1}; c_t]))         a deep output, A.2.2

s_0 = tanh(W_0 h̄), h̄ being the last states of both directions (the paper takes the backward
one alone). The output reads s_t, as in equation 4, where A.2.2 prints s_{t-1}. Only W_h h_i and the
contribution of y_{t-1} to the gates can be computed ahead.

Axes: batch, source, target, beam, d_model, d_embed, d_memory (both directions together).
"""

from dataclasses import dataclass

import torch

from polyhead.bounds import Few
from polyhead.layers.attention_scores import ScoreKind
from polyhead.layers.dropout import Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Cell, Encoding, Parts, Recurrence, make_look_back
from polyhead.models.baselines.seq2seq import (
    Bridge,
    Maxout,
    SequenceToSequence,
    States,
    StepOutput,
    TranslatorConfig,
    Words,
    check_recurrent,
)


@dataclass(frozen=True)
class BahdanauConfig(TranslatorConfig):
    """Sizes: `d_encoder` (both directions), `d_embed` and `d_output` default to d_model."""

    cell: Cell = "gru"
    d_model: int = 256
    d_encoder: int | None = None
    d_embed: int | None = None
    d_output: int | None = None
    n_layers: Few = 1  # of the encoder; the decoder has one layer
    dropout: Share = 0.2
    score: ScoreKind = "additive"
    teacher_forcing: float = 1.0
    bidirectional: bool = True
    tie: bool = False  # share the target's embedding with the output layer

    def __post_init__(self) -> None:
        check_recurrent(self.teacher_forcing, self.bidirectional, reverse_source=False)


PUBLISHED = {
    "rnnsearch-50": BahdanauConfig(
        30_000, 30_000, d_model=1000, d_encoder=2000, d_embed=620, d_output=500, dropout=0.0
    )
}


class Bahdanau(SequenceToSequence):
    """Recurrent translator with attention before every word."""

    def __init__(self, config: BahdanauConfig) -> None:
        d_model, cell = config.d_model, config.cell
        d_memory, d_output = config.d_encoder or d_model, config.d_output or d_model
        d_embed = config.d_embed or d_model
        super().__init__(config, d_embed, config.dropout)
        self.teacher_forcing, self.d_embed = config.teacher_forcing, d_embed
        self.encoder = Recurrence(
            cell, d_memory, config.n_layers, config.dropout,
            d_in=d_embed, bidirectional=config.bidirectional,
        )  # fmt: skip
        self.bridge = Bridge(cell, d_memory, d_model)
        self.cross_attention = make_look_back(config.score, d_model, d_memory)
        self.decoder = Recurrence(cell, d_model, 1, 0.0, d_in=d_embed + d_memory)
        self.deep_output = Maxout(d_model + d_memory + d_embed, d_output)
        self.add_output(config, d_output, tied=config.tie)

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        """Initialize the decoder with the top layer's last state through a bridge."""
        state = self.bridge(tuple(part[-1:] for part in last))
        return Encoding(memory, state, self.cross_attention.keys(memory.states))

    def prepare(self, x: Words) -> Words:
        return self.decoder.gates(x)

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        """Attend with the old state, then compute a step with the context: [s_t; c_t]."""
        c = self.cross_attention(parts[0][-1], encoding.memory, encoding.keys)
        s, parts = self.decoder.step(x + self.decoder.gates(c, start=self.d_embed), parts)
        return torch.cat([s, c], dim=-1), parts

    def output(self, h: Words, x: Words, encoding: Encoding) -> Words:
        """Return maxout([s_t; c_t; y_{t-1}]) of all words at once."""
        del encoding
        return self.dropout(self.deep_output(torch.cat([h, x], dim=-1)))
