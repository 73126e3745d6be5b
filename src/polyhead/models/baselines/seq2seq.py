"""Sequence to sequence without attention: the source as one vector.

    h_1 … h_n = encoder(source)                     a stack of RNN, GRU or LSTM layers
    s_t       = decoder(y_{t-1}, s_{t-1})           s_0 = h_n
    p(y_t)    = softmax(W s_t)                      `context = "first"`: Sutskever et al. 2014

    s_t       = decoder([y_{t-1}; h_n], s_{t-1})
    p(y_t)    = softmax(W maxout([s_t; y_{t-1}; h_n]))    `context = "everywhere"`: Cho et al. 2014

    s_0 = tanh(V' c),   c = tanh(V h_n) in place of h_n   `bridge = true`: Cho et al. 2014, A.1

The bridge is these two layers between encoder and decoder; the recipes for small data have none.
Cho's GRU applies r to h before the matrix, PyTorch's after it; its output layer had two factors.

Sutskever et al. reverse the source (`reverse_source`), which gained 4.7 BLEU: the first words of
both sentences are then close together.

`SequenceToSequence` is the base of all recurrent translators (this one, Bahdanau, Luong, ladder,
Deep-Att, GNMT): encoding, teacher forcing, and the decoding protocol.

Axes: batch, source, target, beam (hypotheses of one sentence), d_model, d_embed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.bounds import Few
from polyhead.layers.attention import not_padding
from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Cell, Encoding, Parts, Recurrence, RecurrentState, turned

Source = Int[Tensor, "batch source"]
Target = Int[Tensor, "batch target"]
Words = Float[Tensor, "batch word _"]  # positions of a target, or the beams of one step
States = tuple[Tensor, ...]  # (layer, batch, beam, d_model) each
StepOutput = tuple[Words, States]  # output of one step, and the new states


@dataclass(frozen=True)
class TranslatorConfig:
    """Vocabularies of a translator."""

    source_vocab: int = 8_000
    target_vocab: int = 8_000
    pad: int = 0


class SequenceToSequence(nn.Module):
    """Base of recurrent encoder-decoders: `forward` for training, `begin` and `step` for decoding.

    Subclasses create an `encoder`, a decoder and the output layer (`add_output`), and define the
    encoder's run (`run_encoder`), the decoder's initial state (`init_decoder`) and one step
    (`decode_step`). They may compute all words at once faster (`decode_all`).

    teacher_forcing: probability of the reference word, not the model's own, as input in training.
    """

    encoder: Any
    to_logits: nn.Linear
    teacher_forcing = 1.0
    reverse_source = False

    def __init__(self, config: TranslatorConfig, d_embed: int, dropout: float) -> None:
        super().__init__()
        self.pad = config.pad
        self.embed_source = nn.Embedding(config.source_vocab, d_embed)
        self.embed_target = nn.Embedding(config.target_vocab, d_embed)
        self.dropout = Dropout(dropout)

    def add_output(
        self, config: TranslatorConfig, d_output: int, *, tied: bool, words: float = 0.5
    ) -> None:
        """Create the output layer, initialize all weights, and share the target's embedding."""
        self.to_logits = nn.Linear(d_output, config.target_vocab)
        uniform(self, words=words)
        if tied:
            tie(self.to_logits, self.embed_target)

    def encode(self, source: Source) -> Encoding:
        """Encode the source. h_i belongs to word i, also if the source is reversed."""
        lengths = (source != self.pad).sum(1).clamp(min=1)
        x = self.dropout(self.embed_source(source))
        if self.reverse_source:
            states, last = self.run_encoder(turned(x, lengths), lengths)
            states = turned(states, lengths)
        else:
            states, last = self.run_encoder(x, lengths)
        return self.init_decoder(Memory(states, not_padding(source, self.pad)), last)

    def run_encoder(
        self, x: Float[Tensor, "batch source d_embed"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch source d_memory"], Parts]:
        """Return the encoder's state after every word, and that of all layers after the last."""
        encoded: tuple[Tensor, Parts] = self.encoder.encode(x, lengths)
        return encoded

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        """Return the encoding with the decoder's initial state."""
        return Encoding(memory, last)

    def prepare(self, x: Words) -> Words:
        """Compute the part of a step that needs no state, for all words at once."""
        return x

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        """Read one more word of every hypothesis; return the input of `output` and new states."""
        raise NotImplementedError

    def decode_all(self, x: Words, encoding: Encoding) -> Words:
        """Decode all words of a known target, by default one after the other."""
        parts = tuple(part[:, :, None] for part in encoding.state)
        steps = []
        for word in x.split(1, dim=1):
            h, parts = self.decode_step(word, parts, encoding)
            steps.append(h)
        return torch.cat(steps, dim=1)

    def output(self, h: Words, x: Words, encoding: Encoding) -> Words:
        """Return the input of the output layer, for all words at once."""
        del x, encoding
        return self.dropout(h)

    def hidden(self, source: Source, target: Target) -> Words:
        """Return the input of the output layer."""
        if self.training and self.teacher_forcing < 1.0:
            return self._decode_free_running(source, target)
        encoding = self.encode(source)
        x = self.dropout(self.embed_target(target))
        return self.output(self.decode_all(self.prepare(x), encoding), x, encoding)

    def forward(self, source: Source, target: Target) -> Float[Tensor, "batch target vocab"]:
        return self.to_logits(self.hidden(source, target))

    def begin(self, source: Source, *, width: int = 1, max_length: int = 256) -> RecurrentState:
        """Encode the source for `width` hypotheses; the state does not depend on `max_length`."""
        del max_length
        encoding = self.encode(source)
        parts = (part[:, :, None].expand(-1, -1, width, -1) for part in encoding.state)
        return RecurrentState(tuple(parts), encoding)

    def step(
        self, last: Int[Tensor, "batch beam"], state: RecurrentState
    ) -> Float[Tensor, "batch beam vocab"]:
        """Read a token of every hypothesis and score the next; beams use the axis of positions."""
        x = self.dropout(self.embed_target(last))
        h, state.parts = self.decode_step(self.prepare(x), state.parts, state.encoding)
        return self.to_logits(self.output(h, x, state.encoding))

    def _decode_free_running(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute `hidden` with the model's own words as input, mixed by teacher forcing."""
        encoding = self.encode(source)
        parts = tuple(part[:, :, None] for part in encoding.state)
        rows: list[Tensor] = []
        for right in target.split(1, dim=1):
            last = self._choose_input(right, rows[-1]) if rows else right
            x = self.dropout(self.embed_target(last))
            h, parts = self.decode_step(self.prepare(x), parts, encoding)
            rows.append(self.output(h, x, encoding))
        return torch.cat(rows, dim=1)

    @torch.no_grad()
    def _choose_input(self, right: Tensor, h: Tensor) -> Tensor:
        """Return the reference word with probability `teacher_forcing`, else the likeliest."""
        forced = torch.rand(right.shape, device=right.device) < self.teacher_forcing
        return torch.where(forced, right, self.to_logits(h).argmax(-1))


def uniform(model: nn.Module, bound: float = 0.1, words: float = 0.5) -> None:
    """Initialize uniformly within ±bound: recurrent translators (Sutskever et al. 2014, 3.4).

    Embeddings get N(0, words²): as small as the rest, they could hardly be distinguished early in
    training, and attention would have nothing to select. Attention scores keep their own
    initialization. LSTM biases are 0, those of forget gates 1 (Jozefowicz et al. 2015): σ(0) would
    halve the cell state at every word.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.RNNBase):
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -bound, bound)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=words)
        if isinstance(module, nn.LSTM):
            size = module.hidden_size
            for name, parameter in module.named_parameters():
                if name.startswith("bias"):
                    nn.init.zeros_(parameter)
                if name.startswith("bias_ih"):
                    nn.init.ones_(parameter[size : 2 * size])  # the second of four gates


def step_layers(
    decoder: Any, parts: States
) -> tuple[list[States], Callable[[int, Tensor], Tensor]]:
    """Return the states by layer, and a function that computes a step of one layer in them."""
    states = [tuple(part[None] for part in layer) for layer in zip(*parts, strict=True)]

    def take(number: int, below: Tensor) -> Tensor:
        layer: Recurrence = decoder[number]
        out, states[number] = layer.step(layer.gates(below), states[number])
        return out

    return states, take


class Bridge(nn.Module):
    """Layers from the encoder's last state to the decoder's first."""

    def __init__(self, cell: Cell, d_encoder: int, d_model: int) -> None:
        super().__init__()
        n_parts = 2 if cell == "lstm" else 1
        self.over = nn.ModuleList(nn.Linear(d_encoder, d_model) for _ in range(n_parts))

    def forward(self, last: Parts) -> Parts:
        return bridged(self.over, last)


def bridged(layers: nn.ModuleList, last: Parts) -> Parts:
    """Apply its own layer to each part of a state."""
    parts = [layer(part) for layer, part in zip(layers, last, strict=True)]
    return (torch.tanh(parts[0]), *parts[1:])  # h is the output of a tanh, the c of an LSTM is not


class Maxout(nn.Module):
    """Maximum of two linear functions for each output (Cho et al. 2014, A.2)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.w = nn.Linear(d_in, 2 * d_out)

    def forward(self, x: Float[Tensor, "*any d_in"]) -> Float[Tensor, "*any d_out"]:
        return self.w(x).unflatten(-1, (-1, 2)).amax(-1)


def check_recurrent(teacher_forcing: float, bidirectional: bool, reverse_source: bool) -> None:
    """Check the options shared by all recurrent translators."""
    if not 0.0 <= teacher_forcing <= 1.0:
        raise ValueError(f"teacher_forcing = {teacher_forcing}: expected 0 to 1")
    if bidirectional and reverse_source:
        raise ValueError(
            "reverse_source = true: a bidirectional encoder reads from both ends already; "
            "set one of the two to false"
        )


def tie(to_logits: nn.Linear, embedding: nn.Embedding) -> None:
    """Share the embedding with the output layer (Press & Wolf 2017)."""
    if to_logits.in_features != embedding.embedding_dim:
        raise ValueError(
            f"tie = true: the output layer reads {to_logits.in_features} numbers, but a word has "
            f"{embedding.embedding_dim}; make them equal, or set tie = false"
        )
    to_logits.weight = embedding.weight


@dataclass(frozen=True)
class Seq2SeqConfig(TranslatorConfig):
    """Sizes: `d_embed` of words and `d_output` of the maxout default to d_model."""

    cell: Cell = "lstm"
    d_model: int = 256
    d_embed: int | None = None
    n_layers: Few = 2
    dropout: Share = 0.2
    context: Literal["first", "everywhere"] = "first"
    bridge: bool = False
    d_output: int | None = None
    teacher_forcing: float = 1.0
    bidirectional: bool = False  # bidirectional encoder, d_model / 2 each
    reverse_source: bool = False
    tie: bool = False  # share the target's embedding with the output layer

    def __post_init__(self) -> None:
        check_recurrent(self.teacher_forcing, self.bidirectional, self.reverse_source)
        if self.d_output is not None and self.context == "first":
            raise ValueError(
                f"d_output = {self.d_output}: it is the width of a maxout, which only "
                'context = "everywhere" has; leave it out'
            )


PUBLISHED = {
    "sutskever": Seq2SeqConfig(
        160_000, 80_000, d_model=1000, n_layers=4, dropout=0.0, reverse_source=True
    ),
    "cho": Seq2SeqConfig(
        15_000, 15_000, cell="gru", d_model=1000, d_embed=100, n_layers=1, dropout=0.0,
        context="everywhere", bridge=True, d_output=500,
    ),
}  # fmt: skip


class Seq2Seq(SequenceToSequence):
    """Translator whose decoder gets the source as one vector."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        d_model, cell, n_layers = config.d_model, config.cell, config.n_layers
        d_embed = d_model if config.d_embed is None else config.d_embed
        super().__init__(config, d_embed, config.dropout)
        self.teacher_forcing, self.reverse_source = config.teacher_forcing, config.reverse_source
        self.everywhere = config.context == "everywhere"
        self.encoder = Recurrence(
            cell, d_model, n_layers, config.dropout,
            d_in=d_embed, bidirectional=config.bidirectional,
        )  # fmt: skip
        self.v = nn.Linear(d_model, d_model) if config.bridge else None
        has_bridge = config.bridge or config.bidirectional
        self.bridge = Bridge(cell, d_model, d_model) if has_bridge else None
        d_in = d_embed + (d_model if self.everywhere else 0)
        self.decoder = Recurrence(cell, d_model, n_layers, config.dropout, d_in=d_in)
        d_output = config.d_output or d_model
        self.deep_output = (
            Maxout(2 * d_model + d_embed, d_output) if self.everywhere else nn.Identity()
        )
        self.add_output(config, d_output, tied=config.tie)

    def init_decoder(self, memory: Memory, last: Parts) -> Encoding:
        """Initialize the decoder with the encoder's last state; two directions need a bridge."""
        if self.bridge is None:
            return Encoding(memory, last)
        if self.v is None:
            return Encoding(memory, self.bridge(last))
        c = torch.tanh(self.v(last[0][-1]))
        everywhere = c.expand(len(last[0]), -1, -1)  # in all layers; the paper has one layer
        return Encoding(memory, self.bridge((everywhere,) * len(last)), context=c)

    def decode_all(self, x: Words, encoding: Encoding) -> Words:
        """Decode all words in one call; there is no attention to wait for."""
        if self.everywhere:
            x = torch.cat([x, encoding.summary[:, None].expand(-1, x.size(1), -1)], dim=-1)
        return self.decoder(x, encoding.state)[0]

    def decode_step(self, x: Words, parts: States, encoding: Encoding) -> StepOutput:
        gates = self.decoder.gates(x)
        if self.everywhere:
            gates = gates + self.decoder.gates(encoding.summary[:, None], start=x.size(-1))
        return self.decoder.step(gates, parts)

    def output(self, h: Words, x: Words, encoding: Encoding) -> Words:
        """Return s_t, or the maxout of state, word and context."""
        if self.everywhere:
            summary = encoding.summary[:, None].expand(-1, x.size(1), -1)
            h = torch.cat([h, x, summary], dim=-1)
        return self.dropout(self.deep_output(h))
