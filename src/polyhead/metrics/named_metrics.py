"""Metrics by name, for train.judge_by and `polyhead evaluate --metric`.

Those without a function are computed by the validation of a task. Plug-ins register functions of
outputs and references: translations, or names of classes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from polyhead.plugin_registry import Registry

Compute = Callable[[Sequence[str], Sequence[str]], float]  # of outputs and references


@dataclass(frozen=True)
class NamedMetric:
    """A metric, and the function that computes it unless validation does."""

    lower_is_better: bool = False
    compute: Compute | None = None


LOWER = ("loss", "perplexity", "bits_per_character", "mae", "rmse")
HIGHER = (
    "bleu", "accuracy", "macro_f1", "generator_accuracy", "precision", "recall", "auc", "micro_f1",
    "exact_match", "pearson", "spearman", "mrr", "f1", "character_f1",
)  # fmt: skip
METRICS = Registry(
    "metric",
    {name: NamedMetric(lower_is_better=True) for name in LOWER}
    | {name: NamedMetric() for name in HIGHER},
)
MetricName = Annotated[str, METRICS]


def judge_score(name: MetricName, value: float) -> float:
    """Return the value of a metric as a score, of which lower is better."""
    return value if METRICS[name].lower_is_better else -value


def registered_metric(
    name: MetricName, outputs: Sequence[str], references: Sequence[str]
) -> dict[str, float]:
    """Return the metric by its name if a plug-in computes it, else nothing."""
    compute = METRICS[name].compute
    return {} if compute is None else {name: float(compute(outputs, references))}
