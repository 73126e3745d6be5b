"""The optimiser: Adam as the paper sets it, or AdamW (Loshchilov & Hutter 2019)."""

from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.optim import Adam, AdamW, Optimizer

SMALLEST = 1e-30  # smaller ones are zero in float32, and zero divided by it is not a number


@dataclass(frozen=True)
class OptimizerConfig:
    """The defaults are those of Vaswani et al. 2017, section 5.3."""

    kind: Literal["adam", "adamw"] = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0  # on matrices only: norms, biases and positions are left alone

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


def build(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """An optimiser for all parameters; the learning rate is set by the loop at every step."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decayed = {name for name, p in parameters.items() if p.dim() > 1 and "positions" not in name}
    matrices = [p for name, p in parameters.items() if name in decayed]
    others = [p for name, p in parameters.items() if name not in decayed]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    kind = Adam if config.kind == "adam" else AdamW
    fused = next(model.parameters()).device.type in ("cpu", "cuda")
    betas = (config.beta_1, config.beta_2)
    return kind(groups, lr=0.0, betas=betas, eps=config.epsilon, fused=fused)
