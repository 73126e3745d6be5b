"""The outcome of a training run, and its recorded metrics as points, a picture and a table."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polyhead
from polyhead.checkpoint.atomic_dir import follow
from polyhead.checkpoint.train_state import read_progress
from polyhead.errors import MissingError
from polyhead.render.picture import Lines, Picture, line_charts
from polyhead.render.svg import Point
from polyhead.training.callbacks import EndReason, TrainingStep, Validation
from polyhead.training.run_log import read_metrics, with_nan

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

METRICS = {  # of a validation: label and number of decimals
    "bleu": ("BLEU", 1), "bits_per_character": ("bits/char", 3), "accuracy": ("accuracy", 3),
    "generator_accuracy": ("generator", 3), "precision": ("precision", 3), "recall": ("recall", 3),
}  # fmt: skip
MAX_POINTS = 500  # of a line in a picture


@dataclass(frozen=True)
class Curve:
    """Recorded updates, one in `train.log_every`, and all validations of a run."""

    steps: tuple[TrainingStep, ...]
    validations: tuple[Validation, ...]

    def plot(self) -> Picture:
        """Draw the losses and the first score of the validations."""
        training = _points([(at.step, at.loss) for at in self.steps])
        charts: dict[str, Lines] = {
            "loss": {"training": training, "validation": self._scores("loss")}
        }
        for name, (label, _) in METRICS.items():
            if len(charts) < 2 and (score := self._scores(name)):
                charts[label] = {"validation": score}
        return line_charts("metrics", charts, "step")

    def _scores(self, name: str) -> list[Point]:
        return _points([(at.step, at.metrics.get(name)) for at in self.validations])

    def to_pandas(self) -> "pd.DataFrame":
        """Return a row per step; columns of validations start with "valid_"."""
        try:
            import pandas as pd
        except ImportError:
            message = "to_pandas needs pandas: pip install pandas"
            raise MissingError(message, "missing_package") from None
        rows: dict[int, dict[str, Any]] = {at.step: asdict(at) for at in self.steps}
        for at in self.validations:
            scores = {f"valid_{name}": value for name, value in at.metrics.items()}
            rows.setdefault(at.step, {"step": at.step}).update(scores)
        return pd.DataFrame([rows[step] for step in sorted(rows)])


def read_curve(folder: Path) -> Curve:
    """Read the curve of a run directory."""
    names = [field.name for field in fields(TrainingStep)]
    steps, validations = list[TrainingStep](), list[Validation]()
    for entry in map(with_nan, read_metrics(folder)):
        assert entry is not None
        if entry["kind"] == "train":
            steps.append(TrainingStep(**{name: entry[name] for name in names}))
        elif entry["kind"] == "valid":
            metrics = {n: value for n, value in entry.items() if n not in ("kind", "step")}
            validations.append(Validation(entry["step"], metrics))
    return Curve(tuple(steps), tuple(validations))


def _points(values: Sequence[tuple[int, float | None]]) -> list[Point]:
    """Return finite values by step; of many, every n-th and the last."""
    points = [Point(step, y) for step, y in values if y is not None and math.isfinite(y)]
    stride = -(-len(points) // MAX_POINTS) or 1
    return points[::-stride][::-1]


def scores_in_words(metrics: Mapping[str, float]) -> list[str]:
    """Return the known scores of a validation as texts such as "BLEU 31.2"."""
    return [
        f"{label} {metrics[name]:.{digits}f}"
        for name, (label, digits) in METRICS.items()
        if metrics.get(name) is not None
    ]


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
