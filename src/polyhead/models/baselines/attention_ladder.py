"""The ladder from sequence-to-sequence to attention: five models that differ in one vector.

    h_1 … h_n = encoder(source)                    one state for every word
    s_t       = decoder(y_{t-1}, s_{t-1})          begins with the encoder's last state
    c_t       = the context, by `context`:

        none         h_n                              one vector for all      Sutskever et al. 2014
        mean         1/n Σ_i h_i                      every word alike
        positional   Σ_i softmax_i(b_i) h_i           a weight for every place
        content      Σ_i softmax_i(f(h_i)) h_i        a function of h
        query        Σ_i softmax_i(f(s_t, h_i)) h_i   a function of s and h   Bahdanau et al. 2015

    p(y_t)    = softmax(W tanh(W_c [c_t; s_t]))                               Luong et al. 2015

Everything but c_t is the same in all five, and so is the number of parameters, but for those of the
score. s_t has read y_{t-1} when it asks, as in Luong et al. 2015 without their input feeding:
the states of a known target can be computed at once, and looked back from at once.

Axes: batch, source, target, beam, d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.layers.attention_scores import ScoredAttention, ScoreKind, make_score
from polyhead.layers.dropout import Dropout, Share
from polyhead.layers.kv_cache import Memory
from polyhead.layers.recurrent import Cell, Encoding, LookBack, Parts, Recurrence
from polyhead.models.baselines.seq2seq import SequenceToSequence, Turn, brought_over, check_reading

Context = Literal["none", "mean", "positional", "content", "query"]


@dataclass(frozen=True)
class LadderConfig:
    """`score` is that of `context = "query"`, `max_length` the longest source of "positional".

    `teacher_forcing` is how often training reads the right last word, and not the model's own: 1
    always, 0 never. Outside training the target is read as it is given.
    """

    source_vocab: int = 8_000
    target_vocab: int = 8_000
    pad: int = 0
    cell: Cell = "gru"
    d_model: int = 256
    n_layers: int = 1
    dropout: Share = 0.1
    context: Context = "query"
    score: ScoreKind = "general"
    max_length: int = 256
    teacher_forcing: float = 1.0
    bidirectional: bool = False  # the encoder reads from both ends, each with half of d_model
    reverse_source: bool = False  # Sutskever et al. 2014: the first words shall be fresh

    def __post_init__(self) -> None:
        check_reading(self.teacher_forcing, self.bidirectional, self.reverse_source)


class Vectors(NamedTuple):
    """The three vectors of the notes: C context, H encoding, S decoding."""

    context: Float[Tensor, "batch target d_model"]
    encoding: Float[Tensor, "batch source d_model"]
    decoding: Float[Tensor, "batch target d_model"]


class Equal(nn.Module):
    """Every word scores 0: their weights are all 1/n."""

    def forward(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
    ) -> Float[Tensor, "batch head query key"]:
        return q.new_zeros(*q.shape[:-1], k.size(-2))


class ByPosition(nn.Module):
    """A learned score b_i for place i, whatever stands there. It begins as the mean."""

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.b = nn.Parameter(torch.zeros(max_length))

    def forward(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
    ) -> Float[Tensor, "batch head query key"]:
        n_keys = k.size(-2)
        if n_keys > len(self.b):
            raise ValueError(
                f"this model weighs {len(self.b)} positions, but the source has {n_keys}; "
                "raise max_length or shorten the source"
            )
        return self.b[:n_keys].expand(*q.shape[:-1], n_keys)


class ByContent(nn.Module):
    """f(h) = v · tanh(W h): the additive score of Bahdanau et al. 2015 without the asking state."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.w = nn.Linear(d_model, d_model)
        self.v = nn.Linear(d_model, 1, bias=False)

    def forward(
        self,
        q: Float[Tensor, "batch head query d_head"],
        k: Float[Tensor, "batch head key d_head"],
    ) -> Float[Tensor, "batch head query key"]:
        scores = self.v(torch.tanh(self.w(k))).transpose(-2, -1)  # (batch, head, 1, key)
        return scores.expand(*q.shape[:-1], k.size(-2))


class Ladder(SequenceToSequence):
    """Recurrent encoder and decoder. `forward` trains, `begin` and `step` decode."""

    def __init__(self, config: LadderConfig) -> None:
        super().__init__(config.pad, config.teacher_forcing, config.reverse_source)
        d_model = config.d_model
        self.embed_source = nn.Embedding(config.source_vocab, d_model)
        self.embed_target = nn.Embedding(config.target_vocab, d_model)
        self.encoder = Recurrence(
            config.cell,
            d_model,
            config.n_layers,
            config.dropout,
            bidirectional=config.bidirectional,
        )
        n_parts = (2 if config.cell == "lstm" else 1) if config.bidirectional else 0
        self.bridge = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(n_parts))
        self.decoder = Recurrence(config.cell, d_model, config.n_layers, config.dropout)
        self.cross_attention = _look_back(config)
        self.w_c = nn.Linear(2 * d_model, d_model)
        self.dropout = Dropout(config.dropout)
        self.to_logits = nn.Linear(d_model, config.target_vocab)

    def offer(self, memory: Memory, last: Parts) -> Encoding:
        """The encoder's last state as the decoder's first: two directions need a bridge."""
        return Encoding(memory, brought_over(self.bridge, last) if self.bridge else last)

    def vectors(
        self, source: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"]
    ) -> Vectors:
        """C, H and S for this target, read as it is given."""
        encoding = self.encode(source)
        states, _ = self.decoder(self.dropout(self.embed_target(target)), encoding.state)
        return Vectors(self.context(states, encoding), encoding.memory.states, states)

    def write(
        self, x: Float[Tensor, "batch target d_model"], encoding: Encoding
    ) -> Float[Tensor, "batch target d_model"]:
        """tanh(W_c [c_t; s_t]) of all words: the states need no context, and are found at once."""
        states, _ = self.decoder(x, encoding.state)
        return self.combine(self.context(states, encoding), states)

    def turn(
        self, x: Float[Tensor, "batch beam d_model"], parts: tuple[Tensor, ...], encoding: Encoding
    ) -> Turn:
        """The same of one word. The beams are positions to what looks back."""
        s, parts = self.decoder.turn(self.decoder.gates(x), parts)
        return self.combine(self.context(s, encoding), s), parts

    def context(
        self, states: Float[Tensor, "batch target d_model"], encoding: Encoding
    ) -> Float[Tensor, "batch target d_model"]:
        """C: what each state of the decoder gets from the source."""
        if self.cross_attention is None:
            return encoding.summary[:, None].expand_as(states)
        return self.cross_attention(states, encoding.memory)

    def combine(
        self,
        c: Float[Tensor, "batch target d_model"],
        s: Float[Tensor, "batch target d_model"],
    ) -> Float[Tensor, "batch target d_model"]:
        """tanh(W_c [c; s]), Luong et al. 2015, eq. 5."""
        return torch.tanh(self.w_c(torch.cat([c, s], dim=-1)))


def _look_back(config: LadderConfig) -> LookBack | None:
    """The rung: a score for every word, or nothing to look back at."""
    if config.context == "none":
        return None
    scores: dict[Context, Callable[[], nn.Module]] = {
        "mean": Equal,
        "positional": lambda: ByPosition(config.max_length),
        "content": lambda: ByContent(config.d_model),
        "query": lambda: make_score(config.score, 1, config.d_model),
    }
    return LookBack(ScoredAttention(scores[config.context]()))
