"""How good a model is by now, on data that it is not trained on; each task has its own measures."""

from polyhead.api.session import Session
from polyhead.train.loop import Progress


def validate(session: Session, progress: Progress) -> float:
    """Measure, write it down, and return the score that decides: lower is better."""
    judge_by = session.run.train.judge_by
    metrics = session.prepared.valid(session.model.eval(), progress.step)
    session.journal.record("valid", progress.step, metrics)
    session.journal.reporter.notice(
        "  ".join([f"step {progress.step:,}", *(f"{k} {v:.3f}" for k, v in metrics.items())])
    )
    session.metrics = metrics
    return metrics["loss"] if judge_by == "loss" else -float(metrics[judge_by])
