"""What one process needs to train one run: the task's batches, the model, the optimiser."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from polyhead.errors import ConfigError
from polyhead.layers.mixture_of_experts import has_experts
from polyhead.models.registry import FAMILIES
from polyhead.training.config import RunConfig
from polyhead.training.loop import Progress
from polyhead.training.optim import build_optimizer
from polyhead.training.run_log import RunLog
from polyhead.training.signals import Stop
from polyhead.training.tasks.base import TaskSetup


@dataclass
class Session:
    """Everything that one process needs to train one run."""

    run: RunConfig
    folder: Path
    journal: RunLog
    prepared: TaskSetup
    model: Any
    optimizer: Optimizer
    stop: Stop
    progress: Progress
    started: float = 0.0  # when training would have begun, had it never been interrupted
    metrics: dict[str, Any] | None = None  # of the last validation


def open_session(
    prepared: TaskSetup, folder: Path, device: torch.device, journal: RunLog, stop: Stop
) -> Session:
    """Build the model and its optimiser, and say what is going to happen."""
    run = prepared.run
    if run.train.epochs is not None:
        n_batches = prepared.batches.n_batches(0)
        steps = math.ceil(run.train.epochs * n_batches / run.train.accumulate)
        run = replace(run, train=replace(run.train, steps=max(1, steps)))

    torch.manual_seed(run.train.seed)
    model: Any = FAMILIES[run.family].model(run.model)
    if prepared.begin is not None:
        prepared.begin(model)
    model = model.to(device)
    if run.train.compile and has_experts(model):
        raise ConfigError(
            "train.compile = true: which experts are computed is decided anew for every token, and "
            "cannot be compiled; leave it out"
        )
    if run.train.compile:
        model.hidden = torch.compile(model.hidden, dynamic=True)
    n_parameters = sum(p.numel() for p in model.parameters())
    journal.notice(
        f"{prepared.summary}; {n_parameters / 1e6:.1f} million parameters; "
        f"{run.train.steps:,} steps on {device}"
    )
    adam = build_optimizer(model, run.train.optimizer)
    return Session(run, folder, journal, prepared, model, adam, stop, Progress())
