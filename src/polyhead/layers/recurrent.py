"""Recurrent networks with attention to the source.

    h_t = tanh(W_x x_t + W_h h_{t-1} + b)                             (1)  Elman 1990
    c_t = Σ_i α_ti h_i    with    α_t = softmax_i score(s_t, h_i)     (2)  Bahdanau et al. 2015

h are the encoder's states, s the decoder's, c is the context. In (2) keys and values are the same
vectors h.

`RNNCell` is (1) as printed. Models use PyTorch's fused `nn.RNN`, `nn.GRU` and `nn.LSTM` behind
`Recurrence`; their state is a tuple of one part (h) or two (LSTM: h and c). Where the next input
depends on the last step (attention before the output), `gates` and `turn` use the same weights one
step at a time.

Axes: batch, length, layer, beam (hypotheses of one sentence), d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from polyhead.layers.attention import Weights
from polyhead.layers.attention_scores import Key, Query, ScoredAttention, ScoreKind, make_score
from polyhead.layers.kv_cache import Memory

Cell = Literal["rnn", "gru", "lstm"]
Parts = tuple[Float[Tensor, "_ batch _"], ...]  # by layer

CELLS: dict[Cell, Callable[..., nn.Module]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class RNNCell(nn.Module):
    """Equation (1): one step. States stay between -1 and 1, the slope of tanh between 0 and 1."""

    def __init__(self, d_in: int, d_model: int) -> None:
        super().__init__()
        self.w_x = nn.Linear(d_in, d_model)
        self.w_h = nn.Linear(d_model, d_model, bias=False)  # (1) has one b: that of w_x

    def forward(
        self, x: Float[Tensor, "batch d_in"], h: Float[Tensor, "batch d_model"]
    ) -> Float[Tensor, "batch d_model"]:
        return torch.tanh(self.w_x(x) + self.w_h(h))


def rnn_step(x: Tensor, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Compute equation (1), given x = W_x x_t + b and u = W_h h_{t-1}."""
    del state
    return (torch.tanh(x + u),)


