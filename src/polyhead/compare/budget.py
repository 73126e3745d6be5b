"""Training budget of each system: CPU time, or a number of FLOPs.

A few steps are timed first, and the learning rate schedule is made for as many steps as the budget
allows. Validation is not counted. With FLOPs nothing is timed: the FLOPs of a step are counted.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from polyhead.errors import ConfigError
from polyhead.training.run_log import NullReporter, ProgressReporter

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
TIME = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
PROBE_STEPS, SHORT_PROBE_STEPS = 60, 6
SHORT = 60.0  # seconds; so small a budget is not worth a long probe
POINTS = 10  # validations, and so points of a learning curve
LEAST_STEPS = 2


@dataclass(frozen=True)
class TimeBudget:
    """Seconds of CPU time, or FLOPs: exactly one is given."""

    seconds: float | None = None
    flops: float | None = None

    def __str__(self) -> str:
        if self.flops is not None:
            return f"{self.flops:.3g} FLOPs"
        assert self.seconds is not None
        if self.seconds < SHORT:
            return f"{self.seconds:g} second{'s' * (self.seconds != 1)}"
        minutes = self.seconds / 60
        return f"{minutes:g} minute{'s' * (minutes != 1)}"


def read_budget(time_given: str | None, flops_given: str | None) -> TimeBudget:
    """Parse a time such as `20m`, `90s`, `1h30m`, or FLOPs such as `5e14`: exactly one."""
    if (time_given is None) == (flops_given is None):
        raise ConfigError(
            "give either --budget 20m (CPU time per system) or --flops 5e14", "budget_missing"
        )
    if flops_given is not None:
        return TimeBudget(flops=_read_flops(flops_given))
    assert time_given is not None
    parsed = TIME.fullmatch(time_given.strip())
    if not time_given.strip() or parsed is None:
        raise ConfigError(
            f"--budget {time_given}: expected a time such as 90s, 20m or 1h30m", "invalid_budget"
        )
    seconds = sum(
        float(n) * unit for n, unit in zip(parsed.groups(), UNITS.values(), strict=True) if n
    )
    if seconds <= 0:
        raise ConfigError(f"--budget {time_given}: must be positive, e.g. 20m", "invalid_budget")
    return TimeBudget(seconds=seconds)


def _read_flops(given: str) -> float:
    try:
        flops = float(given)
    except ValueError:
        flops = 0.0
    if not 0 < flops < float("inf"):
        raise ConfigError(f"--flops {given}: expected a number such as 5e14", "invalid_budget")
    return flops


@dataclass
class TimingReporter(NullReporter):
    """Reporter that times every update and forwards everything to another reporter.

    The time between a validation's report and the next update counts as the update's.
    """

    inner: ProgressReporter = field(default_factory=NullReporter)
    on_cpu: bool = True
    moments: list[float] = field(default_factory=list)  # seconds of each update
    last: float | None = None

    def now(self) -> float:
        """Return CPU time divided by the number of threads; wall-clock time on other devices."""
        if self.on_cpu:
            return time.process_time() / torch.get_num_threads()
        return time.perf_counter()

    def stage(self, text: str) -> None:
        """Forward a stage."""
        self.inner.stage(text)

    def notice(self, text: str) -> None:
        """Forward a notice; it ends a validation, whose time is not counted."""
        self.last = self.now()
        self.inner.notice(text)

    def begin(self, step: int, steps: int) -> None:
        """Start the clock."""
        self.last = self.now()
        self.inner.begin(step, steps)

    def step(self, metrics: dict[str, Any]) -> None:
        """Record the time of an update."""
        now = self.now()
        if self.last is not None:
            self.moments.append(now - self.last)
        self.last = now
        self.inner.step(metrics)

    def end(self) -> None:
        """Stop the clock."""
        self.last = None
        self.inner.end()

    @property
    def seconds_per_step(self) -> float:
        """Mean over the second half of the updates: the first ones are slower."""
        half = self.moments[len(self.moments) // 2 :]
        return max(1e-9, sum(half) / max(1, len(half)))


def probe_steps(budget: TimeBudget) -> int:
    """Return how many steps are timed."""
    short = budget.seconds is not None and budget.seconds < SHORT
    return SHORT_PROBE_STEPS if short else PROBE_STEPS


def affordable_steps(budget: TimeBudget, share: float, cost: Mapping[str, float]) -> int:
    """Return how many steps a share of the budget allows, given the cost of one."""
    if budget.flops is None:
        assert budget.seconds is not None
        return max(LEAST_STEPS, round(share * budget.seconds / cost["seconds_per_step"]))
    return max(LEAST_STEPS, round(share * budget.flops / cost["flops_per_step"]))


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
    return {**values, "train": train}
