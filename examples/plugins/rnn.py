"""A recurrent language model (Mikolov et al. 2010) with gated units (Cho et al. 2014).

Train it with its recipe: polyhead train rnn.toml --text my.txt --plugin rnn.py --run runs/rnn
Let it write:             polyhead generate runs/rnn "Once" --plugin rnn.py
"""

from dataclasses import dataclass

from torch import Tensor, nn

from polyhead.bounds import Few
from polyhead.plugins import register_family


@dataclass(frozen=True)
class RNNConfig:
    """Sizes; the vocabulary's follows from the data."""

    vocab: int = 10_000
    d_model: int = 256
    n_layers: Few = 1
    pad: int = 0


@dataclass
class RNNState:
    """Hidden states [layer batch beam d_model] of all hypotheses, while decoding."""

    h: Tensor

    def select(self, parents: Tensor) -> None:
        self.h = self.h.take_along_dim(parents[None, :, :, None], dim=2)

    def keep(self, sentences: Tensor) -> None:
        self.h = self.h[:, sentences]


@register_family("rnn", config=RNNConfig, task="language_modeling")
class RNN(nn.Module):
    """`hidden` and `to_logits` are what training needs, `begin` and `step` decode."""

    def __init__(self, config: RNNConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab, config.d_model)
        self.rnn = nn.GRU(config.d_model, config.d_model, config.n_layers, batch_first=True)
        self.to_logits = nn.Linear(config.d_model, config.vocab)

    def hidden(self, ids: Tensor) -> Tensor:
        return self.rnn(self.embed(ids))[0]

    def begin(self, prompt: Tensor, *, width: int = 1, max_length: int = 256) -> RNNState:
        del max_length  # the state does not grow
        h = self.embed.weight.new_zeros(self.rnn.num_layers, len(prompt), self.rnn.hidden_size)
        h = self.rnn(self.embed(prompt), h)[1] if prompt.size(1) else h
        return RNNState(h[:, :, None].repeat(1, 1, width, 1))

    def step(self, last: Tensor, state: RNNState) -> Tensor:
        states, h = self.rnn(self.embed(last.view(-1, 1)), state.h.flatten(1, 2))
        state.h = h.view(state.h.shape)
        return self.to_logits(states).view(*last.shape, -1)