def gru_step(x: Tensor, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Compute a GRU step (Cho et al. 2014) as PyTorch: r is applied to U h."""
    d_model = state[0].size(-1)
    r, z = torch.sigmoid((x + u)[..., : 2 * d_model]).chunk(2, dim=-1)
    new = torch.tanh(x[..., 2 * d_model :] + r * u[..., 2 * d_model :])
    return (torch.lerp(new, state[0], z),)


def lstm_step(x: Tensor, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Compute an LSTM step (Hochreiter & Schmidhuber 1997) with a forget gate."""
    i, f, new, o = (x + u).chunk(4, dim=-1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(new)
    return torch.sigmoid(o) * torch.tanh(c), c


STEPS: dict[Cell, Callable[[Tensor, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]] = {
    "rnn": rnn_step,
    "gru": gru_step,
    "lstm": lstm_step,
}


class Recurrence(nn.Module):
    """`n_layers` layers of one kind of cell; two directions have d_model / 2 features each."""

    def __init__(
        self,
        cell: Cell,
        d_model: int,
        n_layers: int,
        dropout: float,
        *,
        d_in: int | None = None,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        if bidirectional and d_model % 2:
            raise ValueError(f"two directions need an even d_model to share, got {d_model}")
        self.kind: Cell = cell
        self.cells: Any = CELLS[cell](
            d_model if d_in is None else d_in,
            d_model // 2 if bidirectional else d_model,
            n_layers,
            batch_first=True,
            dropout=dropout if n_layers > 1 else 0.0,  # applied between layers
            bidirectional=bidirectional,
        )
        self.bidirectional = bidirectional

    def forward(
        self, x: Float[Tensor, "batch length d_in"], state: Parts
    ) -> tuple[Float[Tensor, "batch length d_model"], Parts]:
        """Continue from `state`; return the top layer at every word and the last states."""
        states, last = self.cells(x, state if len(state) > 1 else state[0])
        return states, last if isinstance(last, tuple) else (last,)

    def gates(self, x: Float[Tensor, "*any d_part"], start: int = 0) -> Float[Tensor, "*any gates"]:
        """Return the contribution of the input features from `start` on to the first layer's gates.

        The bias goes with the first of them. Parts that are known early are computed early.
        """
        weight = self.cells.weight_ih_l0[:, start : start + x.size(-1)]
        return F.linear(x, weight, None if start else self.cells.bias_ih_l0)

    def step(
        self, gates: Float[Tensor, "*any gates"], parts: tuple[Float[Tensor, "layer *any d"], ...]
    ) -> tuple[Float[Tensor, "*any d"], tuple[Float[Tensor, "layer *any d"], ...]]:
        """Compute one step of all layers from the first's gates; return top layer and states."""
        news: list[tuple[Tensor, ...]] = []
        for layer, (w_x, w_h, b_x, b_h) in enumerate(self.cells.all_weights):
            if layer:
                below = F.dropout(news[-1][0], self.cells.dropout, self.training)
                gates = F.linear(below, w_x, b_x)
            state = tuple(part[layer] for part in parts)
            news.append(STEPS[self.kind](gates, F.linear(state[0], w_h, b_h), state))
        return news[-1][0], tuple(torch.stack(part) for part in zip(*news, strict=True))

    def encode(
        self, x: Float[Tensor, "batch length d_in"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch length d_model"], Parts]:
        """Encode sentences of these lengths; padding is never read."""
        if x.device.type == "cpu" and bool((lengths == x.size(1)).all()):
            states, last = self.cells(x)  # no padding: faster without packing
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            packed, last = self.cells(packed)
            states, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        parts = last if isinstance(last, tuple) else (last,)
        if self.bidirectional:
            parts = tuple(torch.cat([part[0::2], part[1::2]], dim=-1) for part in parts)
        return states, parts


def turned(
    x: Float[Tensor, "batch length d_model"], lengths: Int[Tensor, "batch"]
) -> Float[Tensor, "batch length d_model"]:
    """Reverse every sentence, leaving its padding in place."""
    place = torch.arange(x.size(1), device=x.device)
    mirrored = lengths[:, None] - 1 - place
    return x.take_along_dim(torch.where(mirrored < 0, place, mirrored)[..., None], dim=1)


class LookBack(nn.Module):
    """Equation (2) with one head and no projections: queries s of the decoder, keys and values h.

    `kernel` is called like that of `MultiHeadAttention`, so the same hooks record its weights.
    """

    def __init__(self, kernel: nn.Module) -> None:
        super().__init__()
        self.kernel = kernel

    def keys(self, h: Float[Tensor, "batch source d_memory"]) -> Tensor | None:
        """Return the part of the score that depends on h alone, computed once; here none."""
        del h
        return None

    def forward(
        self,
        states: Float[Tensor, "batch target d_model"],
        memory: Memory,
        keys: Float[Tensor, "batch source d_key"] | None = None,
    ) -> Float[Tensor, "batch target d_memory"]:
        h = memory.states[:, None]
        k = h if keys is None else keys[:, None]
        return self.kernel(states[:, None], k, h, memory.mask)[:, 0]


class Network(nn.Module):
    """vᵀ tanh(W_s s + k) for projected keys k = W_h h (Bahdanau et al. 2015, A.1.2)."""

    def __init__(self, d_query: int, d_hidden: int) -> None:
        super().__init__()
        self.w_s = nn.Linear(d_query, d_hidden)
        self.v = nn.Linear(d_hidden, 1, bias=False)

    def forward(self, q: Query, k: Key) -> Weights:
        return self.v(torch.tanh(self.w_s(q)[..., None, :] + k[:, :, None])).squeeze(-1)


class AdditiveLookBack(LookBack):
    """Equation (2) with the additive score; W_h h is computed once per sentence."""

    def __init__(self, d_query: int, d_memory: int, d_hidden: int) -> None:
        super().__init__(ScoredAttention(Network(d_query, d_hidden)))
        self.w_h = nn.Linear(d_memory, d_hidden, bias=False)

    def keys(
        self, h: Float[Tensor, "batch source d_memory"]
    ) -> Float[Tensor, "batch source d_hidden"]:
        return self.w_h(h)


def make_look_back(kind: ScoreKind, d_query: int, d_memory: int) -> LookBack:
    """Return attention of decoder states of one width to encoder states of another."""
    if kind == "additive":
        return AdditiveLookBack(d_query, d_memory, d_query)
    return LookBack(ScoredAttention(make_score(kind, 1, d_query, d_key=d_memory)))


class Encoding(NamedTuple):
    """Output of a recurrent encoder: h of every word, and the last state of every layer."""

    memory: Memory
    state: Parts
    keys: Float[Tensor, "batch source d_key"] | None = None  # made of h by `LookBack.keys`
    context: Float[Tensor, "batch d_model"] | None = None  # else the top layer's last state

    @property
    def summary(self) -> Float[Tensor, "batch d_model"]:
        """Return the sentence as one vector: the top layer's last state by default."""
        return self.state[0][-1] if self.context is None else self.context

    def keep(self, sentences: Int[Tensor, "kept"]) -> "Encoding":
        memory = Memory(self.memory.states[sentences], self.memory.mask.select(sentences))
        keys = None if self.keys is None else self.keys[sentences]
        context = None if self.context is None else self.context[sentences]
        return Encoding(memory, tuple(part[:, sentences] for part in self.state), keys, context)


@dataclass
class RecurrentState:
    """Decoding state: the decoder's states of every hypothesis, and the encoding."""

    parts: tuple[Float[Tensor, "_ batch beam _"], ...]  # by layer
    encoding: Encoding

    def select(self, parents: Int[Tensor, "batch beam"]) -> None:
        place = parents[None, :, :, None]
        self.parts = tuple(part.take_along_dim(place, dim=2) for part in self.parts)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        self.parts = tuple(part[:, sentences] for part in self.parts)
        self.encoding = self.encoding.keep(sentences)
