"""Training budget of each system: CPU time, or steps.

A few steps are timed first, and the learning rate schedule is made for as many steps as the budget
allows. Validation is not counted.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from polyhead.errors import ConfigError
from polyhead.training.callbacks import Callback, TrainingStart, TrainingStep

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
TIME = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in UNITS))
POINTS = 10  # validations, and so points of a learning curve
LEAST_STEPS = 2


@dataclass(frozen=True)
class Budget:
    """Seconds of CPU time, or steps; with "recipe" training is as long as a recipe says."""

    amount: float
    unit: Literal["seconds", "steps", "recipe"]

    def __str__(self) -> str:
        if self.unit in ("steps", "recipe"):
            return f"{self.amount:,.0f} steps" if self.amount else "recipe"
        name, number = ("second", self.amount) if self.is_short else ("minute", self.amount / 60)
        return f"{number:g} {name}{'s' * (number != 1)}"

    @property
    def is_short(self) -> bool:
        """Less than a minute: shown in seconds, and not worth timing many steps."""
        return self.unit == "seconds" and self.amount < 60

    def n_steps(self, share: float, cost: float) -> int:
        """Return how many steps a share of the budget allows, given the cost of one."""
        return max(LEAST_STEPS, round(share * self.amount / cost))


def read_budget(
    given: str | None, steps: int | None = None, *, is_optional: bool = False
) -> Budget:
    """Parse a time such as `20m`, `90s` or `1h30m`, or take steps: exactly one."""
    if given is not None and steps is not None:
        raise ConfigError("give either --budget or --steps, not both", "budget_missing")
    if steps is not None:
        if steps < LEAST_STEPS:
            raise ConfigError(f"--steps {steps}: expected at least {LEAST_STEPS}", "invalid_budget")
        return Budget(float(steps), "steps")
    if given is None:
        if is_optional:
            return Budget(0.0, "recipe")
        message = "give --budget 20m (CPU time per system) or --steps 500"
        raise ConfigError(message, "budget_missing")
    parsed = TIME.fullmatch(given.strip())
    numbers = parsed.groups(default="0") if parsed else ()
    seconds = sum(float(n) * unit for n, unit in zip(numbers, UNITS.values(), strict=False))
    if seconds <= 0:
        raise ConfigError(
            f"--budget {given}: expected a positive time such as 90s, 20m or 1h30m",
            "invalid_budget",
        )
    return Budget(seconds, "seconds")


@dataclass
class UpdateTimer(Callback):
    """Times of all updates.

    The time between a validation and the next update counts as the update's.
    """

    on_cpu: bool = True
    moments: list[float] = field(default_factory=list)  # seconds of each update
    last: float = 0.0

    def now(self) -> float:
        """Return CPU time divided by the number of threads; wall-clock time on other devices."""
        if self.on_cpu:
            return time.process_time() / torch.get_num_threads()
        return time.perf_counter()

    def on_notice(self, text: str) -> None:  # noqa: ARG002
        """Do not count the time before a notice, such as that of a validation."""
        self.last = self.now()

    def on_start(self, start: TrainingStart) -> None:  # noqa: ARG002
        self.last = self.now()

    def on_step(self, step: TrainingStep) -> None:  # noqa: ARG002
        now = self.now()
        self.moments.append(now - self.last)
        self.last = now

    @property
    def seconds_per_step(self) -> float:
        """Mean over the second half of the updates: the first ones are slower."""
        half = self.moments[len(self.moments) // 2 :]
        return max(1e-9, sum(half) / max(1, len(half)))


def with_steps(values: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """Return a run's values with this many steps; schedule and validations follow."""
    train = dict(values["train"])
    schedule = dict(train.get("schedule", {}))
    schedule["warmup"] = max(1, min(schedule.get("warmup", 4000), steps // 10))
    every = -(-steps // POINTS)
    train |= {
        "steps": steps, "schedule": schedule, "validate_every": every, "save_every": every,
        "log_every": max(1, min(50, steps // 20)), "keep": 1,
    }  # fmt: skip
    train.pop("epochs", None)
    return {**values, "train": train}
