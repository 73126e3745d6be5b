"""The recorded metrics of a run as typed points, as a picture and as a table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyhead.errors import MissingError
from polyhead.render.picture import Lines, Picture, line_charts
from polyhead.render.svg import Point
from polyhead.training.callbacks import TrainingStep, Validation
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
        losses = {
            "training": _points(self.steps, lambda at: at.loss),
            "validation": _points(self.validations, lambda at: at.metrics.get("loss")),
        }
        charts: dict[str, Lines] = {"loss": losses}
        for name, (label, _) in METRICS.items():
            score = _points(self.validations, lambda at: at.metrics.get(name))  # noqa: B023
            if score and len(charts) < 2:
                charts[label] = {"validation": score}
        return line_charts("metrics", charts, "step")

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


def _points(items: Sequence[Any], value_of: Any) -> list[Point]:
    """Return finite values by step; of many, every n-th and the last."""
    points = [
        Point(item.step, value)
        for item in items
        if (value := value_of(item)) is not None and math.isfinite(value)
    ]
    stride = -(-len(points) // MAX_POINTS) or 1
    return points[::-stride][::-1]


def scores_in_words(metrics: Mapping[str, float]) -> list[str]:
    """Return the known scores of a validation as texts such as "BLEU 31.2"."""
    return [
        f"{label} {metrics[name]:.{digits}f}"
        for name, (label, digits) in METRICS.items()
        if metrics.get(name) is not None
    ]
