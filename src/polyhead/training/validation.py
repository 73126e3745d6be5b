"""How good a model is by now, on data that it is not trained on; each task has its own measures."""

from polyhead.layers.mixture_of_experts import (
    describe_usage,
    listening,
    usage_metrics,
    usage_shares,
)
from polyhead.training.loop import Progress
from polyhead.training.session import Session


def validate(session: Session, progress: Progress) -> float:
    """Measure, write it down, and return the score that decides: lower is better."""
    judge_by = session.run.train.judge_by
    with listening(session.model) as uses:
        metrics = session.prepared.valid(session.model.eval(), progress.step)
    words = [f"step {progress.step:,}", *(f"{k} {v:.3f}" for k, v in metrics.items())]
    if uses:
        metrics |= usage_metrics(uses)
        words.append(describe_usage(uses))
        session.journal.record("experts", progress.step, usage_shares(uses))
    session.journal.record("valid", progress.step, metrics)
    session.journal.reporter.notice("  ".join(words))
    session.metrics = metrics
    return metrics["loss"] if judge_by == "loss" else -float(metrics[judge_by])
