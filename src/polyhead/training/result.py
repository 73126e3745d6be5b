"""The outcome of a training run."""

import html
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polyhead
from polyhead.checkpoint.atomic_dir import follow
from polyhead.checkpoint.train_state import read_progress
from polyhead.render.picture import Picture
from polyhead.training.callbacks import EndReason
from polyhead.training.curve import Curve, read_curve
from polyhead.training.run_log import with_nan


@dataclass(frozen=True)
class TrainResult:
    """The outcome of a run; the value of a notebook's cell shows scores and curve.

    folder: directory of the run. best: directory of the model to use.
    step: the last one. metrics: of the last validation.
    signal: number of the one that interrupted training, else None.
    reason: see `TrainingEnd`. rank: of this process.
    """

    folder: Path
    best: Path
    step: int
    signal: int | None
    metrics: dict[str, float]
    reason: EndReason = "finished"
    rank: int = field(default=0, repr=False)

    @cached_property
    def curve(self) -> Curve:
        """All recorded steps and validations."""
        return read_curve(self.folder)

    @cached_property
    def model(self) -> "polyhead.Pipeline":
        """The best model as the pipeline of its task, loaded at first use."""
        return polyhead.load(self.best)

    def plot(self) -> Picture:
        """Return the curve as a picture, which shows itself in a notebook.

        Example: `polyhead.train(pairs=pairs, run="runs/mine").plot().save("curve.svg")`
        """
        return self.curve.plot()

    def _repr_html_(self) -> str:
        cells = [("step", f"{self.step:,}"), ("end", self.reason), ("best model", str(self.best))]
        cells += [(name, f"{value:.4g}") for name, value in self.metrics.items()]
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in cells
        )
        return f"<table>{rows}</table>{self.plot()._repr_html_()}"


def read_result(folder: Path) -> TrainResult:
    """Return the outcome of a finished run in a directory."""
    best = follow(folder / "best")
    state = read_progress(follow(folder / "last"))
    metrics = with_nan(state.get("metrics")) or {}
    path = folder / ("best" if best.is_dir() else "last")
    return TrainResult(folder, path, state["progress"]["step"], None, metrics)
