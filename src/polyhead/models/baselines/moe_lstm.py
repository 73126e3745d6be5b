"""Mixture of experts between LSTM layers: the translator of Shazeer et al. 2017, appendix E.

A shallow GNMT (three encoder layers, two decoder layers) with experts before the last layer of the
encoder and after the first of the decoder. All layers are as wide as a word and residual:

    x = x + dropout(LSTM(x))                             layers; the first one is bidirectional
    x = x + dropout(σ(Σ_i G(x)_i E_i(x)))                experts: layers/mixture_of_experts.py

    c_t   = Σ_i α_ti h_i,   α_t = softmax_i A(h_i, s_{t-1})           h: the encoder's top
    s_t   = LSTM_1([y_{t-1}; c_t])                       attention of the first decoder layer
    A     = Σ_d v_d tanh(U h)_d tanh(W s)_d              appendix G: a product of two tanh
    p(y_t) = softmax(W x)

An LSTM may be wider inside (`d_hidden`): its output, also its state h, is projected (Sak et al.
2014). Only the decoder's first layer depends on attention; experts and layers above process all
words at once.

The paper's model of several languages has flat, noisy gates (top k); those of one language pair
balance the experts per batch (`experts.gating = "balanced"`), and the model in table 2 of Vaswani
et al. 2017 chooses among 2048 experts on two levels, 2 on each (`experts.groups`).

Axes: batch, source, target, beam, d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.bounds import Few
from polyhead.layers.attention import not_padding
from polyhead.layers.attention_scores import Dot, Prepared, Query, ScoredAttention
from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.mixture_of_experts import Experts, ExpertsConfig
from polyhead.layers.recurrent import Encoding, LookBack, Parts, Recurrence, lstm_step
from polyhead.models.baselines.seq2seq import (
    SequenceToSequence,
    Source,
    States,
    StepOutput,
    Target,
    TranslatorConfig,
    Words,
    step_layers,
)

CLOSED = -3.0  # initial bias of the experts' sums: σ(-3) is 0.05


@dataclass(frozen=True)
class MoEConfig(TranslatorConfig):
    """Sizes: `d_ff` of an expert; `d_hidden` of an LSTM defaults to d_model."""

    d_model: int = 256
    d_hidden: int | None = None
    n_layers: Few = 3  # of the encoder
    decoder_layers: Few = 2
    d_ff: int = 512
    dropout: Share = 0.2
    tie: bool = False  # share the target's embedding with the output layer
    experts: ExpertsConfig = field(default_factory=lambda: ExpertsConfig(n=8, k=2))

    def __post_init__(self) -> None:
        if self.n_layers < 2 or self.decoder_layers < 2:
            raise ValueError(
                f"n_layers = {self.n_layers}, decoder_layers = {self.decoder_layers}: expected at "
                "least 2 of each, because experts stand between two layers"
            )
        if self.experts.n < 1:
            raise ValueError("experts.n = 0: expected at least 1; GNMT (gnmt) has none")
        if self.d_hidden is not None and self.d_hidden <= self.d_model:
            raise ValueError(
                f"d_hidden = {self.d_hidden}: expected more than d_model ({self.d_model}); leave "
                "it out for LSTM layers without a projection"
            )
        if self.d_hidden is not None and self.d_hidden % 2:
            raise ValueError(
                f"d_hidden = {self.d_hidden}: expected an even number, because the two directions "
                "of the first layer share it"
            )


def _published(experts: ExpertsConfig, d_ff: int = 2048) -> MoEConfig:
    return MoEConfig(
        32_000, 32_000, d_model=512, d_hidden=2048, d_ff=d_ff, dropout=0.4, experts=experts
    )


# Appendix E. Its dropout is that of models of one language pair; for several it is unconfirmed, as
# is the number of groups of the two hierarchies: one for each of at most 64 devices.
PUBLISHED = {
    "moe-32": _published(ExpertsConfig(n=32, k=4, gating="balanced")),
    "moe-512": _published(ExpertsConfig(n=512, k=2, groups=64, gating="balanced")),
    "moe-2048": _published(ExpertsConfig(n=2048, k=2, groups=64, gating="balanced")),
    "moe-multilingual": _published(ExpertsConfig(n=512, k=2), d_ff=8192),
}


class ProjectedLSTM(Recurrence):
    """LSTM layer of `d_hidden` cells whose output is projected to d_model."""

    def __init__(self, d_model: int, d_hidden: int, d_in: int, *, bidirectional: bool) -> None:
        super().__init__("lstm", d_model, 1, 0.0, d_in=d_in, bidirectional=bidirectional)
        ways = 2 if bidirectional else 1  # both directions
        self.cells: Any = nn.LSTM(
            d_in, d_hidden // ways, batch_first=True, bidirectional=bidirectional,
            proj_size=d_model // ways,
        )  # fmt: skip

    def step(
        self, gates: Float[Tensor, "*any gates"], parts: tuple[Float[Tensor, "layer *any _"], ...]
    ) -> tuple[Float[Tensor, "*any d"], tuple[Float[Tensor, "layer *any _"], ...]]:
        """Compute one step from the gates; return output and states."""
        _, w_h, _, b_h, w_r = self.cells.all_weights[0]
        before = parts[0][0], parts[1][0]
        out, c = lstm_step(gates, F.linear(before[0], w_h, b_h), before)
        h = F.linear(out, w_r)
        return h, (h[None], c[None])


def layer_of(config: MoEConfig, d_in: int, *, bidirectional: bool = False) -> Recurrence:
    """Return an LSTM layer, projected if `d_hidden` differs."""
    if config.d_hidden is None:
        return Recurrence("lstm", config.d_model, 1, 0.0, d_in=d_in, bidirectional=bidirectional)
    return ProjectedLSTM(config.d_model, config.d_hidden, d_in, bidirectional=bidirectional)


class Mixture(nn.Module):
    """Expert layer x + dropout(σ(experts(x)))."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        self.layer = Experts(config.d_model, config.d_ff, "relu", 0.0, config.experts)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        real: Bool[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        return self.dropout.onto(x, torch.sigmoid(self.layer(x, real)))


