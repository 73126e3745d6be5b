"""The optimiser: Adam as the paper sets it, or AdamW (Loshchilov & Hutter 2019)."""

from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.optim import Adam, AdamW, Optimizer


@dataclass(frozen=True)
class OptimizerConfig:
    """The defaults are those of Vaswani et al. 2017, section 5.3."""

    kind: Literal["adam", "adamw"] = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0  # on matrices only: norms, biases and positions are left alone


def build(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """An optimiser for all parameters; the learning rate is set by the loop at every step."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    kind = Adam if config.kind == "adam" else AdamW
    fused = parameters[0].device.type in ("cpu", "cuda")
    betas = (config.beta_1, config.beta_2)
    return kind(groups, lr=0.0, betas=betas, eps=config.epsilon, fused=fused)
