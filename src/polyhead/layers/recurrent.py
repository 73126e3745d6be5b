"""Reading one word after the other, and looking back at what was read.

    h_t = tanh(W_x x_t + W_h h_{t-1} + b)                             (1)  Elman 1990
    c_t = Σ_i α_ti h_i    with    α_t = softmax_i score(s_t, h_i)     (2)  Bahdanau et al. 2015

h are the states of a reader (the encoder), s those of a writer (the decoder), c is what the writer
takes from the reader. In (2) keys and values are the same vectors h: what is found is taken.

`RNNCell` is (1) as printed. Models run PyTorch's fused `nn.RNN`, `nn.GRU` and `nn.LSTM`, which all
look alike behind `Recurrence`: their state is a tuple, of one part (h) or of two (LSTM: h and c).

Axes: batch, length, layer, beam (hypotheses of one sentence, side by side), d_model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from polyhead.layers.cache import Memory
from polyhead.layers.scores import ScoredAttention

Cell = Literal["rnn", "gru", "lstm"]
Parts = tuple[Float[Tensor, "layer batch d_model"], ...]

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


class Recurrence(nn.Module):
    """`n_layers` layers of one kind of cell; two directions share the d_model numbers."""

    def __init__(
        self,
        cell: Cell,
        d_model: int,
        n_layers: int,
        dropout: float,
        *,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        if bidirectional and d_model % 2:
            raise ValueError(f"two directions need an even d_model to share, got {d_model}")
        self.cells = CELLS[cell](
            d_model,
            d_model // 2 if bidirectional else d_model,
            n_layers,
            batch_first=True,
            dropout=dropout if n_layers > 1 else 0.0,  # it stands between layers
            bidirectional=bidirectional,
        )
        self.bidirectional = bidirectional

    def forward(
        self, x: Float[Tensor, "batch length d_model"], state: Parts
    ) -> tuple[Float[Tensor, "batch length d_model"], Parts]:
        """Go on from `state`: the top layer after every word, and all layers after the last."""
        states, last = self.cells(x, state if len(state) > 1 else state[0])
        return states, last if isinstance(last, tuple) else (last,)

    def read(
        self, x: Float[Tensor, "batch length d_model"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch length d_model"], Parts]:
        """Read sentences of these lengths from nothing; what stands behind them is never read."""
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.cells(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True, total_length=x.size(1))
        parts = last if isinstance(last, tuple) else (last,)
        return padded, tuple(self._join(part) for part in parts)

    def _join(self, part: Tensor) -> Tensor:
        """Both directions of a layer as one vector."""
        if not self.bidirectional:
            return part
        return torch.cat([part[0::2], part[1::2]], dim=-1)


def turned(
    x: Float[Tensor, "batch length d_model"], lengths: Int[Tensor, "batch"]
) -> Float[Tensor, "batch length d_model"]:
    """Every sentence backwards, its padding where it was. Twice is nothing."""
    place = torch.arange(x.size(1), device=x.device)
    mirrored = lengths[:, None] - 1 - place
    return x.take_along_dim(torch.where(mirrored < 0, place, mirrored)[..., None], dim=1)


class LookBack(nn.Module):
    """Equation (2) with one head and nothing projected: the writer's s asks, the reader's h answer.

    `kernel` is called as that of `MultiHeadAttention` is, so whoever listens there can listen here.
    """

    def __init__(self, kernel: ScoredAttention) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(
        self, states: Float[Tensor, "batch target d_model"], memory: Memory
    ) -> Float[Tensor, "batch target d_model"]:
        h = memory.states[:, None]
        return self.kernel(states[:, None], h, h, memory.mask)[:, 0]


class Encoding(NamedTuple):
    """What a reader hands over: h of every word, and the state of every layer after the last."""

    memory: Memory
    state: Parts

    @property
    def summary(self) -> Float[Tensor, "batch d_model"]:
        """The whole sentence as one vector: the top layer's last state."""
        return self.state[0][-1]

    def keep(self, sentences: Int[Tensor, "kept"]) -> "Encoding":
        """Only these sentences, in this order."""
        memory = Memory(self.memory.states[sentences], self.memory.mask.select(sentences))
        return Encoding(memory, tuple(part[:, sentences] for part in self.state))


@dataclass
class RecurrentState:
    """Where one decoding stands: the writer's state of every hypothesis, and what was read.

    Unlike a Transformer's it does not grow, so that a hypothesis inherits its past by a copy.
    """

    parts: tuple[Float[Tensor, "layer batch beam d_model"], ...]
    encoding: Encoding

    def select(self, parents: Int[Tensor, "batch beam"]) -> None:
        """Beam i of each sentence goes on from what was its beam parents[i]."""
        place = parents[None, :, :, None]
        self.parts = tuple(part.take_along_dim(place, dim=2) for part in self.parts)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        """Forget all other sentences."""
        self.parts = tuple(part[:, sentences] for part in self.parts)
        self.encoding = self.encoding.keep(sentences)
