"""A mixture of experts between LSTM layers: Shazeer et al. 2017, their translator (appendix E).

It is GNMT made shallow (three layers that read, two that write), with experts before the last layer
of the encoder and after the first of the decoder. All layers are as wide as a word, and whatever a
layer finds is added to what it was given:

    x = x + dropout(LSTM(x))                             layers; the first one reads from both ends
    x = x + dropout(σ(Σ_i G(x)_i E_i(x)))                experts: layers/mixture_of_experts.py

    c_t   = Σ_i α_ti h_i,   α_t = softmax_i A(h_i, s_{t-1})           h: the encoder's top
    s_t   = LSTM_1([y_{t-1}; c_t])                       the first layer of the decoder asks and is
    A     = Σ_d v_d tanh(U h)_d tanh(W s)_d              told (appendix G: a product of two tanh)
    p(y_t) = softmax(W x)

An LSTM may be wider inside than outside (`d_hidden`): its output, which is also its state h, is
then projected (Sak et al. 2014). The first layer of the decoder has to wait for what it found;
experts and layers above it take all words at once.

Gating is flat and noisy (top k), as in the paper's multilingual model. Its models of one language
pair choose experts so that all get equally many words of a batch (appendix F), and the one of which
Vaswani et al. 2017 speak in their table 2 has a hierarchy: 2048 experts on two levels, of each of
which 2 are chosen (appendices B and E). There is no preset of it.

Axes: batch, source, target, beam, d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from polyhead.layers.attention_scores import Dot, ScoredAttention
from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.init import uniform
from polyhead.layers.kv_cache import Memory
from polyhead.layers.masks import not_padding
from polyhead.layers.mixture_of_experts import Experts, ExpertsConfig
from polyhead.layers.recurrent import Encoding, LookBack, Parts, Recurrence, lstm_step
from polyhead.models.baselines.seq2seq import SequenceToSequence, Turn, tie

CLOSED = -3.0  # where experts' sums begin: σ(-3) is 0.05


@dataclass(frozen=True)
class MoEConfig:
    """`d_ff` is the inner width of an expert, `d_hidden` that of an LSTM: d_model unless given."""

    source_vocab: int = 8_000
    target_vocab: int = 8_000
    pad: int = 0
    d_model: int = 256
    d_hidden: int | None = None
    n_layers: int = 3  # of the encoder
    decoder_layers: int = 2
    d_ff: int = 512
    dropout: Share = 0.2
    tie: bool = False  # one table for the target's embedding and the output layer
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


# Appendix E. Its dropout is that of models of one language pair; for several it is unconfirmed.
PUBLISHED = {
    "moe-32": MoEConfig(
        32_000, 32_000, d_model=512, d_hidden=2048, d_ff=2048, dropout=0.4,
        experts=ExpertsConfig(n=32, k=4),
    ),
    "moe-multilingual": MoEConfig(
        32_000, 32_000, d_model=512, d_hidden=2048, d_ff=8192, dropout=0.4,
        experts=ExpertsConfig(n=512, k=2),
    ),
}  # fmt: skip


class ProjectedLSTM(Recurrence):
    """An LSTM layer of `d_hidden` cells whose output is brought down to d_model."""

    def __init__(self, d_model: int, d_hidden: int, d_in: int, *, bidirectional: bool) -> None:
        super().__init__("lstm", d_model, 1, 0.0, d_in=d_in, bidirectional=bidirectional)
        ways = 2 if bidirectional else 1  # which share both widths
        self.cells: Any = nn.LSTM(
            d_in,
            d_hidden // ways,
            batch_first=True,
            bidirectional=bidirectional,
            proj_size=d_model // ways,
        )

    def turn(
        self, gates: Float[Tensor, "*any gates"], parts: tuple[Float[Tensor, "layer *any _"], ...]
    ) -> tuple[Float[Tensor, "*any d"], tuple[Float[Tensor, "layer *any _"], ...]]:
        """One step, given the gates: the output, and the states."""
        _, w_h, _, b_h, w_r = self.cells.all_weights[0]
        before = parts[0][0], parts[1][0]
        out, c = lstm_step(gates, F.linear(before[0], w_h, b_h), before)
        h = F.linear(out, w_r)
        return h, (h[None], c[None])


def layer_of(config: MoEConfig, d_in: int, *, bidirectional: bool = False) -> Recurrence:
    """An LSTM layer, projected or not."""
    if config.d_hidden is None:
        return Recurrence("lstm", config.d_model, 1, 0.0, d_in=d_in, bidirectional=bidirectional)
    return ProjectedLSTM(config.d_model, config.d_hidden, d_in, bidirectional=bidirectional)


class Mixture(nn.Module):
    """x + dropout(σ(experts(x))): what stands between two layers."""

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
    """v tanh(W s): the query whose dot product with a key tanh(U h) is A."""

    def __init__(self, d_query: int, d_key: int) -> None:
        super().__init__()
        self.w_s = nn.Linear(d_query, d_key)
        self.v = nn.Parameter(torch.ones(d_key))

    def prepare(
        self, q: Float[Tensor, "batch head query d_query"], d_key: int
    ) -> Float[Tensor, "batch head query d_key"]:
        """Weigh each number by v."""
        del d_key
        return self.v * torch.tanh(self.w_s(q))


class ProductLookBack(LookBack):
    """Attention by A, whose keys are the same for every word written."""

    def __init__(self, d_model: int) -> None:
        super().__init__(ScoredAttention(Product(d_model, d_model)))
        self.w_h = nn.Linear(d_model, d_model)

    def keys(
        self, h: Float[Tensor, "batch source d_model"]
    ) -> Float[Tensor, "batch source d_model"]:
        """tanh(U h)."""
        return torch.tanh(self.w_h(h))


class MoE(SequenceToSequence):
    """Few LSTM layers and many experts."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__(config.pad, 1.0, reverse_source=False)
        d_model = config.d_model
        self.embed_source = nn.Embedding(config.source_vocab, d_model)
        self.embed_target = nn.Embedding(config.target_vocab, d_model)
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
        self.dropout = Dropout(config.dropout)
        self.to_logits = nn.Linear(d_model, config.target_vocab)
        uniform(self, words=0.1)  # they go up to the output layer, which may be their own table
        self._quieten()
        if config.tie:
            tie(self.to_logits, self.embed_target)

    def _quieten(self) -> None:
        """Let σ begin near 0: dropout of 0.5 everywhere is noise five times as large as words."""
        for mixture in (self.encoder_experts, self.decoder_experts):
            experts: Any = mixture.layer.experts
            for expert in experts:
                nn.init.constant_(expert.w_2.bias, CLOSED)

    def read(
        self, x: Float[Tensor, "batch source d_model"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch source d_model"], Parts]:
        """Up the encoder; it hands over nothing but the top layer's states."""
        real = torch.arange(x.size(1), device=x.device) < lengths[:, None]
        for number, layer in enumerate(self.encoder):
            if number == len(self.encoder) - 1:
                x = self.encoder_experts(x, real)
            x = self.dropout.onto(x, layer.read(x, lengths)[0])
        return x, ()

    def offer(self, memory: Memory, last: Parts) -> Encoding:
        """The decoder begins with zeros."""
        del last
        batch, _, d_model = memory.states.shape
        h, c = (
            memory.states.new_zeros(len(self.decoder), batch, width)
            for width in (d_model, self.d_cell)
        )
        return Encoding(memory, (h, c), self.cross_attention.keys(memory.states))

    def hidden(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_model"]:
        """What the last layer sees; experts are not asked about the target's padding either."""
        encoding = self.encode(source)
        x = self.dropout(self.embed_target(target))
        return self.write(x, encoding, not_padding(target, self.pad).keys)

    def write(
        self,
        x: Float[Tensor, "batch target d_model"],
        encoding: Encoding,
        real: Bool[Tensor, "batch target"] | None = None,
    ) -> Float[Tensor, "batch target d_model"]:
        """The first layer word by word, then all words of each layer."""
        parts = tuple(part[:1, :, None] for part in encoding.state)
        found = []
        for word in self.decoder[0].gates(x).split(1, dim=1):
            one, parts = self.ask(word, parts, encoding)
            found.append(one)
        start = tuple(part[:1] for part in encoding.state)
        return self.climb(
            x, torch.cat(found, dim=1), real, lambda n, below: self.decoder[n](below, start)[0]
        )

    def turn(
        self, x: Float[Tensor, "batch beam d_model"], parts: tuple[Tensor, ...], encoding: Encoding
    ) -> Turn:
        """All layers of one word."""
        states = [(h[None], c[None]) for h, c in zip(*parts, strict=True)]  # by layer

        def take(number: int, below: Tensor) -> Tensor:
            layer = self.decoder[number]
            out, states[number] = layer.turn(layer.gates(below), states[number])
            return out

        one, states[0] = self.ask(self.decoder[0].gates(x), states[0], encoding)
        top = self.climb(x, one, None, take)
        return top, tuple(torch.cat(part) for part in zip(*states, strict=True))

    def ask(
        self, gates: Float[Tensor, "batch beam gates"], state: Any, encoding: Encoding
    ) -> tuple[Tensor, Any]:
        """Look back with s_{t-1}, and let the first layer take a step with what was found."""
        first = self.decoder[0]
        c = self.cross_attention(state[0][0], encoding.memory, encoding.keys)
        return first.turn(gates + first.gates(c, start=c.size(-1)), state)

    def climb(
        self, x: Tensor, first: Tensor, real: Tensor | None, run: Callable[[int, Tensor], Tensor]
    ) -> Float[Tensor, "batch target d_model"]:
        """From what the first layer found to the top."""
        x = self.decoder_experts(self.dropout.onto(x, first), real)
        for number in range(1, len(self.decoder)):
            x = self.dropout.onto(x, run(number, x))
        return x

    def output(
        self,
        found: Float[Tensor, "batch target d_model"],
        x: Float[Tensor, "batch target d_model"],
        encoding: Encoding,
    ) -> Float[Tensor, "batch target d_model"]:
        """The top as it is: every layer has had its dropout."""
        del x, encoding
        return found
