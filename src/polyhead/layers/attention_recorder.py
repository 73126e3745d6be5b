"""A model that tells, while it decodes, what each step looks at.

    model = Attending(transformer)
    state = model.begin(source, width=4, max_length=50)
    model.step(last, state)
    state.looked                      # (batch, beam, source): 1 for each hypothesis in all

The searches in `decode` know models only by `begin` and `step`, and models keep nothing. So whoever
needs the weights of attention (the coverage penalty does) puts this around the model: it listens at
the doors of its cross-attention (`layers/attention_hooks.py`) during the step, and keeps in the
state what it heard: the mean over all heads of all layers.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from polyhead.layers.attention import MultiHeadAttention
from polyhead.layers.attention_hooks import recorded_attention
from polyhead.layers.recurrent import LookBack

CROSS = "cross_attention"


def attends(model: nn.Module) -> bool:
    """Whether a model looks back at its source while it writes."""
    return any(
        name.endswith(CROSS) and isinstance(module, MultiHeadAttention | LookBack)
        for name, module in model.named_modules()
    )


@dataclass
class AttentionRecordingState:
    """The model's own state, and what its last step looked at."""

    inner: Any
    looked: Float[Tensor, "batch beam source"]

    def select(self, parents: Int[Tensor, "batch beam"]) -> None:
        """Beam i of each sentence goes on from what was its beam parents[i]."""
        self.inner.select(parents)
        self.looked = self.looked.take_along_dim(parents[..., None], dim=1)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        """Forget all other sentences."""
        self.inner.keep(sentences)
        self.looked = self.looked[sentences]


@dataclass(frozen=True)
class AttentionRecordingModel:
    """Decodable like the model inside, which must attend to its source."""

    model: Any

    def begin(
        self, source: Int[Tensor, "batch source"], *, width: int, max_length: int
    ) -> AttentionRecordingState:
        """Let the model read the source; it has looked at nothing yet."""
        inner = self.model.begin(source, width=width, max_length=max_length)
        nothing = torch.zeros(len(source), width, source.size(1), device=source.device)
        return AttentionRecordingState(inner, nothing)

    def step(
        self, last: Int[Tensor, "batch beam"], state: AttentionRecordingState
    ) -> Float[Tensor, "batch beam vocab"]:
        """One step of the model; the beams stand where training has positions."""
        with recorded_attention(self.model, CROSS) as maps:
            logits: Tensor = self.model.step(last, state.inner)
        state.looked = torch.stack([weights.float().mean(1) for weights in maps.values()]).mean(0)
        return logits
