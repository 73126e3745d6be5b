"""Ensembles: the mean of the probabilities of several models at every step.

    log p(y_t | …) = log (1/M Σ_m softmax(z_m))

They may be of different families and sizes, but need the same target vocabulary.
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
    """The states of all members."""

    members: list[Any]

    @property
    def looked(self) -> Float[Tensor, "batch beam source"]:
        """The mean cross-attention of the last step of all members that have it."""
        attentive = [member.looked for member in self.members if isinstance(member, Attentive)]
        if not attentive:
            raise ConfigError(
                "decode.coverage requires a model with cross-attention; set it to 0",
                "no_cross_attention",
            )
        return torch.stack(attentive).mean(0)

    def select(self, parents: Int[Tensor, "batch beam"]) -> None:
        for member in self.members:
            member.select(parents)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        for member in self.members:
            member.keep(sentences)


@dataclass(frozen=True)
class Ensemble:
    """A decodable model made of several."""

    models: Sequence[Decodable[Any]]

    def begin(
        self, source: Int[Tensor, "batch source"], *, width: int, max_length: int
    ) -> EnsembleState:
        return EnsembleState(
            [model.begin(source, width=width, max_length=max_length) for model in self.models]
        )

    def step(
        self, last: Int[Tensor, "batch beam"], state: EnsembleState
    ) -> Float[Tensor, "batch beam vocab"]:
        pairs = zip(self.models, state.members, strict=True)
        log_p = [model.step(last, member).float().log_softmax(-1) for model, member in pairs]
        return torch.stack(log_p).logsumexp(0) - math.log(len(log_p))
