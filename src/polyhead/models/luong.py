"""Luong et al. 2015: look back at the source after every step of a stacked decoder.

    h_1 … h_n = encoder(source)
    s_t       = decoder([y_{t-1}; a_{t-1}], s_{t-1})       input feeding: a_0 = 0
    α_t       = softmax_i score(s_t, h_i)                  s_t: the state *after* the word
    c_t       = Σ_i α_ti h_i
    a_t       = tanh(W_c [c_t; s_t])                       eq. 5
    p(y_t)    = softmax(W a_t)

    score     dot  sᵀh,   general  sᵀWh,   scaled_dot  sᵀh / √d,   additive  vᵀ tanh(W_s s + W_h h)

Without input feeding (a_{t-1} not read) all s_t of a known target are found in one call, and looked
back from in another. Global attention only: the paper's local variants are not here.

Axes: batch, source, target, beam, d_model, d_embed.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from polyhead.layers.cache import Memory
from polyhead.layers.dropout import Dropout
from polyhead.layers.init import uniform
from polyhead.layers.recurrent import Cell, Encoding, Parts, Recurrence, make_look_back
from polyhead.layers.scores import ScoreKind
from polyhead.models.seq2seq import Bridge, SequenceToSequence, Turn, check_reading, tie


@dataclass(frozen=True)
class LuongConfig:
    """`d_embed` is the width of a word, d_model unless given.

    `teacher_forcing` is how often training reads the right last word, and not the model's own.
    """

    source_vocab: int = 8_000
    target_vocab: int = 8_000
    pad: int = 0
    cell: Cell = "lstm"
    d_model: int = 256
    d_embed: int | None = None
    n_layers: int = 2
    dropout: float = 0.2
    score: ScoreKind = "general"
    input_feeding: bool = True
    teacher_forcing: float = 1.0
    bidirectional: bool = False  # the encoder reads from both ends, each with half of d_model
    reverse_source: bool = False
    tie: bool = False  # one table for the target's embedding and the output layer

    def __post_init__(self) -> None:
        check_reading(self.teacher_forcing, self.bidirectional, self.reverse_source)


PUBLISHED = {
    "luong": LuongConfig(
        50_000, 50_000, d_model=1000, n_layers=4, dropout=0.2, reverse_source=True
    ),
}


class Luong(SequenceToSequence):
    """A stack that reads and a stack that writes, with attention between their tops."""

    def __init__(self, config: LuongConfig) -> None:
        super().__init__(config.pad, config.teacher_forcing, config.reverse_source)
        d_model, cell, n_layers = config.d_model, config.cell, config.n_layers
        self.d_embed = config.d_embed or d_model
        self.input_feeding = config.input_feeding
        self.embed_source = nn.Embedding(config.source_vocab, self.d_embed)
        self.embed_target = nn.Embedding(config.target_vocab, self.d_embed)
        self.encoder = Recurrence(
            cell, d_model, n_layers, config.dropout,
            d_in=self.d_embed, bidirectional=config.bidirectional,
        )  # fmt: skip
        self.bridge = Bridge(cell, d_model, d_model) if config.bidirectional else None
        d_in = self.d_embed + (d_model if config.input_feeding else 0)
        self.decoder = Recurrence(cell, d_model, n_layers, config.dropout, d_in=d_in)
        self.cross_attention = make_look_back(config.score, d_model, d_model)
        self.w_c = nn.Linear(2 * d_model, d_model, bias=False)
        self.dropout = Dropout(config.dropout)
        self.to_logits = nn.Linear(d_model, config.target_vocab)
        uniform(self)
        if config.tie:
            tie(self.to_logits, self.embed_target)

    def offer(self, memory: Memory, last: Parts) -> Encoding:
        """The encoder's last states, and with input feeding an a_0 of zeros."""
        state = last if self.bridge is None else self.bridge(last)
        if self.input_feeding:
            state = (*state, torch.zeros_like(state[0][-1:]))
        return Encoding(memory, state, self.cross_attention.keys(memory.states))

    def prepare(self, x: Float[Tensor, "batch length d_embed"]) -> Float[Tensor, "batch length _"]:
        """What y_{t-1} adds to the gates of the first layer, if the rest comes word by word."""
        return self.decoder.gates(x) if self.input_feeding else x

    def write(
        self, x: Float[Tensor, "batch target _"], encoding: Encoding
    ) -> Float[Tensor, "batch target d_model"]:
        """All words: in one call if nothing is fed back."""
        if self.input_feeding:
            return super().write(x, encoding)
        states, _ = self.decoder(x, encoding.state)
        return self.attend(states, encoding)

    def turn(
        self, x: Float[Tensor, "batch beam _"], parts: tuple[Tensor, ...], encoding: Encoding
    ) -> Turn:
        """A step of the stack, then a look back: a_t."""
        if not self.input_feeding:
            s, parts = self.decoder.turn(self.decoder.gates(x), parts)
            return self.attend(s, encoding), parts
        *cells, fed = parts
        gates = x + self.decoder.gates(fed[0], start=self.d_embed)
        s, states = self.decoder.turn(gates, tuple(cells))
        a = self.attend(s, encoding)
        return a, (*states, a[None])

    def attend(
        self, s: Float[Tensor, "batch target d_model"], encoding: Encoding
    ) -> Float[Tensor, "batch target d_model"]:
        """The vector a = tanh(W_c [c; s])."""
        c = self.cross_attention(s, encoding.memory, encoding.keys)
        return torch.tanh(self.w_c(torch.cat([c, s], dim=-1)))
