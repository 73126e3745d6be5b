"""Sequence to sequence without attention: one vector stands for the whole sentence.

    h_1 … h_n = encoder(source)                     a stack of RNN, GRU or LSTM layers
    s_t       = decoder(y_{t-1}, s_{t-1})           s_0 = h_n
    p(y_t)    = softmax(W s_t)                      `context = "first"`: Sutskever et al. 2014

    s_t       = decoder([y_{t-1}; h_n], s_{t-1})
    p(y_t)    = softmax(W maxout([s_t; y_{t-1}; h_n]))    `context = "everywhere"`: Cho et al. 2014

    s_0 = tanh(V' c),   c = tanh(V h_n) in place of h_n   `bridge = true`: Cho et al. 2014, A.1

A model with a bridge has these two layers between its halves, as that of Cho et al.; ours for small
data do without. Their GRU applies r to h before the matrix, PyTorch's behind it, and their output
layer was factored into two matrices.

Sutskever et al. let the encoder read the words backwards (`reverse_source`): the first words of
both sentences then lie close together, which was worth 4.7 BLEU.

`SequenceToSequence` is what all recurrent translators share (this one, Bahdanau's, Luong's, the
ladder, Deep-Att, GNMT): reading, teacher forcing, and the protocol of decoding.

Axes: batch, source, target, beam (hypotheses of one sentence, side by side), d_model, d_embed.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.init import uniform
from polyhead.layers.kv_cache import Memory
from polyhead.layers.masks import not_padding
from polyhead.layers.recurrent import (
    Cell,
    Encoding,
    Parts,
    Recurrence,
    RecurrentState,
    turned,
)

Turn = tuple[Tensor, tuple[Tensor, ...]]  # what one step found, and the states it leaves


class SequenceToSequence(nn.Module):
    """A recurrent encoder and decoder. `forward` trains, `begin` and `step` decode.

    Whoever inherits has `embed_source`, `embed_target`, `dropout`, `to_logits`, and says how to
    read (`read`), what the decoder begins with (`offer`), and what it does with a word (`turn`). It
    may say faster what it does with all words at once (`write`).
    """

    embed_source: nn.Embedding
    embed_target: nn.Embedding
    dropout: Dropout
    to_logits: nn.Linear
    encoder: Any

    def __init__(self, pad: int, teacher_forcing: float, reverse_source: bool) -> None:
        super().__init__()
        self.pad = pad
        self.teacher_forcing = teacher_forcing
        self.reverse_source = reverse_source

    # --- reading ---

    def encode(self, source: Int[Tensor, "batch source"]) -> Encoding:
        """Read the source. h_i belongs to word i, even if the words were read backwards."""
        lengths = (source != self.pad).sum(1).clamp(min=1)
        x = self.dropout(self.embed_source(source))
        if self.reverse_source:
            states, last = self.read(turned(x, lengths), lengths)
            states = turned(states, lengths)
        else:
            states, last = self.read(x, lengths)
        return self.offer(Memory(states, not_padding(source, self.pad)), last)

    def read(
        self, x: Float[Tensor, "batch source d_embed"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch source d_memory"], Parts]:
        """The encoder's state after every word, and that of all layers after the last."""
        states, last = self.encoder.read(x, lengths)
        return states, last

    def offer(self, memory: Memory, last: Parts) -> Encoding:
        """What the decoder gets: `state` is what it begins with."""
        return Encoding(memory, last)

    # --- writing ---

    def prepare(self, x: Float[Tensor, "batch length d_embed"]) -> Float[Tensor, "batch length _"]:
        """What of a word's work needs no state, done for all words at once."""
        return x

    def turn(
        self, x: Float[Tensor, "batch beam _"], parts: tuple[Tensor, ...], encoding: Encoding
    ) -> Turn:
        """One more word of every hypothesis: what `output` needs, and the new states."""
        raise NotImplementedError

    def write(
        self, x: Float[Tensor, "batch target _"], encoding: Encoding
    ) -> Float[Tensor, "batch target _"]:
        """All words of a known target: one after the other, unless the model knows better."""
        parts = tuple(part[:, :, None] for part in encoding.state)
        found = []
        for word in x.split(1, dim=1):
            one, parts = self.turn(word, parts, encoding)
            found.append(one)
        return torch.cat(found, dim=1)

    def output(
        self,
        found: Float[Tensor, "batch target _"],
        x: Float[Tensor, "batch target d_embed"],
        encoding: Encoding,
    ) -> Float[Tensor, "batch target d_out"]:
        """What the last layer sees, of all words at once."""
        del x, encoding
        return self.dropout(found)

    def hidden(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target d_out"]:
        """What the last layer sees."""
        if self.training and self.teacher_forcing < 1.0:
            return self._written_alone(source, target)
        encoding = self.encode(source)
        x = self.dropout(self.embed_target(target))
        return self.output(self.write(self.prepare(x), encoding), x, encoding)

    def forward(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]:
        return self.to_logits(self.hidden(source, target))

    def begin(
        self, source: Int[Tensor, "batch source"], *, width: int = 1, max_length: int = 256
    ) -> RecurrentState:
        """Read the source for `width` hypotheses; their state is as large for any `max_length`."""
        del max_length
        encoding = self.encode(source)
        parts = (part[:, :, None].expand(-1, -1, width, -1) for part in encoding.state)
        return RecurrentState(tuple(parts), encoding)

    def step(
        self, last: Int[Tensor, "batch beam"], state: RecurrentState
    ) -> Float[Tensor, "batch beam vocab"]:
        """Read one more token of every hypothesis, score the next one, and advance `state`.

        The beams stand side by side where training has positions.
        """
        x = self.dropout(self.embed_target(last))
        found, state.parts = self.turn(self.prepare(x), state.parts, state.encoding)
        return self.to_logits(self.output(found, x, state.encoding))

    def _written_alone(self, source: Tensor, target: Tensor) -> Tensor:
        """`hidden` where each word after the first is the model's own, unless a coin says no."""
        encoding = self.encode(source)
        parts = tuple(part[:, :, None] for part in encoding.state)
        rows: list[Tensor] = []
        for right in target.split(1, dim=1):
            last = self._right_or_own(right, rows[-1]) if rows else right
            x = self.dropout(self.embed_target(last))
            found, parts = self.turn(self.prepare(x), parts, encoding)
            rows.append(self.output(found, x, encoding))
        return torch.cat(rows, dim=1)

    @torch.no_grad()
    def _right_or_own(self, right: Tensor, h: Tensor) -> Tensor:
        """The right word with probability `teacher_forcing`, else the likeliest, for each row."""
        forced = torch.rand(right.shape, device=right.device) < self.teacher_forcing
        return torch.where(forced, right, self.to_logits(h).argmax(-1))


class Bridge(nn.Module):
    """From the encoder's last state to the decoder's first, where their widths or ways differ."""

    def __init__(self, cell: Cell, d_encoder: int, d_model: int) -> None:
        super().__init__()
        n_parts = 2 if cell == "lstm" else 1
        self.over = nn.ModuleList(nn.Linear(d_encoder, d_model) for _ in range(n_parts))

    def forward(self, last: Parts) -> Parts:
        return brought_over(self.over, last)


def brought_over(layers: nn.ModuleList, last: Parts) -> Parts:
    """Each part of a state through its own layer."""
    parts = [layer(part) for layer, part in zip(layers, last, strict=True)]
    return (torch.tanh(parts[0]), *parts[1:])  # h is a tanh's value, the c of an LSTM is not


class Maxout(nn.Module):
    """The larger of two linear functions, for each number that comes out: Cho et al. 2014, A.2."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.w = nn.Linear(d_in, 2 * d_out)

    def forward(self, x: Float[Tensor, "*any d_in"]) -> Float[Tensor, "*any d_out"]:
        return self.w(x).unflatten(-1, (-1, 2)).amax(-1)


def check_reading(teacher_forcing: float, bidirectional: bool, reverse_source: bool) -> None:
    """What no recurrent translator can be asked for is a ValueError that says so."""
    if not 0.0 <= teacher_forcing <= 1.0:
        raise ValueError(f"teacher_forcing = {teacher_forcing}: expected 0 to 1")
    if bidirectional and reverse_source:
        raise ValueError(
            "reverse_source = true: a bidirectional encoder reads from both ends already; "
            "set one of the two to false"
        )


def tie(to_logits: nn.Linear, embedding: nn.Embedding) -> None:
    """Let the output layer use the embedding's table: Press & Wolf 2017."""
    if to_logits.in_features != embedding.embedding_dim:
        raise ValueError(
            f"tie = true: the output layer reads {to_logits.in_features} numbers, but a word has "
            f"{embedding.embedding_dim}; make them equal, or set tie = false"
        )
    to_logits.weight = embedding.weight


@dataclass(frozen=True)
class Seq2SeqConfig:
    """`d_embed` is the width of a word, `d_output` that of the maxout: d_model unless given.

    `bridge` puts two layers between encoder and decoder, those of Cho et al. 2014.
    `teacher_forcing` is how often training reads the right last word, and not the model's own: 1
    always, 0 never. Outside training the target is read as it is given.
    """

    source_vocab: int = 8_000
    target_vocab: int = 8_000
    pad: int = 0
    cell: Cell = "lstm"
    d_model: int = 256
    d_embed: int | None = None
    n_layers: int = 2
    dropout: Share = 0.2
    context: Literal["first", "everywhere"] = "first"
    bridge: bool = False
    d_output: int | None = None
    teacher_forcing: float = 1.0
    bidirectional: bool = False  # the encoder reads from both ends, each with half of d_model
    reverse_source: bool = False
    tie: bool = False  # one table for the target's embedding and the output layer

    def __post_init__(self) -> None:
        check_reading(self.teacher_forcing, self.bidirectional, self.reverse_source)
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
    """The sentence as one vector: the decoder's first state, or a part of its every input."""

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__(config.pad, config.teacher_forcing, config.reverse_source)
        d_model, cell, n_layers = config.d_model, config.cell, config.n_layers
        d_embed = d_model if config.d_embed is None else config.d_embed
        self.everywhere = config.context == "everywhere"
        self.embed_source = nn.Embedding(config.source_vocab, d_embed)
        self.embed_target = nn.Embedding(config.target_vocab, d_embed)
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
        self.dropout = Dropout(config.dropout)
        self.to_logits = nn.Linear(d_output, config.target_vocab)
        uniform(self)
        if config.tie:
            tie(self.to_logits, self.embed_target)

    def offer(self, memory: Memory, last: Parts) -> Encoding:
        """The encoder's last state is all that the decoder gets; two directions need a bridge."""
        if self.bridge is None:
            return Encoding(memory, last)
        if self.v is None:
            return Encoding(memory, self.bridge(last))
        c = torch.tanh(self.v(last[0][-1]))
        everywhere = c.expand(len(last[0]), -1, -1)  # in all layers alike; the paper has one
        return Encoding(memory, self.bridge((everywhere,) * len(last)), context=c)

    def write(
        self, x: Float[Tensor, "batch target d_embed"], encoding: Encoding
    ) -> Float[Tensor, "batch target d_model"]:
        """All words in one call: nothing depends on what was found before."""
        if self.everywhere:
            x = torch.cat([x, encoding.summary[:, None].expand(-1, x.size(1), -1)], dim=-1)
        return self.decoder(x, encoding.state)[0]

    def turn(
        self, x: Float[Tensor, "batch beam d_embed"], parts: tuple[Tensor, ...], encoding: Encoding
    ) -> Turn:
        """One step of the decoder."""
        gates = self.decoder.gates(x)
        if self.everywhere:
            gates = gates + self.decoder.gates(encoding.summary[:, None], start=x.size(-1))
        return self.decoder.turn(gates, parts)

    def output(
        self,
        found: Float[Tensor, "batch target d_model"],
        x: Float[Tensor, "batch target d_embed"],
        encoding: Encoding,
    ) -> Float[Tensor, "batch target d_output"]:
        """s_t, or the maxout of all that is known."""
        if self.everywhere:
            summary = encoding.summary[:, None].expand(-1, x.size(1), -1)
            found = torch.cat([found, x, summary], dim=-1)
        return self.dropout(self.deep_output(found))
