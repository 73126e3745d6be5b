"""Several models as one: the mean of their probabilities at every step.

    log p(y_t | …) = log (1/M Σ_m softmax(z_m))

They need not be of one family or size; they must share the target's vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from polyhead.decoding.protocol import Attentive, Decodable
from polyhead.errors import ConfigError


@dataclass
class EnsembleState:
    """One state a model."""

    members: list[Any]

    @property
    def looked(self) -> Float[Tensor, "batch beam source"]:
        """What the members that attend looked at in the last step, on average."""
        attentive = [member.looked for member in self.members if isinstance(member, Attentive)]
        if not attentive:
            raise ConfigError(
                "decode.coverage: no member of this ensemble tells what it looks at; set it to 0"
            )
        return torch.stack(attentive).mean(0)

    def select(self, parents: Int[Tensor, "batch beam"]) -> None:
        """Beam i of each sentence goes on from what was its beam parents[i]."""
        for member in self.members:
            member.select(parents)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        """Forget all other sentences."""
        for member in self.members:
            member.keep(sentences)


@dataclass(frozen=True)
class Ensemble:
    """Decodable like any of its members."""

    models: Sequence[Decodable[Any]]

    def begin(
        self, source: Int[Tensor, "batch source"], *, width: int, max_length: int
    ) -> EnsembleState:
        """Let every member read the source."""
        return EnsembleState(
            [model.begin(source, width=width, max_length=max_length) for model in self.models]
        )

    def step(
        self, last: Int[Tensor, "batch beam"], state: EnsembleState
    ) -> Float[Tensor, "batch beam vocab"]:
        """The logarithm of the mean probability."""
        pairs = zip(self.models, state.members, strict=True)
        every = [model.step(last, member).log_softmax(-1) for model, member in pairs]
        return torch.stack(every).logsumexp(0) - math.log(len(every))
