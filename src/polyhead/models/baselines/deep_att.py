"""Deep-Att (Zhou et al. 2016): deep LSTM stacks with fast-forward connections.

An LSTM layer applies a matrix to its input, then steps through time. Fast-forward connections link
these matrices, giving a linear path from the words to the top:

    f^1_t = W^1 x_t                                   input of the gates (4 d_model wide)
    f^k_t = W^k [half(f^{k-1}_t); dropout(h^{k-1}_t)]     half: the first half of its numbers
    h^k_t = LSTM(f^k_t, h^k_{t∓1})

    encoder    two columns of such layers; layers read from left and right in turn, one column
               beginning at the left, the other at the right
               e_t = W_p [h; h'; f; f']               the tops of both columns, a quarter as wide
    attention  c_t = Σ_i α_ti e_i,   α_t = softmax_i vᵀ tanh(W_s h^1_{t-1} + W_h e_i)
    decoder    f^1_t = W^1 [y_{t-1}; c_t], then as above, all from the left
               p(y_t) = softmax(W [h^n_t; f^n_t])

Only the decoder's first layer depends on attention; those above process all words at once. Where
the paper leaves details open, we chose the simplest: the decoder starts with zeros; a matrix maps
[h; f] to the width of a word for the output.

Axes: batch, source, target, beam, d_model.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.bounds import Few
from polyhead.layers.attention_scores import ScoreKind
from polyhead.layers.dropout import Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Encoding, Parts, lstm_step, make_look_back, turned
from polyhead.models.baselines.seq2seq import (
    SequenceToSequence,
    States,
    StepOutput,
    TranslatorConfig,
    Words,
    check_recurrent,
)


@dataclass(frozen=True)
class DeepAttConfig(TranslatorConfig):
    """Sizes: `n_layers` per encoder column; `d_embed` defaults to d_model."""

    d_model: int = 256
    d_embed: int | None = None
    n_layers: Few = 3
    decoder_layers: Few = 3
    dropout: Share = 0.1
    score: ScoreKind = "additive"
    teacher_forcing: float = 1.0
    tie: bool = False  # share the target's embedding with the output layer

    def __post_init__(self) -> None:
        check_recurrent(self.teacher_forcing, bidirectional=True, reverse_source=False)
        if self.n_layers < 1 or self.decoder_layers < 1:
            raise ValueError(
                f"n_layers = {self.n_layers}, decoder_layers = {self.decoder_layers}: "
                "expected at least 1 of each"
            )


# Depths, cells, words (section 4.2), dropout (4.3) and the width of e agree with a review of the
# paper. The vocabularies (4.1) are unconfirmed: no source was found.
PUBLISHED = {
    "deep-att": DeepAttConfig(
        30_000, 30_000, d_model=512, d_embed=256, n_layers=9, decoder_layers=7, dropout=0.1
    )
}


class Layer(nn.Module):
    """LSTM layer that also returns f, the output of its input matrix."""

    def __init__(self, d_in: int, d_model: int) -> None:
        super().__init__()
        self.w_f = nn.Linear(d_in, 4 * d_model)
        self.w_h = nn.Linear(d_model, 4 * d_model, bias=False)

    def begin(self) -> None:
        """Initialize matrices so that f keeps its size, and open the forget gates."""
        nn.init.normal_(self.w_f.weight, std=self.w_f.in_features**-0.5)
        nn.init.zeros_(self.w_f.bias)
        nn.init.ones_(self.w_f.bias[self.w_h.in_features : 2 * self.w_h.in_features])

    def step(
        self, f: Float[Tensor, "*any gates"], h: Float[Tensor, "*any d"], c: Float[Tensor, "*any d"]
    ) -> tuple[Float[Tensor, "*any d"], Float[Tensor, "*any d"]]:
        new_h, new_c = lstm_step(f, self.w_h(h), (h, c))
        return new_h, new_c

    def forward(self, f: Float[Tensor, "batch length gates"]) -> Float[Tensor, "batch length d"]:
        """Compute all steps, from zeros."""
        h = c = f.new_zeros(len(f), self.w_h.in_features)
        states = []
        for gates in f.unbind(1):
            h, c = self.step(gates, h, c)
            states.append(h)
        return torch.stack(states, dim=1)


def column(d_in: int, d_model: int, n_layers: int) -> nn.ModuleList:
    """Return a column of layers with fast-forward connections."""
    widths = [d_in] + [3 * d_model] * (n_layers - 1)  # above: half of 4 d, and d
    return nn.ModuleList(Layer(width, d_model) for width in widths)


class DeepAtt(SequenceToSequence):
    """Recurrent translator with two interleaved encoder columns and attention."""

    def __init__(self, config: DeepAttConfig) -> None:
        d_model, d_memory = config.d_model, 10 * config.d_model // 4
        d_embed = config.d_embed or d_model
        super().__init__(config, d_embed, config.dropout)
        self.teacher_forcing, self.d_embed = config.teacher_forcing, d_embed
        self.encoder = nn.ModuleList(
            column(d_embed, d_model, config.n_layers) for _ in ("left", "right")
        )
        self.w_p = nn.Linear(10 * d_model, d_memory)
        self.cross_attention = make_look_back(config.score, d_model, d_memory)
        self.decoder: Any = column(d_embed + d_memory, d_model, config.decoder_layers)
        self.w_o = nn.Linear(5 * d_model, d_embed)
        self.add_output(config, d_embed, tied=config.tie)
        for module in self.modules():
            if isinstance(module, Layer):
                module.begin()
        # e as small as an LSTM's h; larger values would saturate the scores' tanh
        nn.init.normal_(self.w_p.weight, std=0.4 * self.w_p.in_features**-0.5)

    def run_encoder(
        self, x: Float[Tensor, "batch source d_embed"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch source d_memory"], Parts]:
        """Run both columns; every layer reads in the opposite direction of the one below."""
        tops = []
        for starts_right, column in enumerate(self.encoder):
            below = x
            for number, layer in enumerate(column):
                f = layer.w_f(below)
                if (number + starts_right) % 2:
                    h = turned(layer(turned(f, lengths)), lengths)
                else:
                    h = layer(f)
                below = self.forward_fast(f, h)
            tops += [h, f]
        return self.w_p(torch.cat(tops, dim=-1)), ()

    def forward_fast(self, f: Tensor, h: Tensor) -> Tensor:
        return torch.cat([f[..., : f.size(-1) // 2], self.dropout(h)], dim=-1)

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        del last
        d_model = self.decoder[0].w_h.in_features
        zeros = memory.states.new_zeros(len(self.decoder), len(memory.states), d_model)
        return Encoding(memory, (zeros, zeros), self.cross_attention.keys(memory.states))

    def prepare(self, x: Words) -> Words:
        """Return the contribution of y_{t-1} to f^1."""
        first = self.decoder[0].w_f
        return F.linear(x, first.weight[:, : self.d_embed], first.bias)

    def attend_and_step(
        self, x: Words, h: Words, c: Words, encoding: Encoding
    ) -> tuple[Words, Words, Words]:
        """Attend with h^1_{t-1} and compute a step of the first layer: f^1, h^1 and its cell."""
        layer = self.decoder[0]
        context = self.cross_attention(h, encoding.memory, encoding.keys)
        f = x + F.linear(context, layer.w_f.weight[:, self.d_embed :])
        return f, *layer.step(f, h, c)

    def decode_all(self, x: Words, encoding: Encoding) -> Words:
        """Run the first layer word by word, then the others on all words; return [h; f]."""
        h, c = (part[0][:, None] for part in encoding.state)
        rows = []
        for word in x.split(1, dim=1):
            f, h, c = self.attend_and_step(word, h, c, encoding)
            rows.append(torch.cat([h, f], dim=-1))
        h, f = torch.cat(rows, dim=1).split([h.size(-1), x.size(-1)], dim=-1)
        for number in range(1, len(self.decoder)):
            layer = self.decoder[number]
            f = layer.w_f(self.forward_fast(f, h))
            h = layer(f)
        return torch.cat([h, f], dim=-1)

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        """Run all layers on one word; return [h; f] of the last."""
        f, h, c = self.attend_and_step(x, parts[0][0], parts[1][0], encoding)
        states = [(h, c)]
        for number in range(1, len(self.decoder)):
            layer = self.decoder[number]
            f = layer.w_f(self.forward_fast(f, h))
            h, c = layer.step(f, parts[0][number], parts[1][number])
            states.append((h, c))
        new = tuple(torch.stack(part) for part in zip(*states, strict=True))
        return torch.cat([h, f], dim=-1), new

    def output(self, h: Words, x: Words, encoding: Encoding) -> Words:
        """Return W_o [h; f] of the last layer."""
        del x, encoding
        return self.dropout(self.w_o(self.dropout(h)))
