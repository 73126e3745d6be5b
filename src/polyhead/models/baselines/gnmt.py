"""GNMT (Wu et al. 2016): deep stacks of LSTM layers with residual connections.

    encoder    layer 1 is bidirectional, layers 2 … N are not; residual connections from the third
               layer on
    decoder    u_t = LSTM_1(y_{t-1})                                  the bottom layer
               c_t = Σ_i α_ti h_i,   α_t = softmax_i vᵀ tanh(W_s u + W_h h_i)
               x_t = LSTM_k([x_t; c_t])                               every layer above gets c_t
               p(y_t) = softmax(W x_t)

Attention connects the *bottom* layer of the decoder with the top of the encoder, and the bottom
layer does not read c_t: so all its steps run in one call, then attention, then the other layers.
`query = "past"` attends with u_{t-1}, as in the paper (section 3); `"current"` with u_t, as later
versions do. The decoder starts with zeros and gets the source through attention only.

Axes: batch, source, target, beam, d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.bounds import Few
from polyhead.layers.attention_scores import ScoreKind
from polyhead.layers.dropout import Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Encoding, Parts, Recurrence, make_look_back
from polyhead.models.baselines.seq2seq import (
    SequenceToSequence,
    States,
    StepOutput,
    TranslatorConfig,
    Words,
    check_recurrent,
    step_layers,
)

FIRST_RESIDUAL = 2  # the third layer, counted from 0


@dataclass(frozen=True)
class GNMTConfig(TranslatorConfig):
    """Sizes: `n_layers` of encoder and of decoder; `teacher_forcing` as in `Seq2SeqConfig`."""

    d_model: int = 256
    n_layers: Few = 3
    dropout: Share = 0.2
    score: ScoreKind = "additive"
    query: Literal["past", "current"] = "past"
    teacher_forcing: float = 1.0
    tie: bool = False  # share the target's embedding with the output layer

    def __post_init__(self) -> None:
        check_recurrent(self.teacher_forcing, bidirectional=True, reverse_source=False)
        if self.n_layers < 2:
            raise ValueError(
                f"n_layers = {self.n_layers}: expected at least 2, because attention goes from the "
                "bottom layer to those above it"
            )


# Layers: figure 1 and section 3.1. Section 8 was not found: width and dropout are those of GNMT in
# tensorflow/nmt, and with 32,000 wordpieces (google/seq2seq names them) they make the 278 million
# parameters of Shazeer et al. 2017, table 3.
PUBLISHED = {"gnmt": GNMTConfig(32_000, 32_000, d_model=1024, n_layers=8, dropout=0.2)}


class GNMT(SequenceToSequence):
    """Deep LSTM translator; every decoder layer above the first gets the context."""

    def __init__(self, config: GNMTConfig) -> None:
        d_model, above = config.d_model, range(config.n_layers - 1)
        super().__init__(config, d_model, config.dropout)
        self.teacher_forcing = config.teacher_forcing
        self.queries_past = config.query == "past"
        first = Recurrence("lstm", 2 * d_model, 1, 0.0, d_in=d_model, bidirectional=True)
        self.encoder = nn.ModuleList([first])
        for layer in above:
            self.encoder.append(
                Recurrence("lstm", d_model, 1, 0.0, d_in=d_model if layer else 2 * d_model)
            )
        self.decoder: Any = nn.ModuleList([Recurrence("lstm", d_model, 1, 0.0)])
        self.decoder.extend(Recurrence("lstm", d_model, 1, 0.0, d_in=2 * d_model) for _ in above)
        self.cross_attention = make_look_back(config.score, d_model, d_model)
        self.add_output(config, d_model, tied=config.tie)

    def run_encoder(
        self, x: Float[Tensor, "batch source d_model"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch source d_model"], Parts]:
        """Run the encoder; only the top layer's states are passed on."""
        for number, layer in enumerate(self.encoder):
            below = self.dropout(x) if number else x
            states, _ = layer.encode(below, lengths)
            x = states + x if number >= FIRST_RESIDUAL else states
        return x, ()

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        del last
        batch, _, d_model = memory.states.shape
        zeros = memory.states.new_zeros(len(self.decoder), batch, d_model)
        return Encoding(memory, (zeros, zeros), self.cross_attention.keys(memory.states))

    def decode_all(self, x: Words, encoding: Encoding) -> Words:
        """Decode all words, layer by layer."""
        start = tuple(part[:1] for part in encoding.state)
        u, _ = self.decoder[0](x, start)
        before = torch.cat([start[0].transpose(0, 1), u[:, :-1]], dim=1)
        c = self.attend(before if self.queries_past else u, encoding)
        return self.upper_layers(u, c, lambda number, below: self.decoder[number](below, start)[0])

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        states, take = step_layers(self.decoder, parts)
        before = parts[0][0]
        u = take(0, x)
        c = self.attend(before if self.queries_past else u, encoding)
        top = self.upper_layers(u, c, take)
        return top, tuple(torch.cat(part) for part in zip(*states, strict=True))

    def attend(self, asking: Words, encoding: Encoding) -> Words:
        return self.cross_attention(asking, encoding.memory, encoding.keys)

    def upper_layers(self, u: Words, c: Words, run: Callable[[int, Tensor], Tensor]) -> Words:
        """Run the layers above the bottom: each gets c; residual from the third on."""
        x = u
        for number in range(1, len(self.decoder)):
            new = run(number, torch.cat([self.dropout(x), c], dim=-1))
            x = new + x if number >= FIRST_RESIDUAL else new
        return x
