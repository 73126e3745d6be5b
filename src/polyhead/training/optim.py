"""The optimiser: Adam as the paper sets it, or AdamW (Loshchilov & Hutter 2019).

Fine-tuning may move what lies deeper more slowly, since it knows more of language than of the task
(Howard & Ruder 2018; ELECTRA: 0.8):

    rate of a parameter = rate · layer_decay ^ (layers above it)

    the head, a norm after the last block    0 layers above
    block i of n, counted from 1             n - i + 1
    the embeddings, and all that is theirs   n + 1

(ELECTRA's own code counts one more above every block: a mistake, says its author in issue 51.)
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.optim import Adam, AdamW, Optimizer

BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")  # in the name of a parameter
EMBEDDINGS = {"embed", "embed_source", "embed_target", "widen", "positions", "class_token"}
SMALLEST = 1e-30  # smaller ones are zero in float32, and zero divided by it is not a number


@dataclass(frozen=True)
class OptimizerConfig:
    """The defaults are those of Vaswani et al. 2017, section 5.3."""

    kind: Literal["adam", "adamw"] = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0  # on matrices only: norms, biases and positions are left alone
    layer_decay: float = 1.0  # of the rate, from each layer to the one below it; 1: all move alike

    def __post_init__(self) -> None:
        for name in ("beta_1", "beta_2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(
                    f"{name} = {getattr(self, name)}: expected 0 or more, and less than 1"
                )
        if self.epsilon < SMALLEST:
            raise ValueError(f"epsilon = {self.epsilon}: expected at least {SMALLEST}")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay = {self.weight_decay}: expected 0 or more")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(
                f"layer_decay = {self.layer_decay}: expected more than 0, and at most 1"
            )


def build(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """An optimiser for all parameters; the learning rate is set by the loop at every step."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    above = layers_above(parameters)
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in parameters.items():
        matrix = parameter.dim() > 1 and "positions" not in name
        decay = config.weight_decay if matrix else 0.0
        share = config.layer_decay ** above[name]
        group = {"params": [], "weight_decay": decay, "share": share}
        groups.setdefault((decay, share), group)["params"].append(parameter)
    kind = Adam if config.kind == "adam" else AdamW
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    betas = (config.beta_1, config.beta_2)
    return kind(list(groups.values()), lr=0.0, betas=betas, eps=config.epsilon, fused=fused)


def layers_above(names: Iterable[str]) -> dict[str, int]:
    """How many layers stand between each parameter and the output, the next one included."""
    names, blocks = list(names), dict[str, int]()
    for name in names:
        if found := BLOCK.search(name):
            stack = name[: found.start()]
            blocks[stack] = max(blocks.get(stack, 0), int(found[1]) + 1)
    above = {}
    for name in names:
        if found := BLOCK.search(name):
            above[name] = blocks[name[: found.start()]] - int(found[1])
        else:
            deepest = bool(EMBEDDINGS & set(name.split(".")))
            above[name] = 1 + max(blocks.values(), default=0) if deepest else 0
    return above


def set_rate(optimizer: Optimizer, rate: float) -> None:
    """Give each group its share of a rate, which is all of it in an optimiser from elsewhere."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("share", 1.0)
