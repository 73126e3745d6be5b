"""Optimizers (Adam, AdamW) and learning-rate schedules.

Schedules are functions from a step (counted from 1) to a rate:

    noam           factor · d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)   (2017, equation 3)
    inverse_sqrt   rate · min(step / warmup, √(warmup / step))   as noam, by its peak
    linear         rate · step / warmup, then linear decay
    cosine         rate · step / warmup, then cosine decay
    constant       rate · min(1, step / warmup)

All rise for `warmup` steps. Linear and cosine reach zero one step after the last update.

For fine-tuning, lower layers may have a lower rate (Howard & Ruder 2018; ELECTRA: 0.8):

    rate of a parameter = rate · layer_decay ^ (layers above it)

    the head, a norm after the last block    0 layers above
    block i of n, counted from 1             n - i + 1
    the embeddings and their norms           n + 1

(ELECTRA's own code counts one more above every block: a mistake, says its author in issue 51.)
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

from torch import nn
from torch.optim import Adam, AdamW, Optimizer

from polyhead.plugin_registry import Registry

BLOCK = re.compile(r"(?:^|\.)blocks\.(\d+)\.")  # in the name of a parameter
EMBEDDINGS = {"embed", "embed_source", "embed_target", "widen", "positions", "class_token"}
SMALLEST = 1e-30  # smaller values are zero in float32, and 0 / 0 is not a number


@runtime_checkable
class MakeOptimizer(Protocol):
    """A function that makes an optimizer."""

    def __call__(self, groups: Sequence[dict[str, Any]], config: "OptimizerConfig") -> Optimizer:
        """Return an optimizer of parameter groups, each with `params` and `weight_decay`.

        The training loop sets `lr` of every group before a step. Its state must consist of numbers
        and of tensors in the shape of the parameter, so that a run can be resumed.
        """
        ...


def _adam(kind: type[Adam], groups: Sequence[Any], config: "OptimizerConfig") -> Optimizer:
    fused = groups[0]["params"][0].device.type in ("cpu", "cuda")
    betas = (config.beta_1, config.beta_2)
    return kind(list(groups), lr=0.0, betas=betas, eps=config.epsilon, fused=fused)


OPTIMIZERS: Registry[MakeOptimizer] = Registry(
    "optimizer", {"adam": partial(_adam, Adam), "adamw": partial(_adam, AdamW)}
)


@dataclass(frozen=True)
class OptimizerConfig:
    """The table [train.optimizer], with the defaults of Vaswani et al. 2017, section 5.3."""

    kind: Annotated[str, OPTIMIZERS] = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0  # of matrices only, not of norms, biases and positions
    layer_decay: float = 1.0  # factor of the rate from each layer to the one below it

    def __post_init__(self) -> None:
        checks = {
            "beta_1": (0 <= self.beta_1 < 1, "0 or more, and less than 1"),
            "beta_2": (0 <= self.beta_2 < 1, "0 or more, and less than 1"),
            "epsilon": (self.epsilon >= SMALLEST, f"at least {SMALLEST}"),
            "weight_decay": (self.weight_decay >= 0, "0 or more"),
            "layer_decay": (0 < self.layer_decay <= 1, "more than 0, and at most 1"),
        }
        for name, (valid, expected) in checks.items():
            if not valid:
                raise ValueError(f"{name} = {getattr(self, name)}: expected {expected}")


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Return an optimizer of all parameters; the training loop sets its rate at every step."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    above = layers_above(parameters)
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in parameters.items():
        matrix = parameter.dim() > 1 and "positions" not in name
        decay = config.weight_decay if matrix else 0.0
        share = config.layer_decay ** above[name]
        group = {"params": [], "weight_decay": decay, "share": share}
        groups.setdefault((decay, share), group)["params"].append(parameter)
    return OPTIMIZERS[config.kind](list(groups.values()), config)


def layers_above(names: Iterable[str]) -> dict[str, int]:
    """Return the number of layers between each parameter and the output."""
    names, blocks = list(names), dict[str, int]()
    for name in names:
        if match := BLOCK.search(name):
            stack = name[: match.start()]
            blocks[stack] = max(blocks.get(stack, 0), int(match[1]) + 1)
    above = {}
    for name in names:
        if match := BLOCK.search(name):
            above[name] = blocks[name[: match.start()]] - int(match[1])
        else:
            embedding = bool(EMBEDDINGS & set(name.split(".")))
            above[name] = 1 + max(blocks.values(), default=0) if embedding else 0
    return above


class Moment(NamedTuple):
    """The moment of an update in a run."""

    step: int  # counted from 1
    steps: int  # of the whole run
    d_model: int
    rise: float  # from 0 to 1 during the warm-up
    left: float  # from 1 to 0 after it


Schedule = Callable[["ScheduleConfig", Moment], float]  # returns the learning rate


BUILT_IN: dict[str, Schedule] = {
    "noam": lambda config, at: noam(at.step, at.d_model, config.warmup, config.factor),
    "inverse_sqrt": lambda c, at: c.rate * min(at.rise, math.sqrt(c.warmup / at.step)),
    "linear": lambda config, at: config.rate * min(at.rise, at.left),
    "cosine": lambda c, at: c.rate * min(at.rise, (1 - math.cos(math.pi * at.left)) / 2),
    "constant": lambda config, at: config.rate * at.rise,
}
SCHEDULES = Registry("schedule", BUILT_IN)


@dataclass(frozen=True)
class ScheduleConfig:
    """The table [train.schedule]. `rate` is the peak; noam uses d_model and `factor` instead."""

    kind: Annotated[str, SCHEDULES] = "noam"
    rate: float = 1e-3
    warmup: int = 4000
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.warmup < 1:
            raise ValueError(f"warmup = {self.warmup}: expected at least 1 step")
        for name in ("rate", "factor"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} = {getattr(self, name)}: expected more than 0")


def learning_rate(config: ScheduleConfig, step: int, *, steps: int, d_model: int) -> float:
    """Return the rate of update number `step` of `steps`. Step 0 has the rate of step 1."""
    step = max(step, 1)
    rise = min(1.0, step / config.warmup)
    left = min(1.0, max(0.0, (steps - step + 1) / max(1, steps - config.warmup)))
    return SCHEDULES[config.kind](config, Moment(step, steps, d_model, rise, left))


def noam(step: int, d_model: int, warmup: int, factor: float = 1.0) -> float:
    """Return a rate that rises linearly for `warmup` steps, then falls as 1/√step (eq. 3)."""
    step = max(step, 1)
    return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