class Product(Dot):
    """Query v tanh(W s), whose dot product with a key tanh(U h) is A."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.w_s = nn.Linear(d_query, d_key)
        self.v = nn.Parameter(torch.ones(d_key))

    def prepare(self, q: Query, d_key: int) -> Prepared:
        """Multiply each feature by v."""
        del d_key
        return self.v * torch.tanh(self.w_s(q))


class ProductLookBack(LookBack):
    """Attention with score A; its keys are computed once per sentence."""

    def __init__(self, d_model: int) -> None:
        super().__init__(ScoredAttention(Product(d_model, d_model)))
        self.w_h = nn.Linear(d_model, d_model)

    def keys(
        self, h: Float[Tensor, "batch source d_model"]
    ) -> Float[Tensor, "batch source d_model"]:
        return torch.tanh(self.w_h(h))


class MoE(SequenceToSequence):
    """Translator with few LSTM layers and many experts."""

    def __init__(self, config: MoEConfig) -> None:
        d_model = config.d_model
        super().__init__(config, d_model, config.dropout)
        self.encoder = nn.ModuleList(
            layer_of(config, d_model, bidirectional=number == 0)
            for number in range(config.n_layers)
        )
        self.encoder_experts = Mixture(config)
        self.cross_attention = ProductLookBack(d_model)
        self.decoder: Any = nn.ModuleList([layer_of(config, 2 * d_model)])
        self.decoder.extend(layer_of(config, d_model) for _ in range(1, config.decoder_layers))
        self.decoder_experts = Mixture(config)
        self.d_cell = d_model if config.d_hidden is None else config.d_hidden
        # words are small: they reach the output layer through the residual connections
        self.add_output(config, d_model, tied=config.tie, words=0.1)
        # σ starts near 0: dropout of 0.5 would be noise five times as large as words
        for mixture in (self.encoder_experts, self.decoder_experts):
            experts: Any = mixture.layer.experts
            for expert in experts:
                nn.init.constant_(expert.w_2.bias, CLOSED)

    def run_encoder(
        self, x: Float[Tensor, "batch source d_model"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch source d_model"], Parts]:
        """Run the encoder; only the top layer's states are passed on."""
        real = torch.arange(x.size(1), device=x.device) < lengths[:, None]
        for number, layer in enumerate(self.encoder):
            if number == len(self.encoder) - 1:
                x = self.encoder_experts(x, real)
            x = self.dropout.onto(x, layer.encode(x, lengths)[0])
        return x, ()

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        del last
        batch, _, d_model = memory.states.shape
        h, c = (
            memory.states.new_zeros(len(self.decoder), batch, width)
            for width in (d_model, self.d_cell)
        )
        return Encoding(memory, (h, c), self.cross_attention.keys(memory.states))

    def hidden(self, source: Source, target: Target) -> Words:
        """Return the input of the output layer; experts skip the target's padding."""
        encoding = self.encode(source)
        x = self.dropout(self.embed_target(target))
        return self.decode_all(x, encoding, not_padding(target, self.pad).keys)

    def decode_all(
        self, x: Words, encoding: Encoding, real: Bool[Tensor, "batch word"] | None = None
    ) -> Words:
        """Run the first layer word by word, then the others on all words."""
        parts = tuple(part[:1, :, None] for part in encoding.state)
        steps = []
        for word in self.decoder[0].gates(x).split(1, dim=1):
            h, parts = self.attend_and_step(word, parts, encoding)
            steps.append(h)
        start = tuple(part[:1] for part in encoding.state)
        return self.upper_layers(
            x, torch.cat(steps, dim=1), real, lambda n, below: self.decoder[n](below, start)[0]
        )

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        states, take = step_layers(self.decoder, parts)
        h, states[0] = self.attend_and_step(self.decoder[0].gates(x), states[0], encoding)
        top = self.upper_layers(x, h, None, take)
        return top, tuple(torch.cat(part) for part in zip(*states, strict=True))

    def attend_and_step(
        self, gates: Words, state: States, encoding: Encoding
    ) -> tuple[Words, States]:
        """Attend with s_{t-1} and compute a step of the first layer."""
        first: Recurrence = self.decoder[0]
        c = self.cross_attention(state[0][0], encoding.memory, encoding.keys)
        return first.step(gates + first.gates(c, start=c.size(-1)), state)

    def upper_layers(
        self, x: Tensor, first: Tensor, real: Tensor | None, run: Callable[[int, Tensor], Tensor]
    ) -> Words:
        """Run the layers above the first."""
        x = self.decoder_experts(self.dropout.onto(x, first), real)
        for number in range(1, len(self.decoder)):
            x = self.dropout.onto(x, run(number, x))
        return x

    def output(self, h: Words, x: Words, encoding: Encoding) -> Words:
        """Return the top layer unchanged; every layer has had its dropout."""
        del x, encoding
        return h
