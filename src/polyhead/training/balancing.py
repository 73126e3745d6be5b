"""Objectives of models with experts: whatever they are trained for, and that all experts be used.

    L = L_objective + Σ over the gates (L_importance + L_load)        Shazeer et al. 2017, section 4

Gates return what the two losses need, and modules keep nothing; so the losses are heard from
outside (`mixture_of_experts.listening`) while the objective lets the model work. Every family
can have experts, and no objective has to know.

An objective is a sum over predictions, the balance of a batch is one number: it counts once for
every prediction, so that the mean over all of them is L. A batch that is cut in two because memory
ran out is balanced half by half.
"""

from dataclasses import dataclass
from typing import Any

from torch import nn

from polyhead.layers.mixture_of_experts import has_experts, listening
from polyhead.training.losses import Loss, Objective


@dataclass(frozen=True)
class Balanced:
    """An objective, and the balance of the experts beside it."""

    objective: Objective

    def __call__(self, model: nn.Module, batch: Any) -> Loss:
        with listening(model, learning=True) as uses:
            loss = self.objective(model, batch)
        total = loss.total
        for use in uses.values():
            total = total + loss.count * use.loss
        return Loss(total, loss.count)


def balanced(objective: Objective, model: nn.Module) -> Objective:
    """The objective of a model: with the balance of its experts, if it has any."""
    return Balanced(objective) if has_experts(model) else objective
